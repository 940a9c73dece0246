"""NFS by the mount options of the kernel's client: `mount`. It has no commands of a vendor."""
