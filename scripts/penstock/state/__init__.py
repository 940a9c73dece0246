"""What lies on the target about a dataset's runs: plans, receipts, claims, history, findings."""
