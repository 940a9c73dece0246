"""The command line: the only place that prints, exits and sets up logging."""
