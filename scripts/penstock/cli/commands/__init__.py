"""A module for each command: arguments, examples, work and output."""
