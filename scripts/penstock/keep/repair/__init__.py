"""Fetches files that an audit found damaged, and puts them in place."""
