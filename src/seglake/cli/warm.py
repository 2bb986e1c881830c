"""`seglake warm`: compiles what would else be compiled at a first call."""

# ruff: noqa: PLC0415  # a command imports its modules when it runs

import sys


def warm() -> None:
    """Compile every kernel now, so that nobody waits for it later. No Spark, no Java."""
    from runpy import run_module

    said = "Some 180 kernels are compiled, which takes about a minute of one core."
    print(said, file=sys.stderr)
    run_module("seglake.warm", run_name="__main__")  # above this layer: it warms this one, too
