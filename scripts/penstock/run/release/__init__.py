"""From a verified staging to a sealed release: listing, records and tree reconciled."""
