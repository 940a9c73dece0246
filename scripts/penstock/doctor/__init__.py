"""Preflight and selftest: what would stop a run, and whether penstock keeps its promises here."""
