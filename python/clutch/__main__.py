"""`python -m clutch` is the `clutch` command."""

from clutch.cli import main

if __name__ == "__main__":
    main()
