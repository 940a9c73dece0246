"""Processes: helper processes, frames between them, the job and node of this process, /proc."""
