"""Signatures by OpenSSH keys: `ssh-keygen -Y` makes and verifies them."""
