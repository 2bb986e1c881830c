"""`python -m tests.matrix`: unit tests on each Python that is here, a few on Spark with each Java.

Each Python gets an environment of its own from requirements.lock, in .venv-<version>. A Python or
a Java that is not here is named at the end.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

PROJECT = Path(__file__).parents[1]
PYTHONS = ("3.11", "3.12", "3.13")
JAVAS = ("17", "21")
JAVA_FOLDERS = ("/usr/lib/jvm", "/opt", "/Library/Java/JavaVirtualMachines")
NO_JAVA = ["-m", "not spark and not kafka and not s3 and not slow"]
ON_SPARK = [
    "tests/spark/test_session.py", "tests/spark/test_cli_ingest.py",
    "tests/spark/test_ingest_frame.py", "tests/spark/test_datasource_docs.py",
]  # fmt: skip


def main(arguments: list[str]) -> int:
    """Run what can be run; 1 if a test failed, or if what was asked for is not here."""
    parser = argparse.ArgumentParser(prog="python -m tests.matrix", description=__doc__)
    parser.add_argument("--python", action="append", help=f"default {', '.join(PYTHONS)}")
    parser.add_argument("--java", action="append", help=f"default {', '.join(JAVAS)}")
    parser.add_argument("--java-home", action="append", default=[], help="where a Java is")
    parser.add_argument("--no-unit", action="store_true", help="only the tests on Spark")
    given = parser.parse_args(arguments)
    javas = dict(_javas(given.java_home))
    results: dict[str, str] = {}
    for version in given.python or PYTHONS:
        results |= _on_python(version, given.java or JAVAS, javas, unit=not given.no_unit)
    for name, result in results.items():
        print(f"{name:24} {result}")
    asked_for = bool(given.python or given.java)
    bad = {"failed", "not here"} if asked_for else {"failed"}
    return int(not bad.isdisjoint(results.values()))


def _on_python(
    version: str, wanted: Sequence[str], javas: dict[str, Path], *, unit: bool
) -> dict[str, str]:
    python = _python(version)
    if python is None:
        return {f"Python {version}": "not here"}
    folder = PROJECT / f".venv-{version}"
    made = ["make", f"VENV={folder}", f"PYTHON={python}", str(folder / ".compiled")]
    if subprocess.run(made, cwd=PROJECT, check=False).returncode:
        return {f"Python {version}": "failed"}
    results = {f"Python {version}": _pytest(folder, NO_JAVA)} if unit else {}
    for java in wanted:
        name = f"Python {version}, Java {java}"
        home = javas.get(java)
        results[name] = _pytest(folder, ON_SPARK, home) if home else "not here"
    return results


def _pytest(environment: Path, tests: list[str], java_home: Path | None = None) -> str:
    variables = {"JAVA_HOME": str(java_home)} if java_home else {}
    done = subprocess.run(
        [environment / "bin" / "python", "-m", "pytest", "--hypothesis-profile=quick", *tests],
        env=os.environ | variables, cwd=PROJECT, check=False,
    )  # fmt: skip
    return "failed" if done.returncode else "passed"


def _python(version: str) -> str | None:
    """A Python that starts: a version manager's shims may be there for one that does not."""
    kept = sorted(Path("~/.pyenv/versions").expanduser().glob(f"{version}.*/bin/python3"))
    for python in (*map(str, kept), shutil.which(f"python{version}"), sys.executable):
        if python is None:
            continue
        code = "import sys; print('%d.%d' % sys.version_info[:2])"
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
        if done.stdout.strip() == version:
            return python
    return None


def _javas(named: list[str]) -> Iterator[tuple[str, Path]]:
    """Each Java that Spark can run on: its version and its home; those that are named last."""
    found = [home for folder in JAVA_FOLDERS for home in Path(folder).glob("*")]
    homes = [*sorted(found), *map(Path, filter(None, [os.environ.get("JAVA_HOME"), *named]))]
    for home in homes:
        java = home / "bin" / "java"
        if not java.exists():
            continue
        done = subprocess.run([java, "--list-modules"], capture_output=True, text=True, check=False)
        version = re.search(r"^jdk\.incubator\.vector@(\d+)", done.stdout, re.MULTILINE)
        if version:
            yield version[1], home


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
