"""The JSON documents that penstock keeps on the target. One module each, which alone knows its JSON."""
