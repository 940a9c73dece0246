"""The JSON documents that penstock keeps on the target, one module each. The modules hold only types and
their JSON forms; most files are read and written by `dataset.documents`."""
