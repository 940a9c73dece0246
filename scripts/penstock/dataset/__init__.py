"""A dataset's state on the target: its runs, receipts, claims, lock, pins, history and findings, and the
judgement of what its readers get."""
