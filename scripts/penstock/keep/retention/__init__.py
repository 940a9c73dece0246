"""Releases after publication: which one readers get, which stay, who reads them, what is removed."""
