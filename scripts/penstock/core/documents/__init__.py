"""The JSON documents that penstock keeps on the target. One module each, which alone knows its JSON. All are
pure: types and their JSON forms; other modules read and write the files (most by `dataset.documents`)."""
