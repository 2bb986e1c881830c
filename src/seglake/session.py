"""Create the Spark session of Seglake's jobs, with Delta's jars and Seglake's settings.

A machine needs only pip and a Java 17 or 21 runtime, because the Ivy that is part of pyspark
fetches Delta's jars once. `python -m seglake.session jars` fetches them ahead of time and prints
their paths, joined by commas, for `spark-submit --jars`. `python -m seglake.session java` checks
the runtime.

Ingest commits without Spark and needs no Delta jars. Spark SQL on the catalog needs them.
"""

import contextlib
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
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
DELTA_ARTIFACT, DELTA_VERSION = f"delta-spark_{_SPARK}_2.13", "4.4.0"  # there is one for each Spark
_REGISTERS_S = 5.0  # a registration that takes longer is logged
_MASTER = re.compile(  # from SparkContext.createTaskScheduler and SparkSubmit
    r"local(\[(\d+|\*)\s*(,\s*\d+)?\])?|local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]"
    r"|spark://[^,:/]+.*:\d+(,.+:\d+)*|yarn|k8s://.+"
)
_OF_YARN = "HADOOP_CONF_DIR", "YARN_CONF_DIR"  # SparkSubmitArguments requires one of them
_WITH_OWN = "SPARK_HOME", "SPARK_CONF_DIR"  # a spark-env.sh there may set one of them
_DELTA_JAR = re.compile(r"\b(delta-spark_[\w.]+-\d[\w.]*)\.jar")

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
DELTA_SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "2",  # the default, 50, is for large tables
}

_log = logging.getLogger(__name__)

# Excluded are libraries that Spark has in newer versions, and an unused catalogue client.
_DELTA_MODULE = f"""<ivy-module version="2.0">
  <info organisation="seglake" module="delta"/>
  <dependencies>
    <dependency org="io.delta" name="{DELTA_ARTIFACT}" rev="{DELTA_VERSION}"
                conf="default->default"/>
    <exclude org="com.fasterxml.jackson.core"/>
    <exclude org="com.github.luben"/>
    <exclude org="io.unitycatalog" module="unitycatalog-hadoop"/>
    <exclude org="org.apache.hadoop"/>
    <exclude org="org.apache.logging.log4j"/>
    <exclude org="org.apache.parquet"/>
    <exclude org="org.scala-lang"/>
    <exclude org="org.slf4j"/>
    <exclude org="org.xerial.snappy"/>
  </dependencies>
</ivy-module>
"""


def spark_session(
    app_name: str,
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    delta: bool = True,
) -> SparkSession:
    """Return the running session, or a new one with Seglake's settings.

    A running session is returned unchanged. For a new session, settings of spark-submit (`--conf`,
    `--master`, a properties file) take precedence over `conf`, and `conf` over `SETTINGS`. Without
    any master, the session is `local[*]`. `delta` adds Delta's SQL extension, catalog and jars.

    Raises:
        ConfigError: Spark has another version, or is older than 4.0 for `delta`; Java is unusable;
            or, for `delta`, the running session or JVM has no Delta, or another version.
        SeglakeError: The master does not answer, or Spark does not start. A retry may help.
    """
    require_version(pyspark.__version__)
    if delta and int(pyspark.__version__.partition(".")[0]) < 4:
        raise ConfigError(
            f"Delta's tables in Spark needs Spark 4.0 or newer, and this is {pyspark.__version__}."
            f" Use pyspark {SPARKS[-1]}. Spark 3.5 can only ingest files, run maintenance, and read"
            " in tasks"
        )
    running = SparkSession.getActiveSession()
    if running is None:
        settings = _settings(master, conf or {}, delta=delta)
        running = _start_session({"spark.app.name": app_name, **settings})
    require_version(running.version)  # SPARK_HOME may name another Spark for the JVM
    if delta:
        _require_delta(running)
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


def delta_jars() -> list[Path]:
    """Return the paths of Delta's jars. The first call fetches the jars.

    The jars are in `$SEGLAKE_JARS`, or else in a folder in `$XDG_CACHE_HOME/seglake/jars` (by
    default in `~/.cache`). A machine without network needs a copy of that folder.

    Raises:
        ConfigError: There is no usable Java.
        SeglakeError: The jars could not be fetched. The message has Ivy's output.
    """
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    own = f"{cache}/seglake/jars/{DELTA_ARTIFACT}-{DELTA_VERSION}"
    folder = Path(os.environ.get("SEGLAKE_JARS") or own).expanduser()
    if not list(folder.glob(f"{DELTA_ARTIFACT}-*.jar")):
        fetch_jars(_DELTA_MODULE, folder)
    return sorted(folder.glob("*.jar"))


def fetch_jars(ivy_module: str, folder: Path) -> None:
    """Fetch all dependencies of an Ivy module file into `folder`, or none of them.

    `folder` must be absent or empty. If two processes fetch at the same time, the process that is
    ready first makes the folder.
    """
    java = find_java()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".fetching-") as scratch:
        _run_ivy(java, ivy_module, Path(scratch))
        try:
            (Path(scratch) / "jars").rename(folder)
        except OSError:
            if not list(folder.glob("*.jar")):  # otherwise, another process was faster
                raise


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
    modules = _run([java, "--list-modules"]).stdout
    version = re.search(r"^java\.base@(\d+)", modules, re.MULTILINE)
    if version is None:
        return f"{java} is older than Java 9 or does not start"
    if int(version[1]) not in JAVA_VERSIONS:
        return f"{java} is Java {version[1]}"
    if "jdk.incubator.vector@" not in modules:
        return f"{java} is a reduced runtime without the module jdk.incubator.vector"
    return ""


def _run_ivy(java: Path, ivy_module: str, scratch: Path) -> None:
    (scratch / "ivy.xml").write_text(ivy_module)
    shipped = Path(pyspark.__file__).parent / "jars" / "*"
    command = [str(java), "-cp", str(shipped), "org.apache.ivy.Main", "-warn"]
    command += ["-ivy", str(scratch / "ivy.xml"), "-cache", str(scratch / "cache")]
    command += ["-types", "jar", "bundle"]
    command += ["-retrieve", f"{scratch}/jars/[artifact]-[revision].[ext]"]
    done = _run(command)
    if done.returncode or not (scratch / "jars").is_dir():
        raise SeglakeError(
            "cannot download jars. Run this with a network, or set SEGLAKE_JARS to a copy of the "
            f"folder of another machine. Output of Ivy:\n{done.stdout}{done.stderr}"
        )


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    # S603: the command is a Java launcher with our own arguments, without a shell.
    return subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603


def _settings(master: str | None, conf: Mapping[str, str], *, delta: bool) -> dict[str, str]:
    log4j = Path(__file__).resolve().with_name("log4j2.properties").as_uri()
    settings = {"spark.master": master or "local[*]", **SETTINGS}
    settings["spark.driver.extraJavaOptions"] = f"-Dlog4j2.configurationFile={log4j}"
    if settings["spark.master"].startswith("local"):
        settings |= _OF_ONE_MACHINE
    if delta and not _is_submitted():
        settings["spark.jars"] = ",".join(map(str, delta_jars()))
    return settings | (DELTA_SETTINGS if delta else {}) | dict(conf)


def _is_submitted() -> bool:
    """Return whether spark-submit started this program, so that its JVM has the user's settings."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


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
    if not _is_submitted():
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


def _require_delta(session: SparkSession) -> None:
    extensions = session.conf.get("spark.sql.extensions", "") or ""
    if DELTA_SETTINGS["spark.sql.extensions"] not in extensions:
        raise ConfigError(
            "the Spark session that already runs has no Delta extension (spark.sql.extensions). "
            "Stop it first, or start it with Delta's extension, catalog and jars"
        )
    jars = session.conf.get("spark.jars", "") or ""
    own = f"{DELTA_ARTIFACT}-{DELTA_VERSION}"
    if other := set(_DELTA_JAR.findall(jars)) - {own, f"delta-spark_2.13-{DELTA_VERSION}"}:
        raise ConfigError(
            f"this Spark session has the jar {', '.join(sorted(other))}, not {own}. Give"
            ' spark-submit --jars "$(python -m seglake.session jars)"'
        )
    try:
        session.catalog.currentCatalog()  # the first call that loads Delta's catalog class
    except Py4JJavaError as error:
        raise ConfigError(
            "this Spark session has no Delta jars. Give spark-submit"
            ' --jars "$(python -m seglake.session jars)"'
        ) from error


def main(arguments: list[str]) -> int:
    """Print the paths of Delta's jars (`jars`) or of Java (`java`). Return the exit code."""
    try:
        match arguments:
            case ["jars"]:
                print(",".join(map(str, delta_jars())))
            case ["java"]:
                print(find_java())
            case _:
                raise ConfigError("usage: python -m seglake.session jars|java")
    except SeglakeError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
