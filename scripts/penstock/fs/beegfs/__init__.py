"""BeeGFS by its commands: `v7` (beegfs-ctl and its wrappers), `v8` (beegfs), and `commands`, which chooses.

Formats and units are those of ThinkParQ's sources (`ctl/source/modes` of 7.4.7; `ctl/internal/cmd` of
beegfs-go 8.4), and of output of 7.4.7 and 8.3.1. Untested: buddy mirrors, RDMA, quotas and pools of version
8. `proc_states` and `mount` read what the kernel's client shows.
"""
