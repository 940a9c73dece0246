"""The configuration: read strictly, typed, frozen."""
