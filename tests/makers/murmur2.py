"""Kafka's hash of keys, which shares no code with the package."""

import struct


def murmur2(key: bytes) -> int:
    """Kafka's hash, written down from its definition."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    value = (0x9747B28C ^ len(key)) & mask
    whole = len(key) // 4 * 4
    for (word,) in struct.iter_unpack("<I", key[:whole]):
        mixed = word * m & mask
        mixed = (mixed ^ mixed >> 24) * m & mask
        value = value * m & mask ^ mixed
    if len(key) > whole:
        value = (value ^ int.from_bytes(key[whole:], "little")) * m & mask
    value = (value ^ value >> 13) * m & mask
    return (value ^ value >> 15) & 0x7FFFFFFF
