"""Define the commands `init`, `check`, `append`, `ingest` and `redrive`."""

# ruff: noqa: PLC0415, PLR0913, PLR0917  # imports when a command runs; options are arguments

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from functools import partial
from itertools import starmap
from json import dumps
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seglake.cli.arguments.options import Conf, DryRun, Json, Local, Master, RunId, Source, Topic
from seglake.cli.terminal.output import complete
from seglake.cli.terminal.progress import display, steps
from seglake.errors import InputError, UsageError
from seglake.terminal.tables import Column, Listing, number, prose, show, show_report
from seglake.terminal.wording import counted, path_ends, printable, terminal_width, wrap
from seglake.times.instants import format_ms

if TYPE_CHECKING:
    from seglake.config import Pipeline
    from seglake.infer.pipeline import InferredPipeline
    from seglake.write.check import CheckResult, SampledRow
    from seglake.write.driver.report import Report


def ingest(
    context: typer.Context,
    conf_file: Conf,
    run_id: RunId = None,
    source: Source = None,
    root: str | None = None,
    interval_start: str | None = None,
    interval_end: str | None = None,
    replace: bool = False,
    replace_interval: bool = False,
    replace_with_nothing: bool = False,
    on_changed_source: str | None = None,
    master: Master = None,
    local: Local = False,
    json: Json = False,
) -> None:
    """Ingest the input of a pipeline file, with Spark or (--local) with threads.

    Args:
        root: The lake, instead of pipeline.root.
        interval_start: Start of the time interval that the input covers.
        interval_end: End of the interval, exclusive.
        replace: Replace the records of an earlier run with this run id.
        replace_interval: Also replace the pipeline's runs in the interval.
        replace_with_nothing: Replace even if the new input has no records.
        on_changed_source: For changed files: fail (exit code 6), skip or ingest-as-new.

    Examples:
        seglake ingest --conf-file web.toml --local
        seglake ingest --conf-file web.toml --run-id 2026-11-20T10 --source h10/
    """
    from seglake.config import load
    from seglake.maintain.undo import replace as replace_run
    from seglake.reporting.run import report_run
    from seglake.write.api import run_pipeline

    work: Callable[..., Report] = run_pipeline
    if replace or replace_interval:
        if run_id is None:
            raise UsageError("--replace needs the --run-id of the run to replace")
        work = partial(
            replace_run, whole_interval=replace_interval, with_nothing=replace_with_nothing
        )
    elif replace_with_nothing:
        raise UsageError("--replace-with-nothing needs --replace or --replace-interval")
    changes = {
        "pipeline.root": root, "pipeline.on_changed_source": on_changed_source,
        "input.paths": source or None,
    }  # fmt: skip
    settings = {name: value for name, value in changes.items() if value is not None}
    pipeline, interval = load(conf_file, settings), (interval_start, interval_end)
    with steps(context.obj, local=local) as progress, report_run(pipeline, interval) as run:
        run.report = work(
            pipeline, run_id=run_id, interval=interval, progress=progress, master=master,
            local=local,
        )  # fmt: skip
    print_report(run.report, pipeline.root, as_json=json)
    raise typer.Exit(run.report.exit_code)


def print_report(report: Report, root: str, *, as_json: bool, title: str = "ingest") -> None:
    """Print the report of a run. As text, it has the root of the lake, and no empty values."""
    from seglake.store import open_store

    if as_json:
        print(report.as_json())
        return
    made = report.status == "committed" and report.version == 1  # version 0 is empty
    fields = {"lake": f"{open_store(root).uri}{', a new lake' * made}", **report.as_dict()}
    print(fields.pop("summary"))
    show_report(title, fields)


def redrive(
    context: typer.Context,
    run_id: Annotated[str, typer.Option()],
    conf_file: Annotated[Path, typer.Option()],
    root: Annotated[str | None, typer.Argument()] = None,
    topic: Annotated[str | None, typer.Argument()] = None,
    dry_run: DryRun = False,
    master: Master = None,
    local: Local = False,
    json: Json = False,
) -> None:
    """Ingest rows that a run rejected, with corrected settings, on Spark or (--local) in threads.

    Args:
        run_id: The run whose rejects to ingest.
        conf_file: A TOML file with corrected settings.
        root: The lake. Default: pipeline.root.
        topic: The topic. It must equal topic.name.

    Example:
        seglake redrive --run-id 2026-11-20T10 --conf-file corrected.toml --local
    """
    from seglake.config import load
    from seglake.write.api import redrive_run

    pipeline = load(conf_file, {} if root is None else {"pipeline.root": root})
    if topic not in {None, pipeline.topic.name}:
        raise UsageError(
            f"{conf_file} has topic.name = {pipeline.topic.name!r}, but the command names "
            f"{topic!r}. Correct one"
        )
    with steps(context.obj, local=local) as progress:
        report = redrive_run(
            pipeline, run_id, dry_run=dry_run, master=master, local=local, progress=progress
        )
    print_report(report, pipeline.root, as_json=json, title="redrive")
    raise typer.Exit(report.exit_code)


_RECORDS = [
    Column("time", "time"),
    number("partition", "partition"),
    Column("key", "key"),
    Column("headers", "headers"),
    Column("value", "value"),
]
_REJECTS = [prose("reason", "reason"), Column("value", "raw")]


def check(
    conf_file: Conf,
    sample: Annotated[int, typer.Option(min=1, max=10_000)] = 20,
    source: Source = None,
    json: Json = False,
) -> None:
    """Show which files a pipeline reads, and how a sample of rows is parsed. Nothing is written.

    Settings that the topic of the lake refuses are an error.
    Exit code 3 if a sampled row is rejected, or if times in January 1970 would make a run fail.

    Args:
        sample: Number of rows to show.

    Example:
        seglake check --conf-file web.toml --sample 5
    """
    with display("reading the settings") as shown:
        from seglake.config import load
        from seglake.write.check import TEXT_BYTES, check_topic_settings
        from seglake.write.check import check as checked_input

        pipeline = load(conf_file, {"input.paths": source} if source else {})
        shown.step("reading the files")
        remark = check_topic_settings(pipeline)
        whole = json or terminal_width() is None  # `grep` and `less -S` need whole lines
        checked = checked_input(pipeline, sample, None if whole else TEXT_BYTES)
    if json:
        rows = [{**dataclasses.asdict(row), "time": _time(row)} for row in checked.rows]
        print(dumps({**checked.as_dict(), "rows": rows, "remark": remark}, ensure_ascii=False))
    else:
        _show_check(checked, remark)
    raise typer.Exit(checked.exit_code)


def _show_check(checked: CheckResult, remark: str) -> None:
    for line in _files(checked):
        print(line)
    place = row_places(checked)
    places = Column("place", "file:line")
    records = [_shown(row, place(row)) for row in checked.rows if not row.reason]
    rejects = [_shown(row, place(row)) for row in checked.rows if row.reason]
    rows = counted(len(checked.rows), "row")
    if records:
        show(f"{counted(len(records), 'record')} in {rows}", Listing([places, *_RECORDS], records))
    if rejects:
        show(f"{counted(len(rejects), 'reject')} in {rows}", Listing([places, *_REJECTS], rejects))
    if not checked.rows and (checked.size_bytes or not checked.files):
        print("The sample has no rows.")
    elif not checked.rows:
        one = checked.files == 1
        print("The file is empty." if one else f"All {checked.files:,} files are empty.")
    for finding in (*map(str, checked.findings), remark):
        if finding:
            print(wrap(finding))


def _files(checked: CheckResult) -> Iterator[str]:
    counts = (checked.files, "file"), (checked.size_bytes, "byte"), (checked.splits, "split")
    yield ", ".join(starmap(counted, counts))
    for path, size, packing in checked.first_files:
        rest = f"  {size:,} bytes  {packing}".rstrip()
        yield f"  {printable(path)}{rest}"
    if checked.files > len(checked.first_files):
        yield f"  … and {checked.files - len(checked.first_files):,} more"
    for reason in dict.fromkeys(checked.left_out.values()):
        paths = [path for path, why in checked.left_out.items() if why == reason]
        yield f"{counted(len(paths), 'file')} left out by {reason}:"
        yield from (f"  {printable(path)}" for path in paths[:5])


def row_places(checked: CheckResult) -> Callable[[SampledRow], str]:
    """Return a function that returns the file and line of a sampled row, as in "a.jsonl:31".

    If several input files have the same name, the text has their folders, too. For a row in an
    archive, it has the name of the archive and the whole name of the member: "a.tar!x/a.jsonl:31".
    """
    files = {*checked.paths}
    end = path_ends([*checked.paths, *(row.path for row in checked.rows)])

    def name(path: str) -> str:
        marks = (at for at, letter in enumerate(path) if letter == "!" and path not in files)
        archive = next((path[:at] for at in marks if path[:at] in files), "")
        return f"{end(archive)}{path[len(archive) :]}" if archive else end(path)

    def place(row: SampledRow) -> str:
        after = f" after byte {row.start}" if row.start else ""
        return f"{name(row.path)}{after}:{row.line}"

    return place


def _shown(row: SampledRow, place: str) -> dict[str, Any]:
    headers = [f"{name}={'-' if value is None else value}" for name, value in row.headers or []]
    value = row.value
    if value is not None and not value.strip():
        value = repr(value)  # quotes make blanks visible
    reason = row.reason if row.time_value is None else f"{row.reason}: {row.time_value!r}"
    cells = {"place": place, "time": _time(row), "headers": " ".join(headers) or None}
    return {**dataclasses.asdict(row), **cells, "value": value, "reason": reason}


def _time(row: SampledRow) -> str | None:
    """Return the row's time as ISO 8601 text in UTC, or None if the row has no timestamp."""
    return None if row.timestamp is None or row.timestamp < 0 else format_ms(row.timestamp)


_SAMPLE = 200  # number of rows with which `init` tries the pipeline


def init(
    paths: list[str],
    output: Annotated[Path | None, typer.Option("--output", "-o")] = None,
    root: str = "./lake",
    topic: str | None = None,
    force: bool = False,
    json: Json = False,
) -> None:
    """Infer a pipeline file from input files, with a reason for each choice.

    Args:
        paths: Files, folders and globs, local or s3://….
        output: The file to write. Default: TOPIC.toml in this folder.
        root: The lake: a folder or URI.
        topic: The topic. Default: a name made from the files' names.
        force: Overwrite an existing file.

    Examples:
        seglake init logs/*.jsonl
        seglake init s3://bucket/raw/ --topic web -o web.toml
    """
    with display("reading the files"):
        from seglake.infer.pipeline import infer_pipeline
        from seglake.write.check import check

        made = infer_pipeline(paths, root=root, topic=topic, output=output or Path("pipeline.toml"))
        file = output or Path(f"{made.topic}.toml")
        if file.exists() and not force:
            raise UsageError(
                f"{file} already exists. Use another -o FILE, or --force to overwrite it"
            )
        pipeline = made.pipeline(file.stem)
        with complete(file) as temporary:
            temporary.write_text(made.toml, "utf-8")
        try:
            checked = check(pipeline, _SAMPLE)
        except InputError as error:
            raise InputError(
                f"{error}. {file} was written. Correct its input.paths, or leave files out with "
                f"input.exclude"
            ) from error
    if json:
        tried = {"sampled": len(checked.rows), "reasons": checked.reasons}
        tried["checked"] = [each.as_dict() for each in checked.findings]
        print(dumps({"file": str(file), **made.as_dict(), **tried}, ensure_ascii=False))
    else:
        _show_init(file, made, checked, pipeline)


def _rejects(checked: CheckResult) -> Iterator[str]:
    """Yield, for each reason, the count of rejected rows and the position of the first."""
    place_of = row_places(checked)
    for reason, count in checked.reasons.items():
        first = next(row for row in checked.rows if row.reason == reason)
        tried = counted(len(checked.rows), "row")
        yield f"{count:,} of {tried} would be rejected ({reason}), the first at {place_of(first)}"


def _show_init(
    file: Path, made: InferredPipeline, checked: CheckResult, pipeline: Pipeline
) -> None:
    rows, rejected = len(checked.rows), sum(checked.reasons.values())
    tried = counted(rows, "row")
    results = f"{counted(rows - rejected, 'record')}, {counted(rejected, 'reject')}"
    print(wrap(f"Wrote {file}. Tried {tried}: {results}."))
    for setting, choice in made.choices.items():
        reason = f": {choice.reason}" if choice.reason else ""
        print(wrap(f"  {setting} = {dumps(choice.value, ensure_ascii=False)}{reason}"))
    warnings = map(str, made.findings)
    for warning in dict.fromkeys((*warnings, *map(str, checked.findings), *_rejects(checked))):
        print(wrap(f"  note: {warning}"))
    option = f"--conf-file {quote(str(file))}"
    if pipeline.allows_rejects(rejected, rows):
        print(f"Next: seglake check {option}, then seglake ingest {option} --local")
        return
    limit = f"pipeline.max_quarantine_ratio allows only {pipeline.max_quarantine_ratio:.0%}"
    fails = f"Of {tried} tried, {rejected:,} would be rejected, but {limit}"
    if rejected == rows:
        fails = "None of the rows tried would become a record"
    print(wrap(f"{fails}. An ingest would commit nothing if the other rows are like these"))
    print(f"Next: correct {file}, then seglake check {option}")


def append(
    context: typer.Context,
    root: Annotated[str, typer.Argument(metavar="LAKE")],
    topic: Topic,
    files: list[str],
    time: list[str] | None = None,
    key: list[str] | None = None,
    zone: str | None = None,
    run_id: RunId = None,
    json: Json = False,
) -> None:
    """Append files to a topic on this machine, without a pipeline file, Java or Spark.

    Other settings are inferred from a sample, as in `seglake init`. Files that the topic already
    has are skipped. With --json, `pipeline` is the text of a pipeline file.

    Args:
        root: The lake: a folder or URI.
        files: Files, folders and globs; local or s3://….
        time: Field with the event time. Use it twice for a date field and a time-of-day field.
        key: Field of the key. Repeatable. "" for no key.
        zone: Time zone of times without a zone, such as UTC.

    Example:
        seglake append ./lake web logs/*.jsonl --time ts --key user
    """
    with steps(context.obj, local=True) as progress:
        from seglake.infer.append import append as append_files

        report = append_files(
            files, root, topic, time=time, key=key and [*filter(None, key)], zone=zone,
            run_id=run_id, progress=progress,
        )  # fmt: skip
    if not json:
        report = dataclasses.replace(report, pipeline=topic)
    print_report(report, root, as_json=json, title="append")
    raise typer.Exit(report.exit_code)
