"""Run the `seglake` program as `python -m seglake`, for example without its script."""

from seglake.cli import main

if __name__ == "__main__":
    main()
