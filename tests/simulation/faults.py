"""Faults that were in the code once: put back one at a time, each must be found.

A fault is found by its script (`scripts`), or by the random history of a seed (`SEARCHED`).

Most are a change of a line: `edited` fails if the line is not there any more, so none rots.
"""

import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from itertools import chain
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from seglake.catalog import commits, retention, transaction
from seglake.catalog.commits import CatalogCommits
from seglake.catalog.delta import delta_rs
from seglake.catalog.delta.commit_log import DeltaLog
from seglake.catalog.published import PublishedTable
from seglake.catalog.quarantine.table import QuarantineTable
from seglake.catalog.retention import UnreferencedFiles
from seglake.catalog.schema import FILE_SCHEMAS
from seglake.catalog.table import CatalogTable
from seglake.catalog.transaction import _Transaction
from seglake.catalog.version import snapshot_files
from seglake.format.records import Int64s
from seglake.kafka import importing as intake
from seglake.layout import LOG_TABLE
from seglake.limits import INT64_MAX
from seglake.log import execute, zone_maps
from seglake.log.segment import Window, window_limits
from seglake.maintain import merge, tagging, undo, vacuum
from seglake.maintain.compaction import compact
from seglake.maintain.erasure import criteria, erase, rewrites
from seglake.maintain.erasure.erase import OldObjects, _Erasure
from seglake.maintain.erasure.rewrites import RejectErasure, TagErasure
from seglake.maintain.health import reindex, repair, verify
from seglake.maintain.publish import publish
from seglake.read import tables
from seglake.write.driver import redrive, run
from seglake.write.driver.commit import Placement
from seglake.write.driver.redrive import RedriveInput

Put = Callable[[], list[Any]]


def edited(owner: Any, name: str, *changes: tuple[str, str]) -> Any:
    """A patch of a function or method: its source with some text replaced."""
    real = inspect.unwrap(getattr(owner, name))
    source = textwrap.dedent(inspect.getsource(real))
    for old, new in changes:
        if old not in source:
            raise AssertionError(f"{name} has no {old!r} any more")
        source = source.replace(old, new)
    scope: dict[str, Any] = {}
    code = compile(source, f"<{name} with a fault>", "exec")
    exec(code, vars(sys.modules[real.__module__]), scope)
    return patch.object(owner, name, scope[name])


def _last_look() -> Any:
    return patch.object(_Erasure, "_note_running", _Erasure._find_attempts)


def _listed_once() -> Any:
    """The data files that no version names are listed, and others come later."""

    def listed(given: CatalogTable, *, now_ms: float) -> set[str]:
        never_named = UnreferencedFiles.from_table(given, now_ms=now_ms)
        folders = (f"{LOG_TABLE}/kind={kind}" for kind in FILE_SCHEMAS)
        files = chain.from_iterable(map(given.store.list, folders))
        return {each.key for each in files if each.key in never_named}

    return patch.object(erase, "UnreferencedFiles", SimpleNamespace(from_table=listed))


def _limits_to_an_end(window: Window) -> Int64s:
    """An end that is not given is the largest timestamp, exclusive."""
    return window_limits(window._replace(end_ms=min(window.end_ms, INT64_MAX)))


def _tagged_first(table: CatalogTable, version: int, topics: Any) -> Any:
    held = table.tags.keeping(version)
    return (
        table.snapshot_from_log(version, topics)
        if held is None
        else table.tags.snapshot(held, topics)
    )


_made = tagging._Tagging._made


def _made_of_the_first_version(work: Any, base: Any) -> Any:
    work._version = base.version if work._version is None else work._version
    return _made(work, base)


FAULTS: dict[str, Put] = {
    "a publish names no version of the lake": lambda: [
        edited(PublishedTable, "commit", ('{"txn": {', '{"later": {'))
    ],
    "a publish does not remove files of removed segments": lambda: [
        edited(publish._Plan, "__init__", ("{*base.files} - self.kept", "{*()}"))
    ],
    "a publish adds the file of a segment again": lambda: [
        edited(
            publish._Plan,
            "__init__",
            ("for each in wanted if each not in there", "for each in wanted"),
        )
    ],
    "a publish overlooks a log start in a segment": lambda: [
        edited(
            tables,
            "wanted_segments",
            ("first = max(base, min(view.log_start_offset, INT64_MAX))", "first = base"),
            ("first < end", "view.log_start_offset < end"),
        )
    ],
    "a publish confuses partitions": lambda: [
        edited(
            publish._Plan,
            "__init__",
            ("{each: path for", "{each._replace(partition=0, end_offset=0): path for"),
            (
                "if each in wanted}",
                "if each in {every._replace(partition=0, end_offset=0) for every in wanted}}",
            ),
            ("each not in there", "each._replace(partition=0, end_offset=0) not in there"),
        )
    ],
    "an erasure does not fence tables": lambda: [
        edited(erase, "clear_tables", ("table.fence()", "pass"))
    ],
    "a publisher reads the lake before the table": lambda: [
        edited(
            publish.Publisher,
            "_plan",
            ("    base = base or self._table.read(replace=self._replace)\n", "    pass\n"),
            (
                "    snapshot = self._catalog.snapshot(topics=[self._row.topic])\n",
                (
                    "    snapshot = self._catalog.snapshot(topics=[self._row.topic])\n"
                    "    base = base or self._table.read(replace=self._replace)\n"
                ),
            ),
        )
    ],
    "a reader of a table relies on every checkpoint": lambda: [
        edited(DeltaLog, "replay", ("newest + 1)", "min(newest, first + 5) + 1)"))
    ],
    "a redrive is committed although its run was undone": lambda: [
        patch.object(RedriveInput, "is_taken", lambda *_: False)
    ],
    "a commit names files of the catalog that a vacuum deleted": lambda: [
        edited(vacuum._Sweep, "_fenced", ("    self._table.commits.fence()\n", ""))
    ],
    "a vacuum takes who paused between rows for committed": lambda: [
        edited(
            vacuum,
            "_named",
            ("retained_rows(table, kind, never_named)", "retained_rows(table, kind, expired)"),
            ("if committed else []", ""),
        )
    ],
    "a late write replaces the checkpoint of a rebuild": lambda: [
        edited(delta_rs, "renumber", ("if not store.put_if_absent(", "if store.put("))
    ],
    "a commit names files of the quarantine that a vacuum deleted": lambda: [
        edited(
            QuarantineTable, "add_files", ("require_not_abandoned(self._store, attempt_id)", "pass")
        )
    ],
    "rejects with an erased binary key stay": lambda: [
        patch.object(criteria, "_encoded_in", lambda _row: iter(()))
    ],
    "an attempt does not announce itself": lambda: [
        patch.object(each, "announce", lambda *_, **__: nullcontext()) for each in (run, redrive)
    ],
    "a repeated command writes no success marker": lambda: [
        patch.object(each, "write_recent_markers", lambda *_: None)
        for each in (transaction, compact, intake)
    ],
    "an empty segment covers reserved offsets that others took": lambda: [
        edited(Placement, "_cover", ("end := self._ends.get", "end := self._copied_at.get"))
    ],
    "a refresh takes moved rows twice": lambda: [
        edited(snapshot_files, "advance", ("base.files | data_files(came)", "base.files | added"))
    ],
    "a refresh treats a rebuilt catalog as the old one": lambda: [
        patch.object(DeltaLog, "is_same_table", lambda _log: True),
        edited(DeltaLog, "since", ("any(commit.begins for commit in commits)", "False")),
    ],
    "an undo that was done is an error": lambda: [
        edited(undo, "run_with_id", ('last.state == "replaced"', 'last.state != "committed"'))
    ],
    "an erasure takes logs that came after its commit": lambda: [
        edited(RejectErasure, "files", ("not self._counted.isdisjoint(file.go)", "file.go")),
        edited(
            rewrites._WriteRest,
            "__call__",
            ("pc.and_(is_counted, self.goes(key, rows))", "self.goes(key, rows)"),
        ),
    ],
    "a vacuum makes no fence": lambda: [patch.object(CatalogCommits, "fence", lambda *_: None)],
    "a claim that a dead vacuum overruled is not fenced": lambda: [
        edited(
            transaction,
            "abandon",
            ("before.topic\n", "None if before.abandoned else before.topic\n"),
        ),
        patch.object(transaction, "confirm_abandoned", lambda *_: None),
    ],
    "the late manifest of a lost race counts": lambda: [
        edited(commits, "write_manifest", ("sorted({lost_races, 0}, reverse=True)", "[0]"))
    ],
    "an abandoned attempt commits": lambda: [
        edited(commits, "claim", ("require_not_abandoned(store, attempt_id)", "pass"))
    ],
    "a merge replaces segments that changed after its plan": lambda: [
        patch.object(merge, "are_live", lambda *_: True)
    ],
    "a compaction replaces segments that changed after its plan": lambda: [
        patch.object(compact, "_is_current", lambda *_: True)
    ],
    "an erasure takes who writes rows for committed": lambda: [_listed_once()],
    "an erasure does not look again": lambda: [_last_look()],
    "an erasure deletes by a look from before its last commit": lambda: [
        edited(
            _Erasure,
            "_delete_old",
            (
                "self._find_old(self._forbid_tags(attempts))",
                "self._forbid_tags(attempts) and self._find_old(attempts)",
            ),
        )
    ],
    "an erasure leaves old key indexes": lambda: [
        edited(OldObjects, "_logs", ("key.endswith(optional)", "False"))
    ],
    "a reindex that hashes keys does not announce itself": lambda: [
        patch.object(reindex, "announce", lambda *_, **__: nullcontext())
    ],
    "a refresh goes on in a rebuilt catalog behind a late write": lambda: [
        edited(DeltaLog, "since", ("any(commit.begins for commit in commits)", "False"))
    ],
    "an abandoned attempt leaves what it wrote": lambda: [
        patch.object(transaction, "_delete_own_segments", lambda *_: None),
        patch.object(run, "_delete_own_rejects", lambda *_: None),
        patch.object(QuarantineTable, "_deleted_on_failure", lambda *_: nullcontext()),
    ],
    "an abandoned erasure leaves what it wrote for tags": lambda: [
        edited(_Erasure, "carry_out", (", self._logs.attempts)", ")"))
    ],
    "a vacuum makes no fence before segments go": lambda: [
        edited(vacuum._Sweep, "_without_new_tags", ("    table.commits.fence()\n", ""))
    ],
    "a vacuum does not read the tags again": lambda: [
        edited(
            vacuum._Sweep,
            "_without_new_tags",
            ("if table.tags.live() == self._tags:", "if self._tags is not None:"),
        )
    ],
    "an erasure and a tag pass each other": lambda: [
        edited(_Erasure, "_plan", ("        unchanged_topics=[WHOLE_LAKE],\n", ""))
    ],
    "an erasure passes tags by": lambda: [patch.object(TagErasure, "find", lambda *_: {})],
    "a version from before an erasure gets a tag": lambda: [
        patch.object(tagging, "_erasures", lambda *_: set())
    ],
    "a rebuild does not read manifest archives": lambda: [
        patch.object(verify, "read_archives", lambda _: {})
    ],
    "a vacuum reads no commit since the removed-files list": lambda: [
        edited(
            retention, "removed_files", ("there.keys() - found.keys()", "[] if found else there")
        )
    ],
    "an erasure hides what another one left": lambda: [
        patch.object(each, "unfinished_lists", lambda *_: {}) for each in (erase, redrive)
    ],
    "a read without an end leaves out the largest timestamp": lambda: [
        patch.object(each, "window_limits", _limits_to_an_end) for each in (execute, zone_maps)
    ],
    "a number reads the object of a tag": lambda: [
        patch.object(CatalogTable, "_retained_or_tagged", _tagged_first)
    ],
    "an attempt that ends without a commit leaves its claim": lambda: [
        patch.object(_Transaction, "_withdraw", lambda _: None),
        patch.object(transaction, "abandon_unless_claimed", lambda *_: False),
    ],
    "a commit that arrives after a rebuild counts": lambda: [
        patch.object(each, "has_failed", lambda *_: False) for each in (commits, verify)
    ],
    "an attempt deletes its files before a fence": lambda: [
        edited(transaction, "abandon_all", ("table.commits.fence(topic)", "pass"))
    ],
    "ids of a try that lost count as running": lambda: [
        patch.object(_Transaction, "_abandon_unused", lambda _: None)
    ],
    "a repair leaves what only a tag names": lambda: [
        patch.object(repair, "only_tagged", lambda *_: ()),
        patch.object(reindex, "_named_by_tags", lambda *_: {}),
    ],
    "a tag that loses to an erasure keeps to its version": lambda: [
        patch.object(tagging._Tagging, "_made", _made_of_the_first_version)
    ],
}


# No script has been written for these faults. Each has a seed whose random history finds it, and
# `python -m tests.simulation --find` looks for a new one when code that it plays has moved.
SEARCHED = {
    "a repeated command writes no success marker": 30_112,
    "a commit names files of the catalog that a vacuum deleted": 3_100_285,
    "a refresh treats a rebuilt catalog as the old one": 30_784,
    "an erasure takes logs that came after its commit": 30_045,
    "a refresh goes on in a rebuilt catalog behind a late write": 30_062,
    "an empty segment covers reserved offsets that others took": 30_294,
    "an abandoned erasure leaves what it wrote for tags": 34_579,
}


@contextmanager
def put_back(name: str | None) -> Iterator[None]:
    """In the block, the code has the fault of this name again; with None it is as it is."""
    with ExitStack() as stack:
        for change in FAULTS[name]() if name else ():
            stack.enter_context(change)
        yield
