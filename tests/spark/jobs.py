"""Jobs as tests run them: in this process, where the Spark session is."""

import importlib.util
from pathlib import Path

JOBS = Path(__file__).parents[2] / "jobs"


def run_job(name: str, *arguments: str) -> int:
    """The exit code of a job's `main`; also where argparse ends it."""
    spec = importlib.util.spec_from_file_location(f"job_{name}", JOBS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    try:
        return int(module.main(list(arguments)))
    except SystemExit as ended:
        return int(ended.code or 0)
