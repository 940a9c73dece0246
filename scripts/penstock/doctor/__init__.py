"""Preflight finds what would stop a run; selftest tries whether penstock keeps its promises here."""
