"""Which transactions of a log partition were aborted, and where the log is still undecided.

An *event* is a record batch of a transaction, or the marker that ends one. Of the batches of a
transaction only the first matters, so memory holds little of a log. Whole transactions are resolved
as their markers come; what has no marker yet is carried on.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from seglake.errors import CorruptData
from seglake.format.batch import CONTROL, TRANSACTIONAL, BatchTable
from seglake.format.records import Int64s
from seglake.kafka.markers import ABORT, COMMIT, headers_of, markers_in

DATA = -1  # the kind of a batch; of a marker it is ABORT or COMMIT

EVENT = np.dtype(
    [("producer_id", np.int64), ("offset", np.int64), ("kind", np.int8), ("position", np.int64)]
)
"""`position` is that of the batch in its log."""

TRANSACTION = np.dtype(
    [("producer_id", np.int64), ("first", np.int64), ("last", np.int64), ("aborted", np.bool_)]
)
"""`first` is the base offset of its first batch, `last` the offset of its marker."""

Events = npt.NDArray[np.void]
Transactions = npt.NDArray[np.void]
Flags = npt.NDArray[np.bool_]


def events_in(data: Any, table: BatchTable) -> Events:
    """The events of some batches, whose positions count from the start of `data`.

    Raises CorruptData with the position of the batch.
    """
    attributes = table["attributes"]
    of_data = table[(attributes & TRANSACTIONAL != 0) & (attributes & CONTROL == 0)]
    control = table[attributes & CONTROL != 0]
    if not len(of_data) and not len(control):
        return np.empty(0, EVENT)
    rows, kinds = markers_in(data, control)
    ends = (kinds == ABORT) | (kinds == COMMIT)
    batches = np.concatenate([of_data, control[rows[ends]]])
    events = np.empty(len(batches), EVENT)
    events["producer_id"] = headers_of(data, batches)["producer_id"]
    events["offset"], events["position"] = batches["base_offset"], batches["position"]
    events["kind"] = np.append(np.full(len(of_data), DATA), kinds[ends])
    return condensed(events)


def condensed(events: Events) -> Events:
    """The events by producer and offset, without batches that follow another of a transaction."""
    events = events[np.lexsort((events["offset"], events["producer_id"]))]
    first = np.append(True, events["producer_id"][1:] != events["producer_id"][:-1])
    follows = np.append(False, events["kind"][:-1] == DATA)
    needed: Events = events[~((events["kind"] == DATA) & follows & ~first[: len(events)])]
    return needed


def resolved(events: Events) -> tuple[Transactions, Events]:
    """The transactions that have ended, in the order of markers, and the batches of the others.

    `events` are `condensed`. A marker without a batch before it ends nothing: its transaction was
    empty, or a cleaner removed the records.
    """
    before, after = events[:-1], events[1:]
    of_one = before["producer_id"] == after["producer_id"]
    ended = np.flatnonzero(of_one & (before["kind"] == DATA) & (after["kind"] != DATA))
    transactions = np.empty(len(ended), TRANSACTION)
    transactions["producer_id"] = before["producer_id"][ended]
    transactions["first"], transactions["last"] = before["offset"][ended], after["offset"][ended]
    transactions["aborted"] = after["kind"][ended] == ABORT
    is_open = events["kind"] == DATA
    is_open[ended] = False
    return transactions[np.argsort(transactions["last"])], events[is_open]


def are_aborted(producer_ids: Int64s, offsets: Int64s, aborted: Transactions) -> Flags:
    """Whether each batch, by producer and base offset, is of one of these transactions."""
    if not len(aborted) or not len(offsets):
        return np.zeros(len(offsets), bool)
    count = len(aborted)
    producers = np.append(aborted["producer_id"], producer_ids)
    places = np.append(aborted["first"], offsets)
    order = np.lexsort((np.arange(len(places)) >= count, places, producers))
    newest = np.maximum.accumulate(np.where(order < count, np.arange(len(order)), -1))
    source = order[np.maximum(newest, 0)]
    inside = (newest >= 0) & (producers[source] == producers[order])
    inside &= places[order] <= aborted["last"][np.minimum(source, count - 1)]
    flags = np.empty(len(order), bool)
    flags[order] = inside
    return flags[count:]


def check_entries(entries: npt.NDArray[np.void], transactions: Transactions, file: str) -> None:
    """Raise CorruptData unless a .txnindex and the log beside it abort the same batches.

    `transactions` are those that end in this log. An entry of which no batch is left agrees:
    Kafka's cleaner keeps what it was.
    """
    named = _are_in(transactions, entries)
    for row in np.flatnonzero(named != transactions["aborted"])[:1]:
        _, first, last, was_aborted = transactions[row].tolist()
        did, says = ("aborted", "does not name") if was_aborted else ("committed", "calls aborted")
        producer = transactions[row]["producer_id"]
        what = f"producer {producer} {did} offsets {first} to {last}, which this file {says}"
        raise CorruptData(what, file=file)


def _are_in(transactions: Transactions, entries: npt.NDArray[np.void]) -> Flags:
    """Whether each transaction ends where an entry of its producer does, and begins in it."""
    columns = (entries[name].tolist() for name in ("producer_id", "last_offset", "first_offset"))
    firsts = {(producer, last): first for producer, last, first in zip(*columns, strict=True)}
    rows = zip(
        *(transactions[name].tolist() for name in ("producer_id", "last", "first")), strict=True
    )
    return np.array([firsts.get((id_, last), own + 1) <= own for id_, last, own in rows], bool)
