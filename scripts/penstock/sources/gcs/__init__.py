"""Google Cloud Storage: the dialect of its JSON API. No object is read but by its generation."""
