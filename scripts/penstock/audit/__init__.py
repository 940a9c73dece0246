"""A published release held against its manifest, and its damaged files made anew."""
