"""Times of the command line: a span up to now, and local times of a zone."""

import inspect
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import seglake
from seglake.cli.app import app
from seglake.cli.arguments.options import Version, parse_version
from seglake.cli.arguments.window import absolute, span_ms, window
from seglake.errors import UsageError
from seglake.maintain.tagging import tag
from seglake.times.instants import to_epoch_ms
from tests.makers.lakes import Event, LakeMaker, T

ZONES = ("Europe/Berlin", "America/New_York", "Asia/Kolkata", "UTC", "Australia/Lord_Howe")


@given(
    st.datetimes(datetime(1975, 1, 1), datetime(2040, 1, 1)).map(  # local times
        lambda each: each.replace(microsecond=each.microsecond // 1000 * 1000)
    ),
    st.sampled_from(ZONES),
)
def test_local_times_are_those_of_the_zone(local: datetime, zone: str) -> None:
    found = datetime.fromtimestamp(to_epoch_ms(absolute(local.isoformat(), zone) or "") / 1000, UTC)
    back = found.astimezone(ZoneInfo(zone)).replace(tzinfo=None)
    if back == local:  # the earlier of two
        assert found == local.replace(tzinfo=ZoneInfo(zone), fold=0).astimezone(UTC)
    else:  # skipped: the first time after the gap
        assert local < back <= local + timedelta(hours=2)


def test_a_local_time_that_clocks_skip_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert absolute("2026-03-29T02:30", "Europe/Berlin") == "2026-03-29T01:00:00.000Z"
    assert "2026-03-29T01:00:00.000Z is used" in capsys.readouterr().err
    for text in ("2026-03-29T03:00", "2026-03-29", "2026-03-29T02:30Z", "2026-03-29T01:59:59.5"):
        absolute(text, "Europe/Berlin")
    assert capsys.readouterr().err == ""


def test_a_local_time_that_is_twice_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert absolute("2026-10-25T02:30", "Europe/Berlin") == "2026-10-25T00:30:00.000Z"
    assert "2026-10-25T00:30:00.000Z is used" in (err := capsys.readouterr().err)
    assert "2026-10-25T01:30:00.000Z" in err
    absolute("2026-10-25T03:30", "Europe/Berlin")
    assert capsys.readouterr().err == ""


def test_a_date_is_its_midnight_and_other_texts_stay() -> None:
    assert absolute("2026-06-01", "Europe/Berlin") == "2026-05-31T22:00:00.000Z"
    assert absolute("latest", "Europe/Berlin") == "latest"
    for text in ("2026-06-01T12:00:00Z", "1780272000000", str(2**62)):
        assert to_epoch_ms(absolute(text, "Europe/Berlin") or "") == to_epoch_ms(text)
    assert absolute("2026-06-01T00:00Z", None) == "2026-06-01T00:00Z"
    for local in ("2026-06-01", "2026-06-01T12:00"):
        with pytest.raises(UsageError, match=f"{local} has no time zone. Give --zone, such as"):
            absolute(local, None)
    with pytest.raises(UsageError, match="1780272000 looks like seconds"):
        absolute("1780272000", None)
    for text in ("2026-06-01", "2026-06-01T00:00:00Z", "1780272000000"):
        with pytest.raises(UsageError, match="zone 'Berlin' is unknown"):
            absolute(text, "Berlin")
    with pytest.raises(UsageError, match="zone 'Berlin' is unknown"):
        window(None, None, "1h", "Berlin")
    for zone in ("Europe/Berlin", None):
        with pytest.raises(UsageError, match="'nonsense' is not a time"):
            absolute("nonsense", zone)


def test_a_local_time_is_rounded_up_as_any_other() -> None:
    for fraction in ("0001", "0010000001", "0011"):
        local, rounded = f"2026-06-01T12:00:00.{fraction}", to_epoch_ms("2026-06-01T10:00:00Z")
        rounded += 1 if fraction == "0001" else 2
        assert to_epoch_ms(local, "Europe/Berlin") == rounded == to_epoch_ms(f"{local}+02:00")


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("90s", 90_000),
        ("15m", 900_000),
        ("1h", 3_600_000),
        ("1 hour", 3_600_000),
        ("2d", 172_800_000),
    ],
)
def test_spans(text: str, ms: int) -> None:
    assert span_ms(text) == ms
    start, end = map(str, window(None, None, text, None))
    assert to_epoch_ms(end) - to_epoch_ms(start) == ms
    assert abs(to_epoch_ms(end) - time.time() * 1000) < 600_000


@pytest.mark.parametrize("text", ["", "1", "0h", "-1h", "1y", "1M", "3 M"])
def test_no_spans(text: str) -> None:
    with pytest.raises(UsageError, match=r"is not a time span. Write 90s"):
        span_ms(text)


def test_a_number_of_records_is_no_span() -> None:
    with pytest.raises(UsageError, match="`seglake read --tail 3` gives the last records"):
        span_ms("3")
    with pytest.raises(UsageError, match=r"or 1w$"):
        span_ms("3 y")


@pytest.mark.parametrize("asked", [[], ["--tail", "5"], ["--tail", "5", "--partition", "1"]])
def test_an_empty_log_says_that_no_record_is_there(tmp_path: Path, asked: list[str]) -> None:
    LakeMaker(tmp_path, partitions=2).run({0: []})
    done = CliRunner().invoke(app, ["read", str(tmp_path), "events", *asked])
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr == "events: no record was found: the topic has no records\n"


def test_old_data_say_of_when_the_newest_record_is(tmp_path: Path) -> None:
    LakeMaker(tmp_path).run({0: [Event(to_epoch_ms("2026-05-31T22:30:00Z"))]})
    newest = "events: no record was found: the newest record is from 2026-05-31T22:30:00.000Z\n"
    for asked in (["--last", "1h"], ["--end", "2026-05-31T00:00Z"]):
        for form in ("jsonl", "csv"):
            read = ["read", str(tmp_path), "events", *asked, "--format", form]
            none = CliRunner().invoke(app, read)
            assert (none.exit_code, none.stderr) == (0, newest)
    log = seglake.open(str(tmp_path)).topic("events")
    with pytest.raises(UsageError, match=r"a time for each partition, as in \{0: '2026-01-01'\}"):
        log.offsets_for_times("2026-01-01")  # type: ignore[arg-type]
    for wrong in (
        lambda: log.offsets_for_times({"0": "2026-01-01"}),  # type: ignore[dict-item]
        lambda: log.read(0, "0"),  # type: ignore[arg-type]
        lambda: log.read(0, 0, max_records=-1),
        lambda: log.lag({0: -4}),
    ):
        with pytest.raises(UsageError):
            wrong()


# `--version` of every command that reads: a number, or the name of a tag.


COMMANDS: dict[str, list[str]] = {
    "topics": ["--json"],
    "segments": ["events", "--json"],
    "offsets": ["events", "--time", "latest", "--json"],
    "read": ["events"],
    "find": ["events", "--key", "k"],
    "export": ["events", "--json"],
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake whose first version has a tag."""
    maker = LakeMaker(tmp_path_factory.mktemp("versions") / "lake")
    first = maker.run({0: [Event(T, b"k", b"{}")]})
    tag(str(maker.root), "q3", first)
    maker.run({0: [Event(T + 1, b"k", b"{}")] * 3})
    return maker.root


def told(command: str, root: Path, folder: Path, *version: str) -> str:
    """What a command prints; each export has a folder of its own."""
    dest = folder / f"to{'-'.join(version)}"
    there = [str(dest)] if command == "export" else []
    topic, *rest = COMMANDS[command]
    done = CliRunner().invoke(app, [command, str(root), topic, *there, *rest, *version])
    assert done.exit_code == 0, (done.output, done.exception)
    return done.stdout.replace(str(dest), "")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_tag_is_as_good_as_its_number(command: str, root: Path, tmp_path: Path) -> None:
    by_name = told(command, root, tmp_path, "--version", "q3")
    assert by_name == told(command, root, tmp_path, "--version", "1")
    assert by_name != told(command, root, tmp_path)


def test_every_command_takes_it_alike() -> None:
    """But for `tag`, which gives a name to a number. `replay` needs a broker."""
    commands = {(each.name or each.callback.__name__): each.callback  # type: ignore[union-attr]
                for each in app.registered_commands}  # fmt: skip
    declared = {
        name: inspect.signature(command, eval_str=True).parameters["version"].annotation
        for name, command in commands.items()
        if command is not None and "version" in inspect.signature(command).parameters
    }
    assert declared.keys() == COMMANDS.keys() | {"replay", "tag"}
    assert {name for name, annotation in declared.items() if annotation != Version} == {"tag"}


@pytest.mark.parametrize(("text", "version"), [("12", 12), ("q3", "q3"), ("²", "²"), ("-1", "-1")])
def test_what_is_a_number(text: str, version: int | str) -> None:
    assert parse_version(text) == version
