"""A real S3 server on loopback: versitygw, built once with Go from its pinned sources.

`python -m tests.harness.s3_server [COMMAND …]` runs a command, or else a shell, beside a server
that has a bucket `seglake`; the environment names the server and holds its keys, which are new
every time.
"""

import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.harness.ports import free_ports

VERSION = "v1.8.0"
MODULE = "github.com/versity/versitygw/cmd/versitygw"
CACHE = Path(__file__).resolve().parents[2] / ".s3" / "bin"
BUCKET, REGION = "seglake", "us-east-1"
PATIENCE_S = 300


class NoServerError(RuntimeError):
    """The server is not cached and cannot be built."""


@dataclass(frozen=True)
class Server:
    """A running server. Its buckets are the folders in `folder`, their objects the files there."""

    endpoint: str
    folder: Path
    access_key: str = field(repr=False)
    secret_key: str = field(repr=False)
    pid: int = 0


def binary() -> Path:
    """The server's program, built first if it is not cached. Raises NoServerError."""
    program = CACHE / f"versitygw-{VERSION}"
    if not program.is_file():
        _build(program)
    return program


def _build(program: Path) -> None:
    go = shutil.which("go")
    if go is None:
        raise NoServerError(f"{program.name} is built with Go, and there is no go in PATH")
    program.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=program.parent) as scratch:
        done = subprocess.run(
            [go, "install", f"{MODULE}@{VERSION}"],
            env={**os.environ, "GOBIN": scratch},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise NoServerError(f"go install {MODULE}@{VERSION}:\n{done.stderr}")
        Path(scratch, "versitygw").rename(program)  # whole or absent, also if two build at once


@contextmanager
def s3_server(folder: Path) -> Iterator[Server]:
    """A server with one empty bucket below `folder`; it is stopped whatever happens.

    Raises NoServerError.
    """
    program, data = binary(), folder / "buckets"
    (data / BUCKET).mkdir(parents=True)
    address = "127.0.0.1:{}".format(*free_ports(1))
    server = Server(f"http://{address}", data, secrets.token_hex(10), secrets.token_hex(20))
    keys = {"ROOT_ACCESS_KEY": server.access_key, "ROOT_SECRET_KEY": server.secret_key}
    command = [str(program), "--quiet", "--keep-alive", "--port", address, "posix", str(data)]
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            command, env={**os.environ, **keys}, stdout=log, stderr=subprocess.STDOUT
        )
    try:
        _await(process, address, folder / "server.log")
        yield replace(server, pid=process.pid)
    finally:
        process.kill()
        process.wait()


def _await(process: subprocess.Popen[bytes], address: str, log: Path) -> None:
    host, port = address.split(":")
    deadline = time.monotonic() + PATIENCE_S
    while process.poll() is None and time.monotonic() < deadline:
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise RuntimeError(f"the S3 server does not answer at {address}:\n{log.read_text()}")


def environment(server: Server) -> dict[str, str]:
    """What a process needs in its environment to reach the server without any storage option."""
    return {
        "AWS_ENDPOINT_URL": server.endpoint,
        "AWS_REGION": REGION,
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": server.access_key,
        "AWS_SECRET_ACCESS_KEY": server.secret_key,
    }


def main(command: list[str]) -> int:
    """Run a command beside a server; returns its exit code."""
    with tempfile.TemporaryDirectory() as folder, s3_server(Path(folder)) as server:
        print(f"s3://{BUCKET} at {server.endpoint}, until this shell ends", file=sys.stderr)
        run = command or [os.environ.get("SHELL", "/bin/sh")]
        place = {**os.environ, **environment(server)}
        return subprocess.run(run, env=place, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
