"""Compressed files and archives: what is in them, and what is said when they are damaged."""

import bz2
import gzip
import io
import shutil
import subprocess
import tarfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import zstandard
from pyarrow import feather, orc, parquet

from seglake.errors import InputError
from seglake.infer.pipeline import infer_pipeline
from tests.makers.files import pipeline, read, read_bytes

PACKED = [
    pytest.param(bytes, id="plain"),
    pytest.param(gzip.compress, id="gzip"),
    pytest.param(bz2.compress, id="bz2"),
]
LINES = [b'{"n":%d}' % k for k in range(20_000)]
DATA = b"\n".join(LINES)


def zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True).compress(data)


PACK: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "bz2": bz2.compress,
    "zstd": zstd,
}


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
    with pytest.raises(InputError, match=rf"broken\.{codec} has .* incomplete {codec} data"):
        read_bytes(packed[: int(len(packed) * kept)], name=f"broken.{codec}")


@pytest.mark.parametrize("codec", PACK)
def test_a_plain_file_that_settings_call_packed_is_not_called_damaged(codec: str) -> None:
    with pytest.raises(InputError, match=rf"not begin like {codec}. Correct input.compression"):
        read_bytes(DATA, input={"compression": codec})


@pytest.mark.parametrize("codec", PACK)
def test_no_flipped_byte_changes_the_rows(codec: str) -> None:
    """Of two members: headers, data, checksums and lengths. A byte such as gzip's time is free."""
    sound = b"".join(PACK[codec](b'{"n":%d}\n' % n * 9) for n in range(2))
    rows = read_bytes(sound, input={"compression": codec}).rows
    noticed = 0
    for at in range(len(sound)):
        damaged = bytearray(sound)
        damaged[at] ^= 0x55
        try:
            assert read_bytes(bytes(damaged), input={"compression": codec}).rows == rows
        except InputError:
            noticed += 1
    assert noticed > len(sound) // 2


@pytest.mark.parametrize("codec", PACK)
@pytest.mark.parametrize("more", [b"more", bytes(100)], ids=["text", "zeros"])
def test_what_follows_the_last_member_is_not_passed_over(codec: str, more: bytes) -> None:
    if (codec, more) == ("gzip", bytes(100)):
        return  # as gzip does; see the next test
    with pytest.raises(InputError, match="damaged"):
        read_bytes(PACK[codec](DATA) + more)


@pytest.mark.parametrize("size", [1, 511, 2**20])
@pytest.mark.parametrize("members", [1, 3])
def test_zeros_behind_the_last_gzip_member_are_skipped(size: int, members: int) -> None:
    """As tapes and block devices pad a file; other bytes behind them are no padding."""
    packed = gzip.compress(b'{"n":1}\n') * members + bytes(size)
    assert len(read_bytes(packed).rows) == members
    for more in (b"x", gzip.compress(b'{"n":2}\n')):
        with pytest.raises(InputError, match="other bytes follow the zeros"):
            read_bytes(packed + more)


def test_a_zstd_file_that_needs_an_option_names_the_command() -> None:
    wide = zstandard.ZstdCompressionParameters.from_level(1, window_log=28)
    stream = zstandard.ZstdCompressor(compression_params=wide).compressobj()
    samples: list[Any] = [b'{"t":%d,"user":"u%d"}' % (n, n * 7) for n in range(9999)]
    words = zstandard.train_dictionary(4096, samples)
    for data, command in [
        (stream.compress(b"{}") + stream.flush(), "zstd -dc --long=31"),
        (zstandard.ZstdCompressor(dict_data=words).compress(samples[0]), "zstd -dc -D DICTIONARY"),
    ]:
        with pytest.raises(InputError, match=command):
            read_bytes(data)


@pytest.mark.parametrize("magic", [0x50, 0x5F])
def test_a_zstd_file_may_begin_with_a_frame_to_skip(magic: int) -> None:
    """As pzstd writes them, and what is not there can be skipped as well."""
    skipped = bytes([magic]) + b"\x2a\x4d\x18" + (5).to_bytes(4, "little") + b'{"x":'
    found = read_bytes(skipped + zstd(b'{"n":1}\n') + skipped + zstd(b'{"n":2}\n') + skipped)
    assert [row.value for row in found.rows] == [b'{"n":1}', b'{"n":2}']
    assert read_bytes(skipped).rows == []
    with pytest.raises(InputError, match="incomplete zstd data"):
        read_bytes(skipped[:-1])


@pytest.mark.parametrize(
    ("head", "command"), [(b"PK\x03\x04zip", "unzip"), (b"\xfd7zXZ\x00xz", "xz -d")]
)
def test_what_is_not_supported_is_said(head: bytes, command: str) -> None:
    told = f"Unpack it with `{command} FILE`, because only gzip, bz2, zstd, tar and plain files"
    with pytest.raises(InputError, match=told):
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


def block_of(data: bytes, number: int, content: bytes) -> bytes:
    """An archive whose block with this number has other content."""
    at = 512 * number
    return data[:at] + content + data[at + 512 :]


def three() -> tuple[bytes, int]:
    """Three members of a block each, with the folder before them; where the zeros begin."""
    data = archive({name: b'{"n":"%s"}' % name.encode() for name in "abc"})
    return data, 512 * 7


@pytest.mark.parametrize("pack", PACKED)
@pytest.mark.parametrize("block", [1, 3, 5])
@pytest.mark.parametrize("byte", [0, 124, 148, 156, 400])
def test_a_damaged_header_is_noticed(pack: Any, block: int, byte: int) -> None:
    data, _ = three()
    header = bytearray(data[512 * block :][:512])
    header[byte] ^= 0x55
    with pytest.raises(InputError, match=r"file has damaged tar data .*\((bad|invalid) "):
        read_bytes(pack(block_of(data, block, bytes(header))))


@pytest.mark.parametrize("pack", PACKED)
@pytest.mark.parametrize("block", [3, 5])
def test_a_header_of_zeros_is_not_the_end(pack: Any, block: int) -> None:
    """One block of zeros ends an archive only if nothing follows."""
    data, _ = three()
    with pytest.raises(InputError, match=f"data at byte {512 * (block + 1):,}"):
        read_bytes(pack(block_of(data, block, bytes(512))))


@pytest.mark.parametrize("pack", PACKED)
def test_an_archive_without_its_end_is_noticed(pack: Any) -> None:
    """Cut at every block, and in the first block of zeros."""
    data, end = three()
    for size in range(1024, end + 1, 512):
        with pytest.raises(InputError, match=r"damaged .*tar data"):
            read_bytes(pack(data[:size]))
    with pytest.raises(InputError, match="without a block of zeros, so it was cut off"):
        read_bytes(pack(data[:end]))
    with pytest.raises(InputError, match="truncated header"):
        read_bytes(pack(data[: end + 511]))


@pytest.mark.parametrize("pack", PACKED)
def test_ends_of_archives_that_tools_write(pack: Any) -> None:
    """Blocks of zeros: one, two, to the end of a record, many; a buffer that was not cleared."""
    data, end = three()
    left_over = bytes(1024) + b"left over".ljust(512, b".") * 4
    ends = [bytes(512), bytes(513), bytes(1024), bytes(10_240 - end), bytes(100_000), left_over]
    for each in ends:
        assert len(read_bytes(pack(data[:end] + each)).rows) == 3


@pytest.mark.parametrize("pack", PACKED)
def test_archives_that_were_put_one_behind_another_are_refused(pack: Any) -> None:
    """TarFile and tar read the first alone: the rows of the second would be lost in silence."""
    data, end = three()
    for zeros in (512, 1024, 2048, 10_240 - end, 20_480):
        with pytest.raises(InputError, match="after the block of zeros that ends an archive"):
            read_bytes(pack(data[:end] + bytes(zeros) + data))
    with pytest.raises(InputError, match="data at byte 10,240"):
        read_bytes(pack(data[:end] + bytes(10_240 - end) + b"more"))


@pytest.mark.parametrize("codec", PACK)
def test_the_checksum_around_an_archive_is_checked(codec: str) -> None:
    """The bytes of the archive end long before those of the codec."""
    packed = bytearray(PACK[codec](three()[0] + bytes(2**20)))
    packed[-2] ^= 0x40
    with pytest.raises(InputError, match=f"incomplete {codec} data"):
        read_bytes(bytes(packed))


@pytest.mark.skipif(shutil.which("tar") is None, reason="there is no tar")
@pytest.mark.parametrize("form", ["gnu", "ustar", "pax"])
@pytest.mark.parametrize("blocks", [1, 20])
def test_archives_of_tar(form: str, blocks: int, tmp_path: Path) -> None:
    """Long names, a sparse file, links and folders."""
    long = "x" * 90
    (tmp_path / long / long).mkdir(parents=True)
    (tmp_path / long / long / "a").write_bytes(b'{"n":1}\n' * 1000)
    with (tmp_path / "b").open("wb") as sparse:
        sparse.seek(2**20 - 1)
        sparse.write(b"\n")
        sparse.write(b'{"n":2}\n')
    (tmp_path / "link").symlink_to("b")
    kinds = ["--sparse"] if form != "ustar" else []
    done = ["tar", f"--format={form}", f"--blocking-factor={blocks}", *kinds, "-cf", "a.tar"]
    subprocess.run([*done, long, "b", "link"], cwd=tmp_path, check=True)
    found = read(pipeline(tmp_path / "a.tar"))
    assert (len(found.rows), len(found.rejects)) == (1001, 1)


def test_a_bomb_needs_no_memory() -> None:
    bomb = gzip.compress(b"a" * 50_000_000)
    tracemalloc.start()
    found = read_bytes(bomb, task={"chunk_bytes": 1 << 20})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [reject.reason for reject in found.rejects] == ["record too large"]
    assert peak < 20_000_000


AVRO = b"Obj\x01\x04\x14avro.codec\x08null\x16avro.schema\x0c{\r\rab}\r\x10\r\x00\x01\x02more\r"


def columns(kind: str, path: Path) -> None:
    """A file of a column `n`, in a format of columns."""
    if kind == "Avro":
        path.write_bytes(AVRO)
        return
    if kind == "Feather":
        path.write_bytes(b"FEA1\0\0\0\0" + AVRO + b"FEA1")  # as old versions wrote it
        return
    if kind == "Arrow stream":
        table = pa.table({"n": range(100)})
        with pa.ipc.new_stream(str(path), table.schema) as stream:
            stream.write_table(table)
        return
    write: dict[str, Callable[..., Any]]
    write = {"Arrow": feather.write_feather, "ORC": orc.write_table, "Parquet": parquet.write_table}
    write[kind](pa.table({"n": range(100)}), str(path))


@pytest.mark.parametrize("kind", ["Arrow", "Arrow stream", "Avro", "Feather", "ORC", "Parquet"])
@pytest.mark.parametrize("form", ["jsonl", "csv", "text", "parquet", "init"])
def test_a_file_of_columns_is_named_with_what_to_do(kind: str, form: str, tmp_path: Path) -> None:
    columns(kind, tmp_path / "file")
    if (kind == "Parquet" and form != "csv") or (kind, form) == ("Avro", "init"):
        return  # it is read, or its lines are rejects with a hint
    with pytest.raises(InputError, match=f"file: the file is an? {kind}( file)?. ") as refused:
        infer_pipeline([str(tmp_path)]) if form == "init" else read(
            pipeline(tmp_path / "file", form)
        )
    is_format = kind in {"Avro", "Parquet"}
    remedy = f"Set input.format = '{kind.lower()}'" if is_format else "Convert it to Parquet"
    assert [remedy in str(refused.value), "tr '" in str(refused.value)] == [True, False]


@pytest.mark.parametrize("head", ["PAR1", "ARROW1", "FEA1", "ORC", "Obj\x1b"])
def test_a_text_may_begin_as_a_file_of_columns(head: str) -> None:
    (row,) = read_bytes(f"{head},n\na\tb,1\n".encode(), "csv").rows
    assert row.value == b"a\tb,1"


def test_a_binary_file_with_cr_alone_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"a,b\r\x01\x02\rc\r" * 9)
    with pytest.raises(InputError, match="file: the file contains binary bytes"):
        infer_pipeline([str(tmp_path)])
    with pytest.raises(InputError, match=r"the header of .*file cannot be read"):
        read(pipeline(tmp_path / "file", "csv"))
