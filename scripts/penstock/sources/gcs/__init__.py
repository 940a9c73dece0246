"""Google Cloud Storage by its JSON API. Every object is read by its generation (version number)."""
