"""Releases after they were published: which one readers get, which stay, who reads them, what is removed."""
