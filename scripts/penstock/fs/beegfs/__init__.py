"""BeeGFS by its commands: `v7` (beegfs-ctl and its wrappers), `v8` (beegfs), and `commands`, which chooses.

Formats and units are those of ThinkParQ's sources (`ctl/source/modes` of 7.4.7; `ctl/internal/cmd` of
beegfs-go 8.4). None of it was run on a live BeeGFS.
"""
