"""The rows that runs rejected: all of them, or a sample that has every reason."""

import sys
from base64 import b64decode
from collections import Counter, deque
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from seglake.catalog.failed_run import FailedRun
from seglake.catalog.quarantine.files import place_of
from seglake.catalog.quarantine.table import QuarantineTable
from seglake.catalog.schema import RunRow
from seglake.cli.terminal.tables import Listing, show, stream_json
from seglake.shown import Column, counted, number, path_ends, terminal_width
from seglake.store import Store
from seglake.text.json import text_or_base64

_LIMIT = 20  # rows of a table, unless another limit is given
_SHOWN = 200  # characters of a rejected row in a table
_COLUMNS = {"source_file": "file", "line": "line", "reason": "reason", "raw": "row"}
_IN_ARCHIVE = "member", "member_line"
_GROUP = ["reason", "attempt_id", "source_file"]

Group = tuple[str, str, str]  # reason, attempt, file


class Rejects(NamedTuple):
    """The rejects of some runs at a topic, given by their attempts; of a failed run a sample."""

    store: Store
    topic: str
    runs: Mapping[str, RunRow | FailedRun]
    expired: Collection[str]

    def table(self, sample: Counter[Group] | None) -> Listing:
        """A row for each reject, or for the first so many of each group."""
        look = {"line": number("line", "line"), "raw": Column("raw", "row", _cut)}
        columns = [look.get(name, Column(name, head)) for name, head in _COLUMNS.items()]
        return Listing([Column("run_id", "run", rank=1), *columns], self._rows(sample))

    def counts(self) -> Counter[Group]:
        """How many rejects `table` has of each group."""
        counts: Counter[Group] = Counter()
        for run in self._failed():
            counts.update(_group_of(run, row) for row in run.rejects)
        for table in self._tables():
            groups = table.group_by(_GROUP).aggregate([([], "count_all")])
            grouped: list[Any] = groups.to_pylist()
            counts.update({tuple(map(row.get, _GROUP)): row["count_all"] for row in grouped})
        return counts

    def unkept(self) -> int:
        """How many rejects failed runs had beside their samples."""
        counted = ((run.report.get("quarantined", 0), len(run.rejects)) for run in self._failed())
        return sum(max(rejected - sampled, 0) for rejected, sampled in counted)

    def show(self, limit: int | None, *, as_json: bool) -> None:
        """Print a sample, and say what it leaves out. As JSON all of them, unless limited."""
        if not self.runs:
            hint = "has no committed run with open rejects; give --run-id for those of a failed one"
            print(f"{self.topic}: {hint}", file=sys.stderr)
        if as_json and limit is None:
            stream_json(self.table(None).rows)
            said = left_out({}, 0, self.unkept())
        else:
            counts = self.counts()
            sample = spread(counts, _LIMIT if limit is None else limit)
            shown = sample.total()  # which its rows use up
            said = left_out(counts, shown, self.unkept())
            rows = self.table(sample)
            if not as_json:
                rows = _with_ends([*map(_of_member, rows.rows)], rows, counts)
            if as_json or shown or not counts:
                show(f"rejected rows of {self.topic}", rows, as_json=as_json)
        for sentence in said:
            print(sentence, file=sys.stderr if as_json else sys.stdout)

    def _rows(self, sample: Counter[Group] | None) -> Iterator[dict[str, Any]]:
        for run in self._failed():
            for row in run.rejects:
                if _takes(sample, _group_of(run, row)):
                    yield {**_key(run), "committed": False, **row}
        for table in self._tables():
            for batch in table.to_batches(max_chunksize=1000):
                if sample is not None and not sample:
                    return
                yield from map(self._shown, _chosen(batch, sample))

    def _shown(self, row: Mapping[str, Any]) -> dict[str, Any]:
        shown = {name: row[name] for name in (*_COLUMNS, *_IN_ARCHIVE)}
        raw = {"raw": text_or_base64(row["raw"] or b"")}
        return {**_key(self.runs[row["attempt_id"]]), "committed": True, **shown, **raw}

    def _failed(self) -> list[FailedRun]:
        return [run for run in self.runs.values() if isinstance(run, FailedRun)]

    def _tables(self) -> Iterator[pa.Table]:
        committed = {name for name, run in self.runs.items() if isinstance(run, RunRow)}
        return QuarantineTable(self.store).read(self.topic, committed - {*self.expired})


def spread(counts: Mapping[Group, int], limit: int) -> Counter[Group]:
    """How many rejects of each group a sample has: reasons take turns, and so do their files."""
    turns: dict[str, deque[Group]] = {}
    for group in counts:
        turns.setdefault(group[0], deque()).append(group)
    sample: Counter[Group] = Counter()
    reasons = deque(turns.values())
    while reasons and sample.total() < limit:
        groups = reasons.popleft()
        group = groups.popleft()
        sample[group] += 1
        if sample[group] < counts[group]:
            groups.append(group)
        if groups:
            reasons.append(groups)
    return sample


def left_out(counts: Mapping[Group, int], shown: int, unkept: int) -> list[str]:
    """Sentences that say which rejects a table does not have."""
    total = sum(counts.values())
    said = []
    if shown < total:
        of_reason: Counter[str] = Counter()
        for (reason, *_), count in counts.items():
            of_reason[reason] += count
        reasons = ", ".join(f"{reason}: {count:,}" for reason, count in of_reason.most_common())
        files = counted(len({group[2] for group in counts}), "file")
        said.append(
            f"{shown:,} of {total:,} rejected rows are shown ({reasons}; {files}): "
            f"--limit {total} shows all, --json without --limit too"
        )
    if unkept:
        said.append(f"{unkept:,} more were rejected by runs that failed, which keep a sample")
    return said


def _takes(sample: Counter[Group] | None, group: Group) -> bool:
    """Whether a row of a group is wanted; then one less is."""
    if sample is None:
        return True
    if group not in sample:
        return False
    sample[group] -= 1
    if not sample[group]:
        del sample[group]
    return True


def _chosen(batch: pa.RecordBatch, sample: Counter[Group] | None) -> list[dict[str, Any]]:
    if sample is not None:
        groups: Any = zip(*(batch[name].to_pylist() for name in _GROUP), strict=True)
        taken = [at for at, group in enumerate(groups) if _takes(sample, group)]
        batch = batch.take(pa.array(taken, pa.int64()))
    return batch.to_pylist()


def _group_of(run: FailedRun, row: Mapping[str, Any]) -> Group:
    return row["reason"], run.attempt_id, row["source_file"]


def _key(run: RunRow | FailedRun) -> dict[str, Any]:
    return {"pipeline": run.pipeline, "run_id": run.run_id, "attempt_id": run.attempt_id}


def _of_member(row: dict[str, Any]) -> dict[str, Any]:
    """A row to show, whose file and line are those of an archive's member if it stands in one."""
    file, line = place_of(row)
    return {**row, "source_file": file, "line": line}


def _with_ends(
    rows: list[dict[str, Any]], listing: Listing, counts: Mapping[Group, int]
) -> Listing:
    """The rows, on a terminal with the end of each path, which tells the files apart."""
    if terminal_width() is None:
        return listing._replace(rows=rows)
    end = path_ends([*(file for *_, file in counts), *(row["source_file"] for row in rows)])
    return listing._replace(rows=[{**row, "source_file": end(row["source_file"])} for row in rows])


def _cut(raw: str | dict[str, str]) -> str:
    r"""A rejected row for people; a byte that is not UTF-8 is shown as in `caf\xe9`."""
    if not isinstance(raw, str):
        raw = b64decode(raw["base64"]).decode(errors="backslashreplace")
    if not raw.strip():
        return repr(raw[:_SHOWN])  # so that it can be seen
    return raw if len(raw) <= _SHOWN else f"{raw[:_SHOWN]}…"
