"""The checks of preflight, with a module for each area.

Each `check` reports `core.run_steps.CheckResult`s to a `results.Looks`, or raises an error that stops the
run.
"""
