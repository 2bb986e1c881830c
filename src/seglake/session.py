"""Create the Spark session of Seglake's jobs, with Seglake's settings.

A machine needs only pip and a Java 17 or 21 runtime.
"""

import contextlib
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from seglake.errors import ConfigError, SeglakeError
from seglake.extras import extra

with extra("spark", "a Spark session"):
    import pyspark
    from py4j.protocol import Py4JError, Py4JJavaError
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

SPARKS = ("3.5", "4.0", "4.1", "4.2")
JAVA_VERSIONS = (17, 21)
_SPARK = ".".join(pyspark.__version__.split(".")[:2])
_REGISTERS_S = 5.0  # a registration that takes longer is logged
_MASTER = re.compile(  # from SparkContext.createTaskScheduler and SparkSubmit
    r"local(\[(\d+|\*)\s*(,\s*\d+)?\])?|local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]"
    r"|spark://[^,:/]+.*:\d+(,.+:\d+)*|yarn|k8s://.+"
)
_OF_YARN = "HADOOP_CONF_DIR", "YARN_CONF_DIR"  # SparkSubmitArguments requires one of them
_WITH_OWN = "SPARK_HOME", "SPARK_CONF_DIR"  # a spark-env.sh there may set one of them

# conf/spark-defaults.conf has the same settings for spark-submit, and a test compares both.
SETTINGS = {
    "spark.python.unix.domain.socket.enabled": "true",  # no delayed TCP acks
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.adaptive.enabled": "false",  # Spark must not merge tasks
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "8",  # for queries on the catalog, which is small
    "spark.ui.showConsoleProgress": "false",
}
_OF_ONE_MACHINE = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.python.daemon.module": "seglake.worker_daemon",  # workers print to our terminal
}
_log = logging.getLogger(__name__)


def spark_session(
    app_name: str, *, master: str | None = None, conf: Mapping[str, str] | None = None
) -> SparkSession:
    """Return the running session, or a new one with Seglake's settings.

    A running session is returned unchanged. For a new session, settings of spark-submit (`--conf`,
    `--master`, a properties file) take precedence over `conf`, and `conf` over `SETTINGS`. Without
    any master, the session is `local[*]`.

    Raises:
        ConfigError: Spark has another version, or Java is unusable.
        SeglakeError: The master does not answer, or Spark does not start. A retry may help.
    """
    require_version(pyspark.__version__)
    running = SparkSession.getActiveSession()
    if running is None:
        running = _start_session({"spark.app.name": app_name, **_settings(master, conf or {})})
    require_version(running.version)  # SPARK_HOME may name another Spark for the JVM
    return running


def require_version(version: str) -> None:
    """Raise ConfigError unless Seglake supports this Spark, and pyspark has the same version."""
    minor, own = (".".join(each.split(".")[:2]) for each in (version, pyspark.__version__))
    if minor not in SPARKS or minor != own:
        raise ConfigError(
            f"Seglake works with Spark {', '.join(SPARKS)}, but this is Spark {version} with "
            f"pyspark {pyspark.__version__}. Use pyspark {SPARKS[-1]} or an older one of these, "
            f"and unset SPARK_HOME or set it to the same Spark"
        )


def find_java() -> Path:
    """Return the Java launcher that Spark will use: `$JAVA_HOME/bin/java`, or `java` on the path.

    Raises:
        ConfigError: There is no launcher, or Spark does not run on it. Spark starts its JVM with
            the module jdk.incubator.vector, which is missing in some reduced runtimes.
    """
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home, "bin")) if home else None)
    where = f"JAVA_HOME={home}" if home else "PATH"
    problem = f"there is no java in {where}" if java is None else _unusable(java)
    if java is None or problem:
        raise ConfigError(
            f"Spark {_SPARK} needs Java 17 or 21, but {problem}."
            " Install OpenJDK 17 or 21 and set JAVA_HOME to it"
        )
    return Path(java)


def _unusable(java: str) -> str:
    """Return a description of the problem of this launcher, or "" if Spark runs on it."""
    command = [java, "--list-modules"]
    # S603: the command is a Java launcher with our own argument, without a shell.
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    modules = done.stdout
    version = re.search(r"^java\.base@(\d+)", modules, re.MULTILINE)
    if version is None:
        return f"{java} is older than Java 9 or does not start"
    if int(version[1]) not in JAVA_VERSIONS:
        return f"{java} is Java {version[1]}"
    if "jdk.incubator.vector@" not in modules:
        return f"{java} is a reduced runtime without the module jdk.incubator.vector"
    return ""


def _settings(master: str | None, conf: Mapping[str, str]) -> dict[str, str]:
    log4j = Path(__file__).resolve().with_name("log4j2.properties").as_uri()
    settings = {"spark.master": master or "local[*]", **SETTINGS}
    settings["spark.driver.extraJavaOptions"] = f"-Dlog4j2.configurationFile={log4j}"
    if settings["spark.master"].startswith("local"):
        settings |= _OF_ONE_MACHINE
    return settings | dict(conf)


def _start_session(settings: dict[str, str]) -> SparkSession:
    """Start a new session. Raise SeglakeError with Spark's message if it does not start."""
    master = settings["spark.master"]
    try:
        conf = _launch(settings)
        master = conf.get("spark.master", master)
        with _warning_if_slow(master):
            return SparkSession.builder.config(conf=conf).getOrCreate()
    except (Py4JError, PySparkException) as error:
        left = SparkContext._active_spark_context  # noqa: SLF001  # getOrCreate would make one
        if left is not None:  # stop it, or the next call would get this context
            with contextlib.suppress(Exception):
                left.stop()
        raise SeglakeError(
            f"Spark does not start on master {master}: {_first_line(error)}. Check the master "
            f"and the settings of Spark, or give another --master of Spark {_SPARK}. --local "
            f"needs no Spark"
        ) from error


def _first_line(error: Exception) -> str:
    """Return the first line of a message of Java or Spark, without the names of classes."""
    cause = str(error.java_exception) if isinstance(error, Py4JJavaError) else str(error)
    if "stopped SparkContext" in cause:  # a standalone master, after three tries of 20 s
        return "the master did not accept the application"
    return re.sub(r"^(?:[\w.$]+(?:Exception|Error): )+", "", cause.partition("\n")[0]).rstrip(".")


@contextmanager
def _warning_if_slow(master: str) -> Iterator[None]:
    """Log a warning if the block takes long, because Spark logs nothing for a minute."""
    said = (
        "waiting until Spark's master %s accepts the application; Spark stops waiting after a "
        "minute"
    )
    timer = threading.Timer(_REGISTERS_S, _log.warning, (said, master))
    timer.daemon = True
    if master.startswith("spark://"):
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


def require_known(master: str) -> None:
    """Raise ConfigError if this is not a valid master, or is YARN without its settings.

    Otherwise, Spark would print a stack trace. Submitted programs do not call this function,
    because a vendor's Spark may have its own masters.
    """
    if not _MASTER.fullmatch(master):
        raise ConfigError(
            f"{master!r} is not a Spark master. Give local[*], local[N], spark://HOST:PORT, yarn "
            "or k8s://HOST:PORT; --local needs no Spark"
        )
    if master == "yarn" and not any(map(os.environ.get, _OF_YARN + _WITH_OWN)):
        raise ConfigError(
            f"master yarn needs the settings of the cluster. Set {' or '.join(_OF_YARN)} to the "
            f"folder with its yarn-site.xml; --local needs no Spark"
        )


def _launch(settings: dict[str, str]) -> SparkConf:
    """Start a JVM, or use the JVM of spark-submit. Return its settings, completed by `settings`."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # otherwise, spark-submit started the JVM
        require_known(settings["spark.master"])
        find_java()
        _choose_python(settings["spark.master"])  # before the JVM, which starts Python workers
    launch = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    # SparkConf has the settings of the user only once the JVM runs, and no public call starts
    # the JVM without a context.
    with _no_interrupt():
        SparkContext._ensure_initialized(conf=launch)  # noqa: SLF001
    conf = SparkConf()
    master = conf.get("spark.master") or settings["spark.master"]  # spark-submit may give another
    _choose_python(master)
    for key, value in settings.items():
        if master.startswith("local") or key not in _OF_ONE_MACHINE:
            conf.setIfMissing(key, value)
    return conf


@contextmanager
def _no_interrupt() -> Iterator[None]:
    """Delay Ctrl-C until the end of the block.

    If Python ends before the JVM has connected to it, the JVM never ends.
    """
    if threading.current_thread() is not threading.main_thread():  # only that one gets signals
        yield
        return
    came: list[int] = []

    def later(number: int, _frame: object) -> None:
        if not came:
            os.write(2, b"seglake: stops as soon as Java has started\n")  # safe in any handler
        came.append(number)

    before = signal.signal(signal.SIGINT, later)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if came:
            signal.raise_signal(signal.SIGINT)


def _choose_python(master: str) -> None:
    """Make workers on this machine use this Python instead of the first python3 in PATH."""
    if master.startswith("local"):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
