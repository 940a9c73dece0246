"""This machine and its processes: commands, helper processes, frames, /proc, cgroups, job and node,
pacing."""
