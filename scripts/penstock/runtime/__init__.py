"""Processes: how one starts, feeds and fences another; which job and host it runs in."""
