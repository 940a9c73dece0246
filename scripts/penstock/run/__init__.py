"""A run: list, plan, copy, permissions, verify, publish, report, a module each."""
