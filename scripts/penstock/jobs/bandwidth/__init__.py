"""One cap over the bytes that all elements of all runs read from their sources by one link."""
