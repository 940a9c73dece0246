"""WEKA by its only command, `weka`: `commands` runs it, `cli` parses its JSON, `health` judges; `states` asks
it of files.

Written from WEKA's documentation (4.4), its own CSI driver (`weka/csi-wekafs`, `apiclient`) and outputs of
sites; never run on a live WEKA. Nothing is set: only the organization's administrator sets quotas.
"""
