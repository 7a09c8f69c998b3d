"""The command line: the table of commands, Gin files, and completion in shells."""
