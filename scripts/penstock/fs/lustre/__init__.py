"""Lustre's only command, `lfs`: `commands` runs it, `lfs` parses its output; `states` asks it of files.

Written from the source of lustre-release (2.15 and later: `lustre/utils/lfs.c`, `liblustreapi.c`) and from
outputs of sites; never run on a live Lustre.
"""
