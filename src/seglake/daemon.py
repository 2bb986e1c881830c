"""PySpark's worker daemon, with the libraries and kernels of Seglake loaded before it forks.

Spark starts `python -m seglake.daemon` on each executor when `spark.python.daemon.module` names
it. Every worker is a fork of this process, so imports are paid once per executor instead of once
per worker. A module that cannot be imported here is left to the worker, which reports it better.
"""

from __future__ import annotations

import contextlib
import importlib
import pkgutil

from pyspark import daemon

PACKAGES = ("seglake.format", "seglake.ingest")


def preload() -> list[str]:
    """Imports what every task needs; returns the names of Seglake's modules that were loaded."""
    names = ["pyarrow", "numba", "pyspark.worker"]
    for package in PACKAGES:
        with contextlib.suppress(ImportError):
            path = importlib.import_module(package).__path__
            names += [module.name for module in pkgutil.iter_modules(path, package + ".")]
    return [name for name in names if _imported(name)]


def _imported(name: str) -> bool:
    try:
        importlib.import_module(name)
    except ImportError:
        return False
    return True


if __name__ == "__main__":
    preload()
    daemon.manager()
