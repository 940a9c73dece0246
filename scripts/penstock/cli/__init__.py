"""The command line: one entry of the table a command. The only place that prints, exits and
sets up logging."""
