"""Trees opened and walked safely, read past the caches; what a file system can do. Changes no target, but for
the probe's hidden folder."""
