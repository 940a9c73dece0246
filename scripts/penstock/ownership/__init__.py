"""Whose run a dataset is: what may still live, what is held, what is abandoned."""
