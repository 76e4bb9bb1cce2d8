"""`python -m fusefs.cli`: runs the command where no `grovefs` script is installed."""

from fusefs.cli import main

if __name__ == "__main__":
    main()
