"""The client of the benchmark of backends finds each delta, however the body is cut."""

from __future__ import annotations

import asyncio
from typing import Any

from benchmarks.backends.wire_load import _BEFORE, _END, _HEAD, Seen, _chunk, _Reading


class _Transport(asyncio.Transport):
    """A transport that drops what is written."""

    def write(self, data: Any) -> None:
        pass

    def close(self) -> None:
        pass


async def _read(*reads: bytes) -> Seen:
    reading = _Reading(b"", 1, stalled=False)
    reading.connection_made(_Transport())
    for data in reads:
        reading.data_received(data)
    return reading.seen


async def _check_all_cuts() -> None:
    delta = _BEFORE.partition(b"data: ")[2] + b'00000.000000000001;"}}]}\n\n'
    for chunk_end in range(1, len(delta)):
        body = _HEAD + _chunk(delta[:chunk_end]) + _chunk(delta[chunk_end:]) + _END
        for at in range(len(_HEAD), len(body)):
            seen = await _read(body[:at], body[at:])
            assert (seen.came, seen.wrong) == (1, 0), (chunk_end, at)
            assert b"[DONE]" in seen.tail


def test_a_delta_is_found_at_every_chunk_boundary_and_every_cut() -> None:
    """A server that forwards reads unchanged may begin a chunk in the middle of a delta."""
    asyncio.run(_check_all_cuts())
