"""Compressed files and archives: what is in them, and what is said when they are damaged."""

import bz2
import gzip
import io
import tarfile
import tracemalloc
from typing import Any

import pytest
import zstandard

from seglake.errors import InputError
from tests.makers.files import read_bytes

LINES = [b'{"n":%d}' % k for k in range(20_000)]
DATA = b"\n".join(LINES)


def zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(data)


PACK = {"gzip": gzip.compress, "bz2": bz2.compress, "zstd": zstd}


@pytest.mark.parametrize("codec", PACK)
@pytest.mark.parametrize("compression", ["auto", "given"])
def test_content_is_what_was_packed(codec: str, compression: str) -> None:
    settings = {"compression": codec if compression == "given" else "auto"}
    packed = PACK[codec](DATA)
    found = read_bytes(packed, input=settings, task={"split_bytes": 100, "chunk_bytes": 4096})
    assert [row.value for row in found.rows] == LINES


@pytest.mark.parametrize("codec", PACK)
def test_members_and_frames_follow_one_another(codec: str) -> None:
    pack = PACK[codec]
    packed = pack(b'{"n":1}\n{"n"') + pack(b"") + pack(b":2}\n") + pack(b'{"n":3}')
    assert [row.value for row in read_bytes(packed).rows] == [b'{"n":1}', b'{"n":2}', b'{"n":3}']


@pytest.mark.parametrize("codec", PACK)
def test_an_empty_file_that_is_packed_has_no_rows(codec: str) -> None:
    assert read_bytes(PACK[codec](b"")).rows == []


@pytest.mark.parametrize("codec", PACK)
@pytest.mark.parametrize("kept", [0.1, 0.5, 0.999])
def test_a_file_that_is_cut_off_is_named(codec: str, kept: float) -> None:
    packed = PACK[codec](DATA)
    with pytest.raises(InputError, match=rf"broken\.{codec}: {codec} data is damaged or cut off"):
        read_bytes(packed[: int(len(packed) * kept)], name=f"broken.{codec}")


@pytest.mark.parametrize("codec", ["gzip", "bz2"])
def test_flipped_bits_are_noticed(codec: str) -> None:
    packed = bytearray(PACK[codec](DATA))
    packed[len(packed) // 2] ^= 0x55
    with pytest.raises(InputError, match="damaged"):
        read_bytes(bytes(packed))


@pytest.mark.parametrize("codec", ["gzip", "bz2"])
@pytest.mark.parametrize("position", [1, 12, 30])
def test_damage_at_the_beginning_of_a_later_member_is_noticed(codec: str, position: int) -> None:
    packed = bytearray(PACK[codec](b'{"n":2}\n' * 100))
    packed[position] ^= 0x55
    with pytest.raises(InputError, match="damaged"):
        read_bytes(PACK[codec](b'{"n":1}\n') + packed)


@pytest.mark.parametrize("codec", PACK)
@pytest.mark.parametrize("more", [b"more", bytes(100)], ids=["text", "zeros"])
def test_what_follows_the_last_member_is_not_passed_over(codec: str, more: bytes) -> None:
    with pytest.raises(InputError, match="damaged"):
        read_bytes(PACK[codec](DATA) + more)


def test_the_settings_may_name_a_codec_that_the_file_does_not_have() -> None:
    with pytest.raises(InputError, match="gzip data is damaged"):
        read_bytes(DATA, input={"compression": "gzip"})


@pytest.mark.parametrize("head", [b"PK\x03\x04zip", b"\xfd7zXZ\x00xz"])
def test_what_is_not_supported_is_said(head: bytes) -> None:
    with pytest.raises(InputError, match="give gzip, bz2, zstd, tar or plain files"):
        read_bytes(head + b"....")


def archive(files: dict[str, bytes]) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as tar:
        folder = tarfile.TarInfo("folder")
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return target.getvalue()


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstd])
def test_archives_are_read_member_by_member(pack: Any) -> None:
    data = archive({"folder/a": DATA, "b": b'{"n":-1}'})
    found = read_bytes(pack(data), headers={"source": True}, task={"split_bytes": 100})
    assert [row.value for row in found.rows] == [*LINES, b'{"n":-1}']
    first, last = dict(found.rows[0].headers), dict(found.rows[-1].headers)
    assert (first[b"seglake.source.file"] or b"").endswith(b"/file!folder/a")
    assert (last[b"seglake.source.file"] or b"").endswith(b"/file!b")
    assert last[b"seglake.source.line"] == b"1"  # of its own file


def test_an_archive_that_is_cut_off_is_named() -> None:
    packed = gzip.compress(archive({"a": DATA}))
    with pytest.raises(InputError, match="file: gzip data is damaged"):
        read_bytes(packed[:-2000])
    with pytest.raises(InputError, match="file: tar data is damaged"):
        read_bytes(archive({"a": DATA})[:-20_000])


def test_a_bomb_needs_no_memory() -> None:
    bomb = gzip.compress(b"a" * 50_000_000)
    tracemalloc.start()
    found = read_bytes(bomb, task={"chunk_bytes": 1 << 20})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [reject.reason for reject in found.rejects] == ["record too large"]
    assert peak < 20_000_000
