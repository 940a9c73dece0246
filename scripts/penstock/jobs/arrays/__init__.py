"""A step's elements as job arrays, as the controller sees them: limits, ends, and the book of submissions."""
