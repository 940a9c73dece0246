"""A step's elements as job arrays: submitted, watched, found again by a later controller, cancelled."""
