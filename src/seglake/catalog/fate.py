"""The fate of an attempt: whether it may commit, or is given up and its files may be deleted.

`attempts/<attempt>/fate` is put if absent, by the attempt before it commits ("committing") or by a
vacuum or an erasure ("abandoned"): the first decides, and the other stops. An attempt that
claimed its fate may have died since. So a vacuum may overrule an old claim, and then has to make
sure that no commit of it is still under way, see `CatalogTable.fence`. What the catalog has is
committed, whatever its fate says. Attempts of older writers have no fate.
"""

import json
from typing import Any

from seglake.errors import AttemptAbandoned, CorruptData
from seglake.layout import fate_key
from seglake.store import Store

_ABANDONED = json.dumps({"fate": "abandoned"}).encode()


def claim(store: Store, attempt_id: str, topic: str) -> None:
    """Let an attempt commit to a topic, now and after a lost race.

    Raises AttemptAbandoned if a vacuum gave it up, and StoreError.
    """
    made = store.put_if_absent(fate_key(attempt_id), _committing(topic))
    if not made and _topic(store, attempt_id) is None:
        raise AttemptAbandoned(
            f"a vacuum or an erasure gave up attempt {attempt_id}, which had written nothing for "
            "longer than the grace period, and may delete its files; nothing was committed: run "
            "again with the same run id, and give that command a longer --grace-hours"
        )


def give_up(store: Store, attempt_id: str) -> str | None:
    """Forbid an attempt to commit.

    Returns its topic if it had claimed its fate: its commit may be under way, or made. Else None.
    """
    if store.put_if_absent(fate_key(attempt_id), _ABANDONED):
        return None
    topic = _topic(store, attempt_id)
    if topic is not None:
        store.put(fate_key(attempt_id), _ABANDONED)
    return topic


def restore(store: Store, attempt_id: str, topic: str) -> None:
    """Take back `give_up` for an attempt that had committed before."""
    store.put(fate_key(attempt_id), _committing(topic))


def _committing(topic: str) -> bytes:
    return json.dumps({"fate": "committing", "topic": topic}).encode()


def _topic(store: Store, attempt_id: str) -> str | None:
    """The topic to which an attempt may commit; None if it is given up."""
    key = fate_key(attempt_id)
    try:
        content: Any = json.loads(bytes(store.read_all(key)))
        return str(content["topic"]) if content["fate"] == "committing" else None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptData(f"this is not the fate of an attempt: {error!r}", file=key) from error
