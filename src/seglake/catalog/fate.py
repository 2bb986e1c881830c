"""The fate of an attempt: whether it may commit.

`attempts/<attempt>/fate` is put if absent, by the attempt before it commits ("committing") or by a
vacuum or an erasure ("abandoned"): the first decides, and the other stops. An attempt that
claimed its fate may have died since. So a vacuum may overrule an old claim ("abandoned", with the
topic), and then has to make sure that no commit of it is still under way, see `CatalogTable.fence`.
It may die before that. So whoever meets such a fate makes a fence, until one has taken the topic
out of it. What the catalog has is committed, whatever its fate says. Attempts of older writers have
no fate.
"""

import json
from typing import Any, NamedTuple

from seglake.errors import AttemptAbandoned, CorruptData, MissingObject
from seglake.layout import fate_key
from seglake.store import Store

_ABANDONED = json.dumps({"fate": "abandoned"}).encode()


def claim(store: Store, attempt_id: str, topic: str) -> None:
    """Let an attempt commit to a topic, now and after a lost race.

    Raises AttemptAbandoned if a vacuum gave it up, and StoreError.
    """
    if not store.put_if_absent(fate_key(attempt_id), _written("committing", topic)):
        require_hope(store, attempt_id)


def require_hope(store: Store, attempt_id: str) -> None:
    """Raise AttemptAbandoned if an attempt was given up, and StoreError."""
    try:
        given_up = _fate(store, attempt_id).given_up
    except MissingObject:  # nobody has decided
        return
    if given_up:
        raise AttemptAbandoned(
            f"a vacuum or an erasure gave up attempt {attempt_id}, which had written nothing for "
            "longer than the grace period, and may delete its files; nothing was committed: run "
            "again with the same run id, and give that command a longer --grace-hours"
        )


def give_up(store: Store, attempt_id: str) -> str | None:
    """Forbid an attempt to commit.

    Returns its topic if it had claimed its fate, and no fence came since: its commit may be under
    way, or made. After the fence, `settle` or `restore` it. Else returns None.
    """
    if store.put_if_absent(fate_key(attempt_id), _ABANDONED):
        return None
    fate = _fate(store, attempt_id)
    if not fate.given_up:
        store.put(fate_key(attempt_id), _written("abandoned", fate.topic))
    return fate.topic


def settle(store: Store, attempt_id: str) -> None:
    """Note that no commit of an attempt that was given up is under way, or was made.

    An attempt may say so of itself, and gives itself up.
    """
    store.put(fate_key(attempt_id), _ABANDONED)


def is_given_up(store: Store, attempt_id: str) -> bool:
    """Whether an attempt was given up, by others or by itself. Raises CorruptData, StoreError."""
    try:
        return _fate(store, attempt_id).given_up
    except MissingObject:
        return False


def end(store: Store, attempt_id: str) -> bool:
    """Abandon an attempt that never claimed its fate. Return whether no commit of it can land.

    False for an attempt that claimed its fate, and neither lost it nor withdrew (`withdraw`).
    Raises CorruptData, StoreError.
    """
    try:
        return _fate(store, attempt_id) == _Fate(given_up=True, topic=None)
    except MissingObject:
        return give_up(store, attempt_id) is None


def restore(store: Store, attempt_id: str, topic: str) -> None:
    """Take back `give_up` for an attempt that had committed before."""
    store.put(fate_key(attempt_id), _written("committing", topic))


class _Fate(NamedTuple):
    """A fate; `topic` is where a commit of the attempt may be under way."""

    given_up: bool
    topic: str | None


def _written(fate: str, topic: str | None) -> bytes:
    return json.dumps({"fate": fate, "topic": topic}).encode()


def _fate(store: Store, attempt_id: str) -> _Fate:
    key = fate_key(attempt_id)
    try:
        content: Any = json.loads(bytes(store.read_all(key)))
        if content["fate"] == "committing":
            return _Fate(given_up=False, topic=str(content["topic"]))
        topic = content.get("topic")
        return _Fate(given_up=True, topic=None if topic is None else str(topic))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CorruptData(f"this is not the fate of an attempt: {error!r}", file=key) from error
