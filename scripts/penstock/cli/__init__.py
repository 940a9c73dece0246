"""The command line, with a table of commands. Only this package prints, exits and sets up logging."""
