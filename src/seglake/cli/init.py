"""`seglake init`: a pipeline file for files that nobody has described yet."""

# ruff: noqa: PLC0415  # a command imports its modules when it runs

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from json import dumps
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from seglake.cli.arguments.options import Json
from seglake.cli.check import places_of
from seglake.cli.terminal.output import complete
from seglake.cli.terminal.progress import step_display
from seglake.errors import InputError, UsageError
from seglake.shown import counted, folded

if TYPE_CHECKING:
    from seglake.config import Pipeline
    from seglake.infer.pipeline import InferredPipeline
    from seglake.write.check import Checked

_SAMPLE = 200  # rows that the pipeline is tried with


def init(
    paths: Annotated[list[str], typer.Argument(help="Files, folders and globs; local or s3://….")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The file; default TOPIC.toml here.")
    ] = None,
    root: Annotated[str, typer.Option(help="The lake: a folder or URI.")] = "./lake",
    topic: Annotated[str | None, typer.Option(help="The topic; default as the files.")] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Write over a file that is there.")
    ] = False,
    json: Json = False,
) -> None:
    """Write a pipeline file for files that have no description, with a reason for each choice."""
    with step_display("looking at the files"):
        from seglake.config import from_tables
        from seglake.infer.pipeline import infer_pipeline
        from seglake.write.check import check

        made = infer_pipeline(paths, root=root, topic=topic, output=output or Path("pipeline.toml"))
        file = output or Path(f"{made.topic}.toml")
        if file.exists() and not force:
            raise UsageError(f"{file} is there already: give another -o FILE, or --force")
        tables = tomllib.loads(made.toml)
        tables["pipeline"].setdefault("name", file.stem)  # as if it were read from there
        pipeline = from_tables(tables)
        with complete(file) as temporary:
            temporary.write_text(made.toml, "utf-8")
        try:
            checked = check(pipeline, _SAMPLE)
        except InputError as error:
            raise InputError(
                f"{error}. {file} is written: what it reads can be corrected there, and a file be "
                "left out with input.exclude"
            ) from error
    if json:
        tried = {"sampled": len(checked.rows), "reasons": checked.reasons}
        tried["checked"] = [each.as_dict() for each in checked.findings]
        print(dumps({"file": str(file), **made.as_dict(), **tried}, ensure_ascii=False))
    else:
        _show(file, made, checked, pipeline)


def _rejects(checked: Checked) -> Iterator[str]:
    """How many of the rows tried are rejected for each reason, and where the first one is."""
    place_of = places_of(checked)
    for reason, count in checked.reasons.items():
        first = next(row for row in checked.rows if row.reason == reason)
        tried = counted(len(checked.rows), "row")
        yield f"{reason}: {count:,} of {tried} tried, first {place_of(first)}"


def _fails(rejected: int, rows: int, pipeline: Pipeline) -> str:
    """What an ingest would say of so many rejects."""
    if rejected == rows:
        return "No row tried would be a record"
    ratio = pipeline.max_quarantine_ratio
    return (
        f"Of {counted(rows, 'row')} tried, {rejected:,} would be rejected, and "
        f"pipeline.max_quarantine_ratio allows {ratio:.0%}"
    )


def _show(file: Path, made: InferredPipeline, checked: Checked, pipeline: Pipeline) -> None:
    rejected = sum(checked.reasons.values())
    records = counted(len(checked.rows) - rejected, "record")
    tried = f"{counted(len(checked.rows), 'row')} tried: {records}, {counted(rejected, 'reject')}."
    print(folded(f"{file} is written. {tried}"))
    for setting, choice in made.choices.items():
        reason = f": {choice.reason}" if choice.reason else ""
        print(folded(f"  {setting} = {dumps(choice.value, ensure_ascii=False)}{reason}"))
    warnings = map(str, made.findings)
    for warning in dict.fromkeys((*warnings, *map(str, checked.findings), *_rejects(checked))):
        print(folded(f"  not certain: {warning}"))
    option = f"--conf-file {quote(str(file))}"
    if not pipeline.allows_rejects(rejected, len(checked.rows)):
        fails = _fails(rejected, len(checked.rows), pipeline)
        print(folded(f"{fails}: an ingest commits nothing if the other rows are like these"))
        print(f"Next: correct {file}, then seglake check {option}")
        return
    print(f"Next: seglake check {option}, then seglake ingest {option} --local")
