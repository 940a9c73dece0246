"""The forms on disk that need pyarrow: listing, shards, records, manifest. Workers import none."""
