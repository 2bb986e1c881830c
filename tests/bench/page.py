"""The report of a million segments: its seconds and its bytes, which have limits.

`python -m tests.bench.page [SEGMENTS]` makes the catalog in a temporary folder and fails above
10 s or 2 MB. The page is made in a fresh process, as the command makes it.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.makers.many_segments import many_segments

SECONDS, BYTES = 10, 2_000_000


def main(segments: int) -> int:
    """Measure, and return the exit code."""
    with tempfile.TemporaryDirectory() as folder:
        many_segments(f"{folder}/lake", segments)
        page = Path(folder, "report.html")
        program = "from seglake.cli import main; main()"
        command = [sys.executable, "-c", program, "report", f"{folder}/lake", "-o", str(page)]
        begun = time.monotonic()
        subprocess.run(command, check=True)
        seconds, size = time.monotonic() - begun, page.stat().st_size
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = used.ru_utime + used.ru_stime
    print(f"{segments:,} segments: {seconds:.1f} s ({cpu:.1f} s of CPU), {size:,} bytes")
    return int(seconds > SECONDS or size > BYTES)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000))
