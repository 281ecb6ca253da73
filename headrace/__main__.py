"""Run the command line as ``python -m headrace``."""

from headrace.cli.main import main

if __name__ == "__main__":
    main()
