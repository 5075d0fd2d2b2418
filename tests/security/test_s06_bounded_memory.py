"""S6: a marker that is never closed, and arguments that never end, take no more memory than the limits allow.

    python -m tests.security.endless

sends a gigabyte of them through the pipeline and prints the memory of the process. This module sends 64 megabytes, or
four in the quick tests.
"""

from __future__ import annotations

import pytest

from streamtools.limits import Limits
from tests.security.endless import STREAMS, run
from tests.support.bounds import peak

MIB = 1024 * 1024
SMALL = Limits(call=64 * 1024, frame=MIB, text=MIB)


@pytest.mark.parametrize("megabytes", [4, pytest.param(64, marks=pytest.mark.deep)])
@pytest.mark.parametrize("name", STREAMS)
def test_an_endless_stream_is_reported_once(name: str, megabytes: int) -> None:
    """It is reported when it exceeds the limit. After that, it is only counted."""
    told = run(name, megabytes * MIB)
    codes = [each for each in told if each.startswith(("error", "warning"))]

    first = "warning forged_result" if name == "a forged result" else "error too_large"
    assert [first, "warning skipped", "error stream_interrupted"] == codes
    assert len(told) < 12


@pytest.mark.parametrize("megabytes", [1, pytest.param(4, marks=pytest.mark.deep)])
@pytest.mark.parametrize("name", STREAMS)
def test_memory_does_not_grow(name: str, megabytes: int) -> None:
    """A stream of four times the length needs no more memory."""
    size = megabytes * MIB
    run(name, MIB, SMALL)  # create what is cached
    once, more = (peak(lambda size=size: run(name, size, SMALL)) for size in (size, 4 * size))  # type: ignore[misc]

    assert more < once + MIB // 4
    assert more < 2 * (SMALL.call + SMALL.text)
