"""`python -m seglake`: the `seglake` program, where there is no script of that name."""

from seglake.cli import main

if __name__ == "__main__":
    main()
