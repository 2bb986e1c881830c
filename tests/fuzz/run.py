"""Try inputs in this process, which may die of one: python -m tests.fuzz.run logs --inputs 1000

The input that is being tried stands in the file `--last` for whoever finds this process dead.
With `--coverage` atheris makes the inputs, guided by the branches that they take, and keeps those
that take new ones in the folder `--corpus`. In mode "checked" compiled kernels check every index,
in mode "interpreted" they are plain Python, whose branches atheris sees.
"""

import argparse
import contextlib
import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path

MODES = {
    "compiled": {},
    "checked": {"NUMBA_BOUNDSCHECK": "1"},
    "interpreted": {"NUMBA_DISABLE_JIT": "1"},
}
SEEN = tuple(
    f"seglake.{name}" for name in ("format", "text", "times", "write", "read", "catalog", "layout")
)
SOURCES = Path(__file__).parents[2] / "src"


def options() -> argparse.ArgumentParser:
    """The options; see above."""
    parser = argparse.ArgumentParser(prog="tests.fuzz.run", description=__doc__)
    parser.add_argument("targets", nargs="*", help="all by default")
    parser.add_argument("--mode", choices=MODES, default="compiled")
    parser.add_argument("--inputs", type=int, default=1000, help="for each target")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--last", type=Path, help="where the input stands that is being tried")
    parser.add_argument("--file", type=Path, help="try this input only")
    parser.add_argument("--coverage", action="store_true")
    parser.add_argument("--corpus", type=Path, help="with --coverage")
    return parser


def main() -> None:
    """Try what the options say; an exception that must not be ends the process."""
    given = options().parse_args()
    os.environ.update(MODES[given.mode])
    seen = _instrumented(given.mode) if given.coverage else contextlib.nullcontext()
    with seen:
        _load(given.mode)
    from tests.fuzz.targets import TARGETS  # noqa: PLC0415

    names = given.targets or list(TARGETS)
    if given.coverage:
        _explore(names[0], given)
    for name in names:
        _try(name, given)


def _instrumented(mode: str) -> contextlib.AbstractContextManager[None]:
    import atheris  # noqa: PLC0415

    exclude = [] if mode == "interpreted" else list(_with_kernels())
    made: contextlib.AbstractContextManager[None] = atheris.instrument_imports(
        include=list(SEEN), exclude=exclude
    )
    return made


def _with_kernels() -> Iterator[str]:
    """The modules that numba compiles, which it cannot do once atheris has changed them."""
    for path in SOURCES.rglob("*.py"):
        if "njit" in path.read_text():
            yield ".".join(path.relative_to(SOURCES).with_suffix("").parts)


def _load(mode: str) -> None:
    from seglake.text import simd as bytescan  # noqa: PLC0415
    from tests.fuzz import bounds, interpreted  # noqa: PLC0415

    bytescan.padded = lambda size: bounds.guarded_buffer(size + bytescan.PADDING)
    if mode == "interpreted":
        interpreted.install()
    from tests.fuzz import folders, inputs, stored  # noqa: F401, PLC0415


def _try(name: str, given: argparse.Namespace) -> None:
    """Sound inputs, those that once crashed, then changed ones, within bounds."""
    from tests.fuzz import bounds, mutation  # noqa: PLC0415
    from tests.fuzz.targets import TARGETS  # noqa: PLC0415

    target, chance = TARGETS[name], random.Random(f"{given.seed} {name}")
    if given.file:
        target(given.file.read_bytes())
        return
    seeds = target.seeds()
    last = open(given.last, "wb", buffering=0) if given.last else None  # noqa: PTH123, SIM115
    for data in [*seeds, *target.found()]:
        target(data)
    bounds.limit_memory(bounds.MEMORY_BYTES)
    for data in mutation.almost_right(seeds + target.found(), given.inputs, chance):
        if last is not None:
            os.pwrite(last.fileno(), name.encode().ljust(32) + data, 0)
            os.ftruncate(last.fileno(), 32 + len(data))
        bounds.limit_time(bounds.INPUT_S)
        target(data)
    bounds.limit_time(0)


def _explore(name: str, given: argparse.Namespace) -> None:
    """Let atheris make the inputs; it ends the process."""
    import atheris  # noqa: PLC0415

    from tests.fuzz import bounds  # noqa: PLC0415
    from tests.fuzz.targets import TARGETS  # noqa: PLC0415

    target = TARGETS[name]
    for data in [] if given.mode == "interpreted" else target.seeds():
        target(data)  # compiles kernels before memory is limited
    bounds.limit_memory(4 * bounds.MEMORY_BYTES)
    arguments = [
        f"-atheris_runs={given.inputs}", f"-seed={given.seed}", f"-max_len={target.max_bytes}",
        f"-timeout={bounds.INPUT_S}", "-rss_limit_mb=4096", "-len_control=0",
        f"-artifact_prefix={given.corpus.parents[1]}/{name}-", "-print_final_stats=1",
        str(given.corpus),
    ]  # fmt: skip
    atheris.Setup([sys.argv[0], *arguments], target)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
