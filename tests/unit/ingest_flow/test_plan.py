"""Planning against brute force: pieces, counts, routes, packing."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from seglake.write.driver import plan
from seglake.write.reduce.merge import SortedBlob, count_before, merge
from seglake.write.spool.blob import RECORDS, Blob
from seglake.write.spool.spool import STAGED
from tests.unit.ingest_flow.runs import Item, blob_lists, items_of


class Topic(NamedTuple):
    """Blobs of several log partitions, and what the driver knows of them."""

    blobs: list[tuple[int, SortedBlob]]
    known: plan.Blobs


@st.composite
def topics(draw: st.DrawFn) -> Topic:
    seconds = draw(st.booleans())
    partitions = draw(st.lists(st.integers(0, 5), min_size=1, max_size=3, unique=True))
    found = [(p, b) for p in partitions for b in draw(blob_lists(seconds=seconds)).blobs]
    return Topic(found, plan.Blobs.of(meta_of(found)))


def meta_of(blobs: list[tuple[int, SortedBlob]]) -> pa.Table:
    """Rows of STAGED, as the map side would have described the blobs."""
    rows = []
    for partition, (place, run) in blobs:
        last = items_of(run)[-1]
        row = Blob(
            RECORDS, place.unit, partition=partition, sequence=place.sequence, records=len(run),
            size_bytes=int(run.bodies.sizes.sum()), key=place.key, second=place.second,
            last_key=last.key, last_second=last.second,
        )  # fmt: skip
        rows.append(row._asdict())
    return pa.Table.from_pylist(rows, STAGED)


def place_of(blob: SortedBlob, item: Item) -> plan.Place:
    return plan.Place(item.key, item.second, *blob.place[2:])


def counted(topic: Topic, cuts: list[plan.Cut], routes: list[tuple[int, int]]) -> dict:
    """What the count stage finds."""
    return {
        (blob, number): count_before(topic.blobs[blob][1], cut.end)
        - count_before(topic.blobs[blob][1], cut.start)
        for blob in plan.straddlers(routes)
        for number, cut in enumerate(cuts)
        if cut.partition == topic.blobs[blob][0]
    }


@given(
    topics(), st.sampled_from([1, 20, 60, 10**6]), st.dictionaries(st.integers(0, 5), st.just(7))
)
def test_pieces_hold_every_record_once_and_follow_each_other(
    topic: Topic, piece_bytes: int, ends: dict[int, int]
) -> None:
    cuts = plan.cut_partitions(topic.known, piece_bytes)
    routes = plan.assign(topic.known, cuts)
    counts = plan.count_pieces(topic.known, routes, counted(topic, cuts, routes))
    bases = plan.base_offsets(cuts, counts, ends)
    following = {partition: ends.get(partition, 0) for partition, _ in topic.blobs}
    for number, cut in enumerate(cuts):
        members = [topic.blobs[blob] for blob, piece in routes if piece == number]
        inside = sum(
            cut.start <= place_of(blob, item) < cut.end
            for partition, blob in topic.blobs
            if partition == cut.partition
            for item in items_of(blob.run)
        )
        assert {partition for partition, _ in members} == {cut.partition}
        assert counts[number] == inside > 0
        assert bases[number] == following[cut.partition]
        following[cut.partition] += inside
    sizes = Counter(partition for partition, blob in topic.blobs for _ in items_of(blob.run))
    assert following == {p: ends.get(p, 0) + size for p, size in sizes.items()}


@given(topics(), st.sampled_from([1, 20, 60]))
def test_pieces_one_after_another_are_the_whole(topic: Topic, piece_bytes: int) -> None:
    cuts = plan.cut_partitions(topic.known, piece_bytes)
    routes = plan.assign(topic.known, cuts)
    for partition in {partition for partition, _ in topic.blobs}:
        mine = sorted((b for p, b in topic.blobs if p == partition), key=lambda blob: blob.place)
        whole = [item for run in merge(iter(mine), 10**6) for item in items_of(run)]
        pieces = []
        for number, cut in enumerate(cuts):
            if cut.partition != partition:
                continue
            chosen = sorted((topic.blobs[blob][1] for blob, piece in routes if piece == number))
            inside = (b.part(count_before(b, cut.start), count_before(b, cut.end)) for b in chosen)
            pieces += [item for run in merge(inside, 50) for item in items_of(run)]
        assert pieces == whole


@given(topics(), st.sampled_from([1, 20, 60]), st.randoms())
def test_cuts_do_not_depend_on_the_order_in_which_blobs_are_reported(
    topic: Topic, piece_bytes: int, chance
) -> None:
    shuffled = topic.blobs.copy()
    chance.shuffle(shuffled)
    again = plan.Blobs.of(meta_of(shuffled))
    assert plan.cut_partitions(again, piece_bytes) == plan.cut_partitions(topic.known, piece_bytes)


@given(topics())
def test_there_are_no_more_pieces_than_the_size_asks_for(topic: Topic) -> None:
    piece_bytes = 40
    cuts = plan.cut_partitions(topic.known, piece_bytes)
    starts = Counter(cut.partition for cut in cuts)
    for partition in starts:
        sizes = [int(b.run.bodies.sizes.sum()) for p, b in topic.blobs if p == partition]
        assert starts[partition] <= max(1, -(-sum(sizes) // piece_bytes))


@given(topics(), st.integers(1, 5))
def test_every_piece_is_one_tasks_with_its_blobs_in_order(topic: Topic, tasks: int) -> None:
    cuts = plan.cut_partitions(topic.known, 30)
    routes = plan.assign(topic.known, cuts)
    shares = plan.share_out(topic.known, routes, len(cuts), tasks)
    assert len(shares) == min(tasks, len(cuts))
    assert sorted(piece for share in shares for piece, _ in share) == list(range(len(cuts)))
    for piece, blobs in (each for share in shares for each in share):
        assert sorted(blobs) == [blob for blob, other in routes if other == piece]
        places = [topic.blobs[blob][1].place for blob in blobs]
        assert places == sorted(places)


@given(st.lists(st.integers(0, 1000), max_size=60), st.integers(1, 12))
def test_packing_is_balanced(sizes: list[int], bins: int) -> None:
    chosen = plan.pack(sizes, bins)
    assert len(chosen) == len(sizes)
    loads = Counter(dict.fromkeys(range(min(bins, len(sizes))), 0))
    for size, number in zip(sizes, chosen, strict=True):
        loads[number] += size + 1
    assert set(loads) == set(range(min(bins, len(sizes))))  # no bin is empty
    largest = max(sizes, default=0) + 1
    assert not sizes or max(loads.values()) - min(loads.values()) <= largest
