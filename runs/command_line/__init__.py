"""The command line: the table of commands, and Gin files."""
