"""Compares a published release with its manifest."""
