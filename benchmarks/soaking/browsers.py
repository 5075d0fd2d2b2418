"""Browsers: clients of the measured process, in the provider's process, on bare sockets.

They read the native format to the end, or close the connection before; a run they read again behind what they saw.
"""

from __future__ import annotations

import asyncio
import random

from benchmarks.soaking.plans import Plan, make_plan
from benchmarks.soaking.tally import Tally
from benchmarks.soaking.witness import Witness, Wrong
from streamtools.events import read_ui_event

_EVENTS = 30  # behind which a browser goes away, at most


class _Gone(Exception):
    """The run is no longer stored."""


async def browse(port: int, seed: int, tally: Tally) -> None:
    """Request one stream, and compare the response with its plan. Raises `Wrong`."""
    plan = make_plan(seed)
    rng = random.Random(seed + 4)
    witness = Witness(plan, asks=False, ran=None)
    if rng.random() < 0.4:
        while witness.done is None:
            try:
                await _read(port, plan, "run", witness, rng.randint(1, _EVENTS) if rng.random() < 0.7 else None)
            except _Gone:
                witness.check_beginning()
                tally.add(witness, "came back too late")  # the application knows whether it was
                return
            tally.resumed += witness.done is None
        witness.close(left=False)
        tally.add(witness, None)
        return
    await _read(port, plan, "stream", witness, rng.randint(1, _EVENTS) if rng.random() < 0.3 else None)
    if witness.done is None:
        witness.check_beginning()
        tally.add(witness, "browser gone")
    else:
        witness.close(left=False)
        tally.add(witness, None)


async def _read(port: int, plan: Plan, kind: str, witness: Witness, most: int | None) -> None:
    """Read one response: all of it, or the given number of events."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        after = f"Last-Event-ID: {witness.count}\r\n" if witness.count else ""
        writer.write(f"GET /{kind}/{plan.seed} HTTP/1.1\r\nHost: soak\r\n{after}Connection: close\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        if after and head.startswith(b"HTTP/1.1 404"):
            raise _Gone
        if not head.startswith(b"HTTP/1.1 200"):
            raise Wrong(f"{head!r}")
        rest = b""
        while size := int(await reader.readline(), 16):
            rest += (await reader.readexactly(size + 2))[:-2]
            *frames, rest = rest.split(b"\n\n")
            for frame in frames:
                for line in frame.split(b"\n"):
                    if line.startswith(b"data: "):
                        witness.feed(read_ui_event(line[6:]))
                        if most is not None and witness.count >= most and witness.done is None:
                            return
        if rest or witness.done is None:
            raise Wrong(f"a response that ends with {rest!r} and {witness.done}")
    finally:
        writer.close()
