"""kcat, the command line of librdkafka: that of the machine, or Debian's, fetched once."""

import os
import shutil
import subprocess
from pathlib import Path

from tests.harness.debian import unpacked

CACHE = Path(__file__).resolve().parents[2] / ".kcat"


def kcat_program() -> tuple[str, dict[str, str]]:
    """Its path, and the environment in which it runs. Raises NoPackageError without a kcat."""
    if (program := shutil.which("kcat")) is not None:
        return program, dict(os.environ)
    return str(CACHE / "usr/bin/kcat"), unpacked(CACHE, ["kcat"])


def run_kcat(*arguments: str, timeout_s: float = 300) -> str:
    """What kcat prints. Raises NoPackageError without a kcat."""
    program, environment = kcat_program()
    done = subprocess.run(
        [program, *arguments], capture_output=True, text=True, timeout=timeout_s, env=environment,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout
