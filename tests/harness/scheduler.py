"""A real Airflow on loopback: scheduler, workers, DAG processor, triggerer and API server.

It has an environment of its own, made once below `.airflow` from a lock: Airflow and Seglake stand
in it, and Spark is that of the tests. Every `Airflow` has a home and a database of its own.
"""

import base64
import contextlib
import hashlib
import json
import os
import secrets
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from shutil import copyfile, rmtree
from typing import Any, TypeVar
from urllib.parse import quote

import pyspark

PROJECT = Path(__file__).resolve().parents[2]
LOCK = PROJECT / "tests" / "scheduled" / "requirements.lock"
DAGS = PROJECT / "jobs" / "airflow"
SERVICES = ("api-server", "scheduler", "dag-processor", "triggerer")
PATIENCE_S = 900
BUSY = ("Database is locked", "already a running backfill")  # the first is SQLite's
LOOK_S = 0.7  # the API server works for each answer

Json = dict[str, Any]
_T = TypeVar("_T")


class NoAirflowError(RuntimeError):
    """Airflow is not cached and cannot be installed."""


def environment() -> Path:
    """Airflow's virtual environment, made first if the lock is new. Raises NoAirflowError."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    digest = hashlib.sha256(LOCK.read_bytes()).hexdigest()[:12]
    folder = PROJECT / ".airflow" / f"{version}-{digest}"
    if not (folder / "airflow.db").is_file():
        rmtree(folder, ignore_errors=True)
        _install(folder)
    return folder


def _install(folder: Path) -> None:
    python, uv = folder / "bin" / "python", folder / "bin" / "uv"
    pinned = next(line.split()[0] for line in LOCK.read_text().splitlines() if "uv==" in line)
    _run([sys.executable, "-m", "venv", folder])
    _run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", pinned])
    install: list[str | Path] = [uv, "pip", "install", "--quiet", "--python", python]
    _run([*install, "--require-hashes", "-r", LOCK])
    _run([*install, "--no-deps", "--no-build-isolation", "-e", PROJECT])
    _run([folder / "bin" / "airflow", "db", "migrate"], _configuration(folder, folder / "home"))
    made = folder / "home" / "airflow.db"
    with contextlib.closing(sqlite3.connect(made)) as database:
        database.execute("PRAGMA journal_mode = WAL")  # five processes share it
    made.rename(folder / "airflow.db")  # the last step: all is there


def _run(command: list[str | Path], env: Mapping[str, str] | None = None) -> None:
    done = subprocess.run(
        list(map(str, command)), env=env, capture_output=True, text=True, check=False
    )
    if done.returncode:
        told = f"{done.stdout}{done.stderr}"[-4000:]
        raise NoAirflowError(f"{' '.join(map(str, command))}:\n{told}")


def _configuration(folder: Path, home: Path) -> dict[str, str]:
    """The environment of Airflow's processes, without anything of the user's own Airflow."""
    spark = Path(pyspark.__file__).parent
    kept = {name: text for name, text in os.environ.items() if not name.startswith("AIRFLOW")}
    return {
        **kept,
        "PATH": f"{folder / 'bin'}:{spark / 'bin'}:{os.environ['PATH']}",
        "VIRTUAL_ENV": str(folder),
        "SPARK_HOME": str(spark),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_CONF_DIR": str(PROJECT / "conf"),
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(DAGS),
        "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
        "AIRFLOW__CORE__PARALLELISM": "3",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
        "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "True",
        "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "20",
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "120",
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "5",
        "AIRFLOW__API__WORKERS": "1",
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[1]"}),
    }


def family(process: int) -> list[int]:
    """A process and all that it started, whatever their groups and sessions are."""
    children: dict[int, list[int]] = {}
    for place in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parent = int(place.read_text().rsplit(")", 1)[1].split()[1])
            children.setdefault(parent, []).append(int(place.parent.name))
    found = [process]
    for each in found:
        found += children.get(each, [])
    return found


def run_inside(
    home: Path, extra: Mapping[str, str], program: str, *arguments: str
) -> subprocess.CompletedProcess[str]:
    """A program of Airflow's environment, with a database of its own; both outputs are joined."""
    folder = environment()
    home.mkdir(parents=True)
    copyfile(folder / "airflow.db", home / "airflow.db")
    return subprocess.run(
        [folder / "bin" / program, *arguments],
        env={**_configuration(folder, home), **extra}, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip


class Airflow:
    """A running Airflow, asked by its REST API. `start` starts one of its services again."""

    def __init__(self, home: Path, extra: Mapping[str, str]) -> None:
        self._home, self._stack = home, ExitStack()
        folder = environment()
        home.mkdir(parents=True)
        copyfile(folder / "airflow.db", home / "airflow.db")
        (home / "airflow.cfg").touch()  # else one service writes it while another reads it
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        url = f"http://127.0.0.1:{self._port}"
        place = {
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{url}/execution/",
            "AIRFLOW__API__PORT": str(self._port),
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__BASE_URL": url,
            "AIRFLOW__API__SECRET_KEY": secrets.token_hex(64),
            "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(64),
            "AIRFLOW__CORE__FERNET_KEY": base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
        }
        self._environment = {**_configuration(folder, home), **place, **extra}
        self._program, self._url, self._token = folder / "bin" / "airflow", url, ""
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, service: str) -> None:
        """Start one of the services, in a session of its own."""
        with (self._home / f"{service}.log").open("ab") as log:
            self._processes[service] = subprocess.Popen(
                [self._program, service],
                env=self._environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    def kill(self, service: str) -> None:
        """Kill a service and all that it started, at once."""
        process = self._processes.pop(service)
        for each in family(process.pid):
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        process.wait()

    @contextmanager
    def _waiting(self, service: str) -> Iterator[None]:
        """A service does nothing as long as the block lasts."""
        os.kill(self._processes[service].pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self._processes[service].pid, signal.SIGCONT)

    def stop(self) -> None:
        """End every service and all that they started."""
        for service in list(self._processes):
            self.kill(service)

    def ask(self, method: str, path: str, body: Json | None = None) -> Json:
        """What the REST API answers. Raises RuntimeError with the answer if it refuses."""
        if not self._token:
            self._token = self._request("GET", "/auth/token", None)["access_token"]
        return self._request(method, f"/api/v2{path}", body)

    def _request(self, method: str, path: str, body: Json | None) -> Json:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self._url}{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as reply:
                answer: Json = json.loads(reply.read() or b"{}")
                return answer
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{method} {path}: {error.code} {error.read()!r}") from None

    def await_(self, what: str, look: Callable[[], _T | None], *, pause_s: float = LOOK_S) -> _T:
        """What `look` finds, as soon as it finds something; it looks every `pause_s`.

        Raises TimeoutError with the logs, and RuntimeError with them if a service has ended.
        """
        deadline = time.monotonic() + PATIENCE_S
        while (found := look()) is None:
            if ended := [name for name, each in self._processes.items() if each.poll() is not None]:
                raise RuntimeError(f"{what} cannot happen: {ended} ended\n{self.logs()}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what} did not happen\n{self.logs()}")
            time.sleep(pause_s)
        return found

    def logs(self) -> str:
        """The ends of the services' logs."""
        return "\n".join(
            f"== {path.name}\n{path.read_text(errors='replace')[-3000:]}"
            for path in sorted(self._home.glob("*.log"))
        )

    def ready(self, dags: int) -> None:
        """Wait until the API answers and knows so many DAGs."""

        def look() -> bool | None:
            with suppress(OSError):
                found = self.ask("GET", "/dags?limit=100")
                return True if found["total_entries"] == dags else None
            return None

        self.await_("the start of Airflow", look)

    # DAGs and their runs

    def unpause(self, dag: str) -> None:
        """Let a DAG run."""
        self.ask("PATCH", f"/dags/{dag}", {"is_paused": False})

    def backfill(self, dag: str, start: str, end: str, behavior: str = "none") -> int:
        """Start a backfill of the intervals that begin in [start, end]; returns its id."""
        wanted = {
            "dag_id": dag, "from_date": start, "to_date": end,
            "reprocess_behavior": behavior, "max_active_runs": 3, "run_on_latest_version": True,
        }  # fmt: skip

        def look() -> int | None:
            try:
                with self._waiting("scheduler"):
                    return int(self.ask("POST", "/backfills", wanted)["id"])
            except RuntimeError as error:
                if not any(told in str(error) for told in BUSY):
                    raise
                return None

        return self.await_("a backfill", look)

    def clear(self, dag: str, run: str) -> None:
        """Clear a run, as a person does in the user interface."""
        wanted: Json = {
            "dry_run": False,
            "dag_run_id": run,
            "only_failed": False,
            "reset_dag_runs": True,
        }
        self.ask("POST", f"/dags/{dag}/clearTaskInstances", wanted)

    def runs(self, dag: str) -> list[Json]:
        """The runs of a DAG, oldest interval first."""
        found: list[Json] = self.ask("GET", f"/dags/{dag}/dagRuns?limit=100&order_by=run_after")[
            "dag_runs"
        ]
        return found

    def tasks(self, dag: str, run: str) -> dict[str, Json]:
        """The tasks of a run, by their names."""
        found = self.ask("GET", f"/dags/{dag}/dagRuns/{quote(run)}/taskInstances")
        return {each["task_id"]: each for each in found["task_instances"]}

    def log(self, dag: str, run: str, task: str, attempt: int = 1) -> str:
        """The log of a task's try as Airflow's page shows it: what is said, and its fields."""
        path = f"/dags/{dag}/dagRuns/{quote(run)}/taskInstances/{task}/logs/{attempt}"
        lines = self.ask("GET", f"{path}?full_content=true")["content"]
        return "\n".join(" ".join(map(str, line.values())) for line in lines)

    def database(self, query: str) -> list[tuple[Any, ...]]:
        """Rows of Airflow's database."""
        with sqlite3.connect(f"file:{self._home / 'airflow.db'}?mode=ro", uri=True) as database:
            return database.execute(query).fetchall()


@contextmanager
def airflow(home: Path, extra: Mapping[str, str], *, dags: int = 4) -> Iterator[Airflow]:
    """An Airflow with the DAGs of the project, which `extra` configures; it always ends.

    It is there when it knows so many `dags`.
    """
    running = Airflow(home, extra)
    try:
        for service in SERVICES:
            running.start(service)
        running.ready(dags)
        yield running
    finally:
        running.stop()
