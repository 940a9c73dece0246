"""A step's elements as job arrays, from the controller's side: how many run at once, what becomes of those
that ended, and the book of arrays and submissions."""
