"""NFS by the mount options of the kernel's client (`mount`): it has no vendor's commands."""
