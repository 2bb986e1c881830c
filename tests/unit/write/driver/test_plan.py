"""Planning against brute force: pieces, counts, routes, packing."""

import random
from collections import Counter
from typing import Any, NamedTuple

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from seglake.engine import share_out
from seglake.write.driver import plan
from seglake.write.reduce.tasks import PieceBounds, merge
from seglake.write.spool.sorted_records import FIRST, LAST, Place, PlacedRecords
from seglake.write.spool.spool import RECORDS, SPOOLED, Blob
from tests.makers.sorted_blobs import Item, blob_lists, items_of


class Topic(NamedTuple):
    """Blobs of several log partitions, and what the driver knows of them."""

    blobs: list[tuple[int, PlacedRecords]]
    known: plan.Blobs


@st.composite
def topics(draw: st.DrawFn) -> Topic:
    seconds = draw(st.booleans())
    partitions = draw(st.lists(st.integers(0, 5), min_size=1, max_size=3, unique=True))
    found = [(p, b) for p in partitions for b in draw(blob_lists(seconds=seconds)).blobs]
    return Topic(found, plan.Blobs.from_spooled(meta_of(found)))


def meta_of(blobs: list[tuple[int, PlacedRecords]]) -> pa.Table:
    """Rows of SPOOLED, as the map side would have described the blobs."""
    rows = []
    for partition, (place, run) in blobs:
        last = items_of(run)[-1]
        row = Blob(
            RECORDS, place.unit, partition=partition, number=place.blob, records=len(run),
            size_bytes=int(run.bodies.sizes.sum()),
            sort_key=place.sort_key, tie_breaker=place.tie_breaker,
            last_sort_key=last.sort_key, last_tie_breaker=last.tie_breaker,
        )  # fmt: skip
        rows.append(row._asdict())
    return pa.Table.from_pylist(rows, SPOOLED)


def place_of(blob: PlacedRecords, item: Item) -> Place:
    return Place(item.sort_key, item.tie_breaker, *blob.place[2:])


def members_of(routes: plan.BlobAssignment, piece: int) -> list[int]:
    blobs: list[int] = routes.blobs[routes.pieces == piece].tolist()
    return blobs


def counted(topic: Topic, cuts: list[PieceBounds], routes: plan.BlobAssignment) -> dict[Any, int]:
    """What the count stage finds."""
    return {
        (blob, number): topic.blobs[blob][1].count_before(cut.end)
        - topic.blobs[blob][1].count_before(cut.start)
        for blob in plan.spanning_blobs(routes)
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
    counts = plan.count_records(topic.known, routes, counted(topic, cuts, routes))
    bases = plan.base_offsets(cuts, counts, ends)
    following = {partition: ends.get(partition, 0) for partition, _ in topic.blobs}
    for number, cut in enumerate(cuts):
        members = [topic.blobs[blob] for blob in members_of(routes, number)]
        inside = sum(
            cut.start <= place_of(blob, item) < cut.end
            for partition, blob in topic.blobs
            if partition == cut.partition
            for item in items_of(blob.records)
        )
        assert {partition for partition, _ in members} == {cut.partition}
        assert counts[number] == inside > 0
        assert bases[number] == following[cut.partition]
        following[cut.partition] += inside
    sizes = Counter(partition for partition, blob in topic.blobs for _ in items_of(blob.records))
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
            chosen = sorted(topic.blobs[blob][1] for blob in members_of(routes, number))
            inside = (b.part(b.count_before(cut.start), b.count_before(cut.end)) for b in chosen)
            pieces += [item for run in merge(inside, 50) for item in items_of(run)]
        assert pieces == whole


@given(topics(), st.sampled_from([1, 20, 60]), st.randoms())
def test_cuts_do_not_depend_on_the_order_in_which_blobs_are_reported(
    topic: Topic, piece_bytes: int, chance: random.Random
) -> None:
    shuffled = topic.blobs.copy()
    chance.shuffle(shuffled)
    again = plan.Blobs.from_spooled(meta_of(shuffled))
    assert plan.cut_partitions(again, piece_bytes) == plan.cut_partitions(topic.known, piece_bytes)


@given(topics())
def test_there_are_no_more_pieces_than_the_size_asks_for(topic: Topic) -> None:
    piece_bytes = 40
    cuts = plan.cut_partitions(topic.known, piece_bytes)
    starts = Counter(cut.partition for cut in cuts)
    for partition in starts:
        sizes = [int(b.records.bodies.sizes.sum()) for p, b in topic.blobs if p == partition]
        assert starts[partition] <= max(1, -(-sum(sizes) // piece_bytes))


@given(topics(), st.integers(1, 5))
def test_every_piece_is_one_tasks_with_its_blobs_in_order(topic: Topic, tasks: int) -> None:
    cuts = plan.cut_partitions(topic.known, 30)
    routes = plan.assign(topic.known, cuts)
    shares = plan.share_pieces(topic.known, routes, len(cuts), tasks)
    assert len(shares) == min(tasks, len(cuts))
    assert sorted(piece for share in shares for piece, _ in share) == list(range(len(cuts)))
    for piece, blobs in (each for share in shares for each in share):
        assert sorted(blobs.tolist()) == members_of(routes, piece)
        places = [topic.blobs[blob][1].place for blob in blobs]
        assert places == sorted(places)


def test_pieces_without_blobs_are_planned() -> None:
    """Of a run whose records keep their offsets: it covers offsets that have no record."""
    none, piece = plan.Blobs.from_spooled(meta_of([])), PieceBounds(0, FIRST, LAST)
    assert plan.cut_partitions(none, 1) == []
    routes = plan.assign(none, [piece])
    assert plan.spanning_blobs(routes) == {}
    (((number, members),),) = plan.share_pieces(none, routes, 1, 4)
    assert (number, members.tolist()) == (0, [])


@given(st.lists(st.integers(0, 1000), max_size=60), st.integers(1, 12))
def test_packing_is_balanced(sizes: list[int], bins: int) -> None:
    shares = share_out(sizes, bins)
    assert sorted(item for share in shares for item in share) == list(range(len(sizes)))
    assert len(shares) == min(bins, len(sizes))
    loads = [sum(sizes[item] + 1 for item in share) for share in shares]
    assert 0 not in loads  # no task is empty
    assert not sizes or max(loads) - min(loads) <= max(sizes) + 1
