"""`python -m multiberts COMMAND`: the same as `multiberts COMMAND`."""

from multiberts.runs.command_line.command import main

if __name__ == "__main__":
    main()
