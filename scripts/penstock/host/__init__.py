"""This machine and its processes: commands, helper processes, frames between them, /proc, cgroups, the job
and node of this process, the pace of what it does."""
