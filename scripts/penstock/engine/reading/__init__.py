"""Stored rows read back: for verify and for audits."""
