"""The checks of preflight: a module for each area that is looked at. `steps.preflight_step` takes them in turn."""
