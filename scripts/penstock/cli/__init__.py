"""The command line: a table entry for each command. Only this package prints, exits and sets up logging."""
