"""What numba asks of modules with kernels."""

import ast
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglake.compile.jit import njit
from seglake.format import decode_kernels, encode_kernels, sought_kernels
from seglake.format.codecs import batch_kernels
from seglake.format.codecs.payload import payload_of
from seglake.format.decode import decode_batches, scan_batches, with_record_times
from seglake.format.filter import filter_batches
from seglake.format.index import IndexPolicy
from seglake.format.records import read_only
from seglake.format.segment import rebuild
from seglake.format.sought_kernels import EVERY_KEY, SoughtKeys
from tests.judges.described import describe
from tests.judges.kafka_model import Record
from tests.makers.strategies import examples
from tests.unit.format.test_batch import encode, read


def test_one_compilation_serves_all_callers() -> None:
    # each further one would cost a task seconds
    items = [Record(i, b"k", b"v", ((b"h", b"x"),)) for i in range(3)]
    encode(items, "zstd", 80)
    made = encode(items, "lz4", 80)
    view: Any = made.data
    for data in (view, made.data.tobytes(), bytearray(view), memoryview(view)):
        read(data)
        rebuild(0, describe(data), IndexPolicy())
        table = scan_batches(data)
        with_record_times(table, payload_of(read_only(data), table))
        decoded = decode_batches(data, table)
        horizons = np.full(len(table), 5)
        filter_batches(data, table, decoded, decoded.offsets != 1, horizons)
    frozen = np.frombuffer(made.table.tobytes(), made.table.dtype)
    rebuild(0, frozen, IndexPolicy())
    scan_batches(made.data[: made.table["size"][0]])
    for kernel in (
        encode_kernels.fill_bodies, encode_kernels.cut_batches,
        encode_kernels.fill_records, encode_kernels.append, decode_kernels.find_batches,
        decode_kernels.check_positions, decode_kernels.parse_records,
        decode_kernels.parse_headers, decode_kernels.parse_extremes,
        encode_kernels.measure_records, batch_kernels.put_batches,
        batch_kernels.put_headers, batch_kernels.put_checksums,
    ):  # fmt: skip
        assert len(kernel.signatures) == 1, kernel


@njit()
def doubled(number: int) -> int:
    return 2 * number


@njit()
def with_constants(number: int) -> int:
    return doubled(number) + doubled(5) + doubled(number=7)


def test_kernels_are_compiled_once_for_all_constants() -> None:
    assert with_constants(1) == 26
    assert len(doubled.signatures) == 1


SOURCES = sorted((Path(__file__).parents[3] / "src").glob("**/*.py"))


@pytest.mark.parametrize("path", [p for p in SOURCES if "njit" in p.read_text()], ids=str)
def test_kernels_take_the_address_of_an_argument_alone(path: Path) -> None:
    """The caller keeps that array; numba frees an array of the kernel's own after its last use."""
    for function in ast.walk(ast.parse(path.read_text())):
        if isinstance(function, ast.FunctionDef) and "njit" in map(called, function.decorator_list):
            given = {argument.arg for argument in function.args.args}
            assert addressed(function) <= given, function.name


def called(decorator: ast.expr) -> str:
    return ast.unparse(decorator).partition("(")[0]


def addressed(function: ast.FunctionDef) -> set[str]:
    """The arrays of which an address is taken; of an array in a tuple, the tuple."""
    return {
        root_of(node.value.value)
        for node in ast.walk(function)
        if isinstance(node, ast.Attribute)
        and ast.unparse(node).endswith(".ctypes.data")
        and isinstance(node.value, ast.Attribute)
    }


def root_of(node: ast.expr) -> str:
    """`a` of `a.b.c`."""
    return root_of(node.value) if isinstance(node, ast.Attribute) else ast.unparse(node)


# The comparison of records' keys with the keys that are searched for.

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
