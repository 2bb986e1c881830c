"""Where compiled kernels are kept and found, above all in a package that cannot be written to."""

import ast
import ctypes
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path

import pytest

import seglake
from seglake.compile.cache import _require_safe, kernel_sources
from seglake.compile.fallback import WAITS
from seglake.log.fetch_kernels import _mark
from tests.harness.tiers import rest_but

USE = """
import logging, sys
logging.basicConfig(format="%(message)s")
import seglake
from seglake.format.batch import TABLE
from seglake.format.records import Spans
from seglake.text.utf8 import invalid_utf8
import seglake.text.newlines, seglake.times.time_kernels
assert seglake.__file__.startswith(sys.argv[1])
print(invalid_utf8(*Spans.from_list([b"a", b"\\xff"])).tolist())
"""
PACKAGE = Path(seglake.__file__).parent
DAC_OVERRIDE, CAPBSET_DROP = 1, 24

pytestmark = [
    pytest.mark.slow,  # processes of their own, which compile
    pytest.mark.skipif(sys.platform != "linux", reason="asks Linux to obey permissions"),
]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources, and the kernels that `USE` compiles beside them."""
    copy = tmp_path_factory.mktemp("built") / "package"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(seglake.__file__).parent, copy / "seglake", ignore=ignored)
    assert used(copy, copy.parent) == []
    assert compiled(copy)
    return copy


@pytest.fixture
def package(built: Path, tmp_path: Path) -> Path:
    """A package with compiled kernels, elsewhere."""
    return Path(shutil.copytree(built, tmp_path / "package"))


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    (folder := tmp_path / "tmp").mkdir()
    return folder


@contextmanager
def read_only(package: Path) -> Iterator[None]:
    """In the block nobody may write to the package."""
    folders = [package, *(path for path in package.rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    yield
    for folder in folders:
        folder.chmod(0o755)


def obey_permissions() -> None:
    """After the next exec, root has no right to pass them over."""
    if os.geteuid() == 0:
        assert ctypes.CDLL(None).prctl(CAPBSET_DROP, DAC_OVERRIDE, 0, 0, 0) == 0


def used(package: Path, temporary: Path, before: str = "", **more: str) -> list[str]:
    """What a process says that uses kernels; its user's home is nowhere."""
    environment = {
        "PATH": os.environ["PATH"], "PYTHONPATH": str(package), "TMPDIR": str(temporary),
        "HOME": "/proc/none", "XDG_CACHE_HOME": "/proc/none",
        WAITS: "wait", **more,
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-B", "-c", before + USE, str(package)], env=environment, text=True,
        check=False, capture_output=True, preexec_fn=obey_permissions, cwd=temporary,
    )  # fmt: skip
    assert done.stdout == "[False, True]\n", done.stderr
    return done.stderr.splitlines()


def remove_kernels(package: Path) -> None:
    shutil.rmtree(package / "seglake" / "__pycache__")


def compiled(folder: Path) -> dict[Path, int]:
    """The kernels below a folder, and when they were compiled."""
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*.nbc")}


@pytest.mark.rest
def test_kernels_are_kept_in_a_temporary_folder(package: Path, temporary: Path) -> None:
    remove_kernels(package)
    with read_only(package):
        (said,) = used(package, temporary)
        folder = temporary / f"seglake-kernels-{os.geteuid()}"
        assert str(folder) in said
        assert folder.stat().st_mode & 0o777 == 0o700
        first = compiled(folder)
        assert first
        assert used(package, temporary) == []
        assert compiled(folder) == first


def test_kernels_that_came_with_a_package_are_used_where_nobody_may_write(
    package: Path, temporary: Path
) -> None:
    with read_only(temporary), read_only(package):
        assert used(package, temporary) == []
    assert not [*temporary.iterdir()]


@pytest.mark.rest
def test_kernels_are_compiled_again_if_a_source_changes(package: Path, temporary: Path) -> None:
    first = compiled(package)
    with (package / "seglake" / "text" / "simd.py").open("a") as source:
        source.write("# changed\n")
    used(package, temporary)
    again = compiled(package)
    assert len(again) == 2 * len(first)
    assert first.items() < again.items()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("unsafe", ["owner", "mode", "link"])
def test_folders_that_another_user_can_write_are_unsafe(
    tmp_path: Path, unsafe: str, beside: bool
) -> None:
    source, folder = tmp_path / "source.py", tmp_path / "kernels"
    source.touch()
    folder.mkdir(0o700)
    check = partial(_require_safe, folder, source if beside else None)
    check()
    if unsafe == "owner":
        os.chown(folder, 4321, -1)
    elif unsafe == "mode":
        folder.chmod(0o777)
    else:
        folder.symlink_to(folder.rename(tmp_path / "elsewhere"))
    with pytest.raises(PermissionError):
        check()


@pytest.mark.parametrize("variable", rest_but(["NUMBA_CACHE_DIR", "XDG_CACHE_HOME", ""], ""))
def test_kernels_in_unsafe_folders_are_not_loaded(
    package: Path, temporary: Path, variable: str
) -> None:
    """A folder with damaged kernels, which are loaded while it is safe, is not read any more."""
    place = temporary / "place"
    if variable == "XDG_CACHE_HOME":
        remove_kernels(package)
    more = {variable: str(place)} if variable else {}
    with read_only(package) if variable else nullcontext():
        used(package, temporary, **more)
        folders = {path.parent for path in compiled(place if variable else package)}
        assert folders
        for folder in folders:
            folder.chmod(0o777)
            for index in folder.glob("*.nbi"):
                index.write_bytes(b"foreign")  # numba raises if it reads this
        used(package, temporary, **more)
        assert {index.read_bytes() for each in folders for index in each.glob("*.nbi")} == {
            b"foreign"
        }


def test_kernels_of_a_deleted_package_are_not_written(package: Path, temporary: Path) -> None:
    remove_kernels(package)
    deleted = "import shutil, sys\nimport seglake.format.batch, seglake.text.utf8\n"
    deleted += "import seglake.text.newlines, seglake.times.time_kernels\n"
    used(package, temporary, before=deleted + "shutil.rmtree(sys.argv[1])\n")
    assert not package.exists()


def test_compiler_stops_when_its_package_is_deleted(package: Path, temporary: Path) -> None:
    remove_kernels(package)
    with subprocess.Popen(
        [sys.executable, "-m", "seglake.warm", "--beside"], cwd=temporary,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(package), "TMPDIR": str(temporary)},
        stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        while process.poll() is None and not compiled(package):
            time.sleep(0.1)
        shutil.rmtree(package)
        process.wait(60)
    assert not package.exists()
    assert not [*temporary.glob("seglake-warm-*")]


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["read", "--help"]])
def test_version_and_help_start_no_compiler(temporary: Path, arguments: list[str]) -> None:
    environment = {**os.environ, WAITS: "", "TMPDIR": str(temporary)}
    environment["NUMBA_CACHE_DIR"] = str(temporary)
    command = [sys.executable, "-m", "seglake", *arguments]
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    assert not [*temporary.iterdir()]


def test_a_folder_that_was_chosen_has_all_kernels(package: Path, temporary: Path) -> None:
    """Its user has reasons, such as kernels that check bounds."""
    chosen = temporary / "chosen"
    assert used(package, temporary, NUMBA_CACHE_DIR=str(chosen)) == []
    assert {path.name for path in compiled(chosen)} == {path.name for path in compiled(package)}


def test_kernels_of_a_folder_that_others_can_write_to_are_not_loaded(
    package: Path, temporary: Path
) -> None:
    folder = temporary / f"seglake-kernels-{os.geteuid()}"
    folder.mkdir()
    folder.chmod(0o777)
    with read_only(package):
        (said,) = used(package, temporary, NUMBA_CPU_NAME="generic")
    assert "every process compiles them again" in said
    assert not [*folder.iterdir()]


@pytest.mark.rest
def test_with_another_numba_kernels_are_not_kept(package: Path, temporary: Path) -> None:
    first = compiled(package)
    (said,) = used(package, temporary, "import numba\nnumba.__version__ = '0.69.0'\n")
    assert "0.69.0" in said
    assert compiled(package) == first
    assert not [*temporary.iterdir()]


def test_all_modules_with_kernels_are_hashed() -> None:
    sources = {path for path in PACKAGE.rglob("*.py") if " import njit\n" in path.read_text()}
    assert sources - {*PACKAGE.glob("compile/*")} <= {*kernel_sources()}
    assert PACKAGE / "text" / "simd.py" in kernel_sources()


def test_only_the_compile_package_uses_private_parts_of_numba() -> None:
    """Decision 22 lists them."""
    used = {
        f"{node.module}.{alias.name}"
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("numba.")
        for alias in node.names
    }
    assert {name for name in used if not name.startswith("numba.extending.")} == {
        "numba.core.caching", "numba.core.runtime.nrt.rtsys",
        "numba.core.cgutils", "numba.core.compiler_lock.global_compiler_lock",
    }  # fmt: skip


def test_a_private_kernel_is_refused_in_python() -> None:
    with pytest.raises(TypeError, match="_mark is private"):
        _mark(0, 0)
