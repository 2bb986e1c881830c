"""The comparison of records' keys with the keys that are searched for."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from seglake.format import sought_kernels
from seglake.format.records import read_only
from seglake.format.sought_kernels import EVERY_KEY, SoughtKeys
from tests.makers.strategies import examples

KEY = st.one_of(
    st.binary(max_size=3),
    st.text("ab", min_size=8, max_size=9).map(str.encode),
    st.sampled_from([b"\x7f", b"\x80", b"\xff", b"\x00", b""]),
)


@examples(60)
@given(st.lists(KEY, max_size=12), st.lists(KEY, max_size=12))
def test_a_key_is_sought_if_it_is_one_of_the_keys(keys: list[bytes], others: list[bytes]) -> None:
    sought = SoughtKeys.from_keys(keys)
    assert len(sought.starts) == len({*keys})
    for key in [*keys, *others]:
        data = read_only(b"!" + key + b"!")
        found = sought_kernels.is_sought(sought, data, 1, len(key))
        assert found == (key in keys), (keys, key)


def test_a_null_key_is_no_empty_key() -> None:
    data = read_only(b"ab")
    for keys in ([b""], [b"a", b""], [b"a", b"b"]):
        assert not sought_kernels.is_sought(SoughtKeys.from_keys(keys), data, 0, -1)


def test_no_keys_stand_for_every_key() -> None:
    assert not len(EVERY_KEY.starts)
    assert not any(column.flags.writeable for column in EVERY_KEY)
    assert EVERY_KEY.lengths.dtype == np.int64
