"""The command line: the table of commands, their arguments from flags and Gin, help, and errors."""
