"""A folder of events for each hour, the pipeline that ingests them, and the lake of it."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import seglake
from seglake.catalog.schema import RunRow
from seglake.errors import UsageError
from seglake.read.log import Log
from tests.harness.scheduler import Airflow

FIRST = datetime(2026, 11, 20, tzinfo=UTC)
HOUR = timedelta(hours=1)
TOPIC = "web"
ENDED = ("success", "failed")  # of a run
CONF = """
[pipeline]
root = "{root}"
order = "time"
[input]
paths = ["{events}"]
format = "jsonl"
[timestamp]
field = "ts"
format = "epoch_ms"
[key]
fields = ["user"]
[topic]
name = "web"
partitions = 2
"""


def start(hour: int) -> datetime:
    return FIRST + hour * HOUR


def ended(scheduler: Airflow, dag: str, *hours: int) -> dict[int, str]:
    """The DAG's run of each hour, when all have ended."""
    wanted = {start(hour).isoformat()[:19]: hour for hour in hours}

    def look() -> dict[int, str] | None:
        runs = [run for run in scheduler.runs(dag) if run["data_interval_start"][:19] in wanted]
        found = {wanted[run["data_interval_start"][:19]]: run["dag_run_id"] for run in runs}
        over = len(found) == len(wanted) and all(run["state"] in ENDED for run in runs)
        return found if over else None

    return scheduler.await_(f"the end of hours {hours}", look)


def run_id(hour: int) -> str:
    """As the DAG names the run of an hour."""
    return f"{start(hour).isoformat()}/{start(hour + 1).isoformat()}"


class HourlyEvents:
    """Below `folder`: events, a pipeline's file, and a lake."""

    def __init__(self, folder: Path) -> None:
        self.root, self.events = folder / "lake", folder / "events"
        self.conf_file = folder / "web.toml"
        self.events.mkdir(parents=True)
        self.configure()

    def configure(self, text: str = CONF) -> None:
        self.conf_file.write_text(text.format(root=self.root, events=self.events))

    def place(self, hour: int) -> Path:
        """The file of an hour."""
        return self.events / f"{start(hour):%Y-%m-%d/%H}" / "events.jsonl"

    def write(self, hour: int, count: int = 100) -> None:
        """Events of an hour, `count` of them, in the place of those that there are."""
        first, step = int(start(hour).timestamp() * 1000), HOUR // count
        step_ms = step // timedelta(milliseconds=1)
        lines = (
            json.dumps({"ts": first + n * step_ms, "user": f"u{n % 7}"}) + "\n"
            for n in range(count)
        )
        self.place(hour).parent.mkdir(parents=True, exist_ok=True)
        self.place(hour).write_text("".join(lines))

    def break_(self, hour: int, count: int = 20) -> None:
        """Rows of an hour of which none can be a record."""
        self.place(hour).parent.mkdir(parents=True, exist_ok=True)
        self.place(hour).write_text("no json\n" * count)

    def environment(self, jobs: Path) -> dict[str, str]:
        """What the DAGs take from the environment."""
        return {
            "SEGLAKE_ROOT": str(self.root),
            "SEGLAKE_TOPIC": TOPIC,
            "SEGLAKE_CONF_FILE": str(self.conf_file),
            "SEGLAKE_JOBS": str(jobs),
            "SEGLAKE_EVENTS": str(self.events),
            "SEGLAKE_RETRY_SECONDS": "1",
            "SEGLAKE_POLL_SECONDS": "10",
        }

    def log(self) -> Log:
        return seglake.open(str(self.root)).topic(TOPIC)

    def history(self) -> list[RunRow]:
        """Every state of every run; nothing where there is no lake yet."""
        try:
            return seglake.open(str(self.root)).history(TOPIC)
        except UsageError:
            return []

    def runs(self) -> dict[str, int]:
        """The committed runs, and the records of each."""
        last = {run.run_id: run for run in sorted(self.history(), key=lambda run: run.sequence)}
        return {name: run.records for name, run in last.items() if run.state == "committed"}

    def records(self, hour: int) -> int:
        """The records that readers find in an hour."""
        window = self.log().read_range(start(hour), start(hour + 1), columns=["offset"])
        return int(window.read_all().num_rows)
