"""The checks of preflight, a module for each area.

Each `check` reports `core.checks.CheckResult`s to a `results.Looks`, or raises an error that stops the run.
"""
