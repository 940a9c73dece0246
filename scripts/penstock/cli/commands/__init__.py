"""A module for each command: its arguments, its examples, what it does and what it prints."""
