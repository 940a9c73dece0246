"""WEKA by its one command, `weka`: asked by `commands`, its JSON read by `cli` and judged by `health`;
`states` asks it of files.

Written from WEKA's documentation (4.4), its own CSI driver (`weka/csi-wekafs`, `apiclient`) and outputs of
sites. None of it was run on a live WEKA. Nothing is set: quotas are the organization's administrator's.
"""
