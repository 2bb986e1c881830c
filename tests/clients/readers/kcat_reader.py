"""kcat, the command line of librdkafka, as a program of tests/clients/program.py."""

import json
import subprocess
import time

from tests.clients.program import Record
from tests.clients.readers.answering import Answer, Request, Taken, answer
from tests.harness.kcat import kcat_program

FORMAT = r"%p %o %T %K %S %h\n%k%s\n"


def kcat(request: Request, *arguments: str) -> bytes:
    """What it prints."""
    program, environment = kcat_program()
    settings = request.librdkafka_settings().items()
    options = [part for name, value in settings for part in ("-X", f"{name}={value}")]
    done = subprocess.run(
        [program, "-b", request.servers, *options, *arguments], env=environment, check=False,
        capture_output=True, timeout=max(0.0, request.deadline - time.monotonic()),
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(done.stderr.decode(errors="replace")[-2000:])
    return done.stdout


def taken_of(printed: bytes) -> Taken:
    """The records of FORMAT."""
    taken, at = Taken(), 0
    while at < len(printed):
        line = printed.index(b"\n", at)
        *numbers, headers = printed[at:line].split(b" ", 5)
        partition, offset, timestamp, key_size, value_size = map(int, numbers)
        middle = line + 1 + max(0, key_size)
        end = middle + max(0, value_size)
        key = None if key_size < 0 else printed[line + 1 : middle]
        value = None if value_size < 0 else printed[middle:end]
        taken.add(partition, Record(offset, timestamp, key, value, _headers(headers)))
        at = end + 1
    return taken


def _headers(printed: bytes) -> tuple[tuple[str, bytes | None], ...]:
    pairs = (each.partition(b"=") for each in printed.split(b",") if each)
    return tuple((name.decode(), value) for name, _, value in pairs)


def read(request: Request) -> Answer:
    """Until kcat says that the ends are reached."""
    printed = kcat(request, "-C", "-t", request.topic, "-o", "beginning", "-e", "-q", "-f", FORMAT)
    return taken_of(printed).hashed(request.ends)


def lookup(request: Request) -> Answer:
    """A process for each time."""
    found = list[int]()
    for partition, time_ms in request.asked:
        (line,) = kcat(request, "-Q", "-t", f"{request.topic}:{partition}:{time_ms}").splitlines()
        found.append(max(-1, int(line.rpartition(b" ")[2])))
    return {"offsets": found}


def group(request: Request) -> Answer:
    """A member that commits when it leaves."""
    printed = kcat(
        request, "-G", request.group, "-c", str(request.stop_after), "-q", "-f", FORMAT,
        "-X", "auto.offset.reset=earliest", request.topic,
    )  # fmt: skip
    return taken_of(printed).bounds()


def topics(request: Request) -> Answer:
    """All topics that the server lists."""
    found = json.loads(kcat(request, "-L", "-J"))["topics"]
    return {"topics": {each["topic"]: len(each["partitions"]) for each in found}}


if __name__ == "__main__":
    answer({"read": read, "lookup": lookup, "group": group, "topics": topics})
