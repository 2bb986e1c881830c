"""`python -m tests.matrix`: unit tests on each Python that is here, a few on each Spark and Java.

Each Python gets an environment of its own from requirements.lock, in .venv-<version>, where the
other Sparks take the place of pyspark one after the other. A Python or a Java that is not here is
named at the end.
"""

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
SPARKS = ("3.5", "4.0", "4.1", "4.2")  # the last is that of the lock, which stays
JAVAS = ("17", "21")
JAVA_FOLDERS = ("/usr/lib/jvm", "/opt", "/Library/Java/JavaVirtualMachines")
NO_JAVA = ["-m", "not spark and not kafka and not s3 and not slow"]
ON_SPARK = [
    "tests/spark/test_session.py", "tests/spark/test_cli_ingest.py",
    "tests/spark/test_ingest_frame.py", "tests/spark/test_datasource_docs.py",
    "tests/spark/test_datasource.py", "tests/spark/test_events_between.py",
    "tests/spark/test_datasource_stream.py", "tests/spark/test_publish_in_spark.py",
    "tests/spark/test_ingest_jobs.py::test_a_bad_setting_is_told_before_anything_starts",
]  # fmt: skip

ON_OLD = ["tests/spark/test_old_spark.py"]  # on 3.5


def main(arguments: list[str]) -> int:
    """Run what can be run; 1 if a test failed, or if what was asked for is not here."""
    parser = argparse.ArgumentParser(prog="python -m tests.matrix", description=__doc__)
    parser.add_argument("--python", action="append", help=f"default {', '.join(PYTHONS)}")
    parser.add_argument("--spark", action="append", help=f"default {', '.join(SPARKS)}")
    parser.add_argument("--java", action="append", help=f"default {', '.join(JAVAS)}")
    parser.add_argument("--java-home", action="append", default=[], help="where a Java is")
    parser.add_argument("--no-unit", action="store_true", help="only the tests on Spark")
    given = parser.parse_args(arguments)
    javas = dict(_javas(given.java_home))
    results: dict[str, str] = {}
    wanted = [(spark, java) for spark in given.spark or SPARKS for java in given.java or JAVAS]
    for version in given.python or PYTHONS:
        results |= _on_python(version, wanted, javas, unit=not given.no_unit)
    for name, result in results.items():
        print(f"{name:32} {result}")
    asked_for = bool(given.python or given.spark or given.java)
    bad = {"failed", "not here"} if asked_for else {"failed"}
    return int(not bad.isdisjoint(results.values()))


def _on_python(
    version: str, wanted: Sequence[tuple[str, str]], javas: dict[str, Path], *, unit: bool
) -> dict[str, str]:
    python = _python(version)
    if python is None:
        return {f"Python {version}": "not here"}
    folder = PROJECT / f".venv-{version}"
    targets = [str(folder / name) for name in (".installed", ".compiled")]
    made = ["make", f"VENV={folder}", f"PYTHON={python}", *targets]
    if subprocess.run(made, cwd=PROJECT, check=False).returncode:
        return {f"Python {version}": "failed"}
    results = {f"Python {version}": _pytest(folder, NO_JAVA)} if unit else {}
    for spark, java in wanted:
        name = f"Python {version}, Spark {spark}, Java {java}"
        results[name] = _on_spark(folder, spark, javas[java]) if java in javas else "not here"
    _install(folder, SPARKS[-1])
    return results


def _on_spark(environment: Path, spark: str, java_home: Path) -> str:
    tests = ON_OLD if spark < "4" else ON_SPARK
    return _pytest(environment, tests, java_home) if _install(environment, spark) else "failed"


def _install(environment: Path, spark: str) -> bool:
    """Whether the newest release of this Spark that we allow took the place of pyspark."""
    pip = [str(environment / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    extra = "" if spark < "4" else "[spark]"  # which has newer ones only
    wanted = ["--no-build-isolation", "--editable", f".{extra}", f"pyspark=={spark}.*"]
    return not subprocess.run([*pip, *wanted], cwd=PROJECT, check=False).returncode


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
