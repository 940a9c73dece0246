"""The checks of preflight: a module for each area that is looked at.

Each `check` reports what it saw to a `looks.Looks`, as `core.checks.CheckResult`s; what stops a run it may
raise as an error of its own. `doctor.preflight_step` calls them in turn.
"""
