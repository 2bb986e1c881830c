"""Compress and decompress records with the five codecs of Kafka.

    id  name    payload
    0   none    the records
    1   gzip    one gzip member
    2   snappy  xerial framing: 16-byte header, then blocks {length i32, raw snappy}, 32 KiB each
    3   lz4     one LZ4 frame: independent 64 KiB blocks, no checksums, no content size
    4   zstd    one zstd frame

A task makes its compressor once and uses it for every batch (`compressor`). Compressed bytes are
not canonical, so two valid writers may write different bytes for the same records. Decompression
never yields more bytes than its limit, so that a decompression bomb raises CorruptData.
"""

import struct
import threading
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any

import cramjam
import lz4.frame
import zstandard

from seglake.errors import ConfigError, CorruptData

NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
IDS = {name: number for number, name in enumerate(NAMES)}

Compress = Callable[[Any], bytes]

_XERIAL = struct.pack(">8sii", b"\x82SNAPPY\x00", 1, 1)
_XERIAL_BLOCK_BYTES = 32 * 1024
_GZIP = 16 + zlib.MAX_WBITS


def compressor(name: str, level: int | None = None) -> Compress | None:
    """Return a function that compresses records, or None for codec "none".

    `level` is `compression.gzip.level` or `compression.zstd.level`, which have their defaults in
    `config/topic.py`. None selects Kafka's default, for lz4 and for batches that are encoded again.
    Raises ConfigError for an unknown codec.
    """
    if name not in IDS:
        raise ConfigError(f"compression.type {name!r} is unknown. Use {', '.join(NAMES)}")
    return None if name == "none" else _COMPRESSORS[name](level)


def _gzip(level: int | None) -> Compress:
    chosen = zlib.Z_DEFAULT_COMPRESSION if level is None else level

    def compress(data: Any) -> bytes:
        member = zlib.compressobj(chosen, zlib.DEFLATED, _GZIP)
        return member.compress(data) + member.flush()

    return compress


def _snappy(_level: int | None) -> Compress:
    def compress(data: Any) -> bytes:
        view, parts = memoryview(data), [_XERIAL]
        for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
            block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
            parts += [struct.pack(">i", len(block)), block]
        return b"".join(parts)

    return compress


def _lz4(level: int | None) -> Compress:
    return partial(
        lz4.frame.compress, compression_level=0 if level is None else level,
        block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=False, store_size=False,
    )  # fmt: skip


class Zstd:
    """A function that compresses records with zstd at one level."""

    def __init__(self, level: int | None = None) -> None:
        self.level = 3 if level is None else level
        self._compress = zstandard.ZstdCompressor(level=self.level).compress

    def __call__(self, data: Any) -> bytes:
        """Return one zstd frame. Its header has the decompressed size."""
        return self._compress(data)


_COMPRESSORS: dict[str, Callable[[int | None], Compress]] = {
    "gzip": _gzip,
    "snappy": _snappy,
    "lz4": _lz4,
    "zstd": Zstd,
}


def decompress(codec: int, data: Any, max_bytes: int) -> bytes:
    """Decompress the records of a batch.

    gzip and zstd payloads may have several members or frames, as in Kafka's readers. Raises
    CorruptData for an unknown codec, malformed or truncated input, bytes after the end of the
    stream, or more than `max_bytes` of records. Memory is bounded by `max_bytes` and by the codec's
    largest ratio, whatever size the payload declares.
    """
    if not 1 <= codec < len(NAMES):
        raise CorruptData(f"unknown compression codec {codec}")
    try:
        return _DECOMPRESSORS[codec - 1](data, max_bytes)
    except _LIBRARY_ERRORS as err:
        raise CorruptData(f"{NAMES[codec]} payload cannot be decompressed: {err}") from err


def _unsnappy(data: Any, max_bytes: int) -> bytes:
    view = memoryview(data)
    if bytes(view[:8]) != _XERIAL[:8]:  # some clients send a raw block without xerial framing
        return _unsnappy_block(view, max_bytes)
    _require(len(view) >= len(_XERIAL), "the header is cut short")
    parts, at, total = [], len(_XERIAL), 0
    while at < len(view):
        _require(at + 4 <= len(view), "a block length is cut short")
        (length,) = struct.unpack_from(">i", view, at)
        at += 4
        _require(
            0 <= length <= len(view) - at, f"a block of {length} bytes goes beyond the payload"
        )
        parts.append(_unsnappy_block(view[at : at + length], max_bytes - total))
        total += len(parts[-1])
        at += length
    return b"".join(parts)


def _unsnappy_block(block: memoryview, max_bytes: int) -> bytes:
    size = cramjam.snappy.decompress_raw_len(block)
    _require_within(size, max_bytes)
    _require(3 * size <= 64 * len(block), f"{len(block)} bytes cannot expand to {size}")
    return bytes(cramjam.snappy.decompress_raw(block))


def _unlz4(data: Any, max_bytes: int) -> bytes:
    stream = lz4.frame.LZ4FrameDecompressor()
    # The library allocates `max_length` immediately, and one byte never expands to more than 255.
    records: bytes = stream.decompress(data, max_length=min(max_bytes, 255 * len(data)) + 1)
    _require_within(len(records), max_bytes)
    _require(stream.eof, "the frame is cut short")
    _require(not stream.unused_data, "bytes follow the frame")
    return records


def _unzstd(data: Any, max_bytes: int) -> bytes:
    size = zstandard.frame_content_size(data)
    if size > max_bytes:
        _require_within(size, max_bytes)
    if 0 < size <= _ZSTD_MAX_RATIO * len(data):
        try:  # one frame of known size, the usual case
            return _zstd_context().decompress(data, allow_extra_data=False)
        except zstandard.ZstdError:
            pass  # several frames, or damage that raises below
    # Kafka's own writer does not declare the size.
    return _drain(_zstd_context().decompressobj, data, max_bytes)


def _drain(start: Callable[[], Any], data: Any, max_bytes: int) -> bytes:
    """Decompress all members of `data`, in steps too small to expand beyond the limit."""
    view, parts, at, total = memoryview(data), [], 0, 0
    step_bytes = max(1024, max_bytes // _ZSTD_MAX_RATIO)
    member = start()
    while at < len(view):
        if member.eof:
            member = start()
        step = view[at : at + step_bytes]
        parts.append(member.decompress(step))
        at += len(step) - len(member.unused_data)
        total += len(parts[-1])
        _require_within(total, max_bytes)
    _require(member.eof, "the stream is cut short")
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _zstd_context() -> zstandard.ZstdDecompressor:
    try:
        context: zstandard.ZstdDecompressor = _LOCAL.zstd
    except AttributeError:  # contexts must not be shared between threads
        context = _LOCAL.zstd = zstandard.ZstdDecompressor()
    return context


_LOCAL = threading.local()
_ZSTD_MAX_RATIO = 32 * 1024  # a block of 128 KiB has at least 4 compressed bytes

_LIBRARY_ERRORS = (
    zlib.error, zstandard.ZstdError, cramjam.DecompressionError, RuntimeError, ValueError, EOFError,
)  # fmt: skip

_DECOMPRESSORS: tuple[Callable[[Any, int], bytes], ...] = (
    partial(_drain, partial(zlib.decompressobj, _GZIP)), _unsnappy, _unlz4, _unzstd,
)  # fmt: skip


def _require(condition: bool, problem: str) -> None:
    if not condition:
        raise CorruptData(problem)


def _require_within(size: int, max_bytes: int) -> None:
    if size > max_bytes:
        raise CorruptData(f"payload decompresses to more than {max_bytes} bytes")
