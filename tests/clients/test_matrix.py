"""Every client family reads the same lakes through the server, with the same checks."""

from collections.abc import Callable, Iterator

import pytest

from seglake.errors import SeglakeError
from tests.clients.families import PROGRAMS
from tests.clients.matrix import CHECKS, Check
from tests.clients.program import NoToolError, Program
from tests.clients.stage import Stage, staged
from tests.harness.tiers import of_today

# `make test-rest` runs one of two checks of each program, by the day; `make test-clients` runs all.
WINDOWS = of_today([program.name for program in PROGRAMS], 2)


def _is_short(program: Program, check: Check) -> bool:
    return check.name == ("window" if program.name in WINDOWS else "ours")


PAIRS = [
    pytest.param(
        program, check, id=f"{program.name}-{check.name}",
        marks=[pytest.mark.rest] if _is_short(program, check) else [pytest.mark.clients],
    )
    for program in PROGRAMS for check in CHECKS if check.is_for(program)
]  # fmt: skip


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with staged(tmp_path_factory.mktemp("stage")) as made:
        yield made


@pytest.mark.kafka
@pytest.mark.parametrize(("program", "check"), PAIRS)
@pytest.mark.long
def test_a_client(
    program: Program, check: Check, stage: Stage, record_property: Callable[[str, object], None]
) -> None:
    record_property("client", program.name)
    record_property("check", check.name)
    try:
        program.built()
        check.run(program, stage)
    except NoToolError as reason:
        pytest.skip(f"{program.name} cannot judge: {reason}")
    except SeglakeError as reason:
        pytest.skip(f"there are no logs of a broker: {reason}")
