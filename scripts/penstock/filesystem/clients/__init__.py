"""What the mounts of network file systems say of themselves on this node: one module a client, and
`registry`, which finds the one that fits. Each parses text into typed facts, and judges them by pure
functions; files of /proc are read by `registry` alone. Written from the vendors' sources and manuals, and
never run on a live BeeGFS, WEKA or Lustre."""
