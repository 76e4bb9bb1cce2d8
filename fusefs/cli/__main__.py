"""`python -m fusefs.cli`: the command, where no script of that name is at hand."""

from fusefs.cli import main

if __name__ == "__main__":
    main()
