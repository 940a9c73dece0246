"""A step's elements as job arrays: submitted, watched, met again, ended."""
