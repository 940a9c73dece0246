"""Lustre's one command, `lfs`: asked by `commands`, its output read by `lfs`; `states` asks it of files.

Written from the source of lustre-release (2.15 and later: `lustre/utils/lfs.c`, `liblustreapi.c`) and from
outputs of sites. None of it was run on a live Lustre.
"""
