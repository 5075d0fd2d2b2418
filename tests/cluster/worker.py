"""A worker process. It serves runs of the shared store over a socket, with one JSON request for each connection."""

from __future__ import annotations

import logging
import os
import random
import socket
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import msgspec
import structlog
from anyio.abc import SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from streamtools import ApprovalOptions, RunnerOptions, ToolStream, sources
from streamtools.errors import DecisionRefused, OwnerUnreachable, RunNotFound
from streamtools.events import NativeToolCall, ProviderCompleted, SourceEvent, TextDelta
from streamtools.runs import RedisStore, Runs
from streamtools.tools import SQLiteLedger, Tool
from tests.cluster import plants

OWNER = "ann"


class Plan(msgspec.Struct):
    """The texts and the call of a run. `seconds` is the pause between two texts, and the duration of the tool."""

    id: str
    texts: int
    seconds: float
    call: str | None = None  # "pay", or "sign", which waits for approval


class Setting(msgspec.Struct):
    """The settings of a worker."""

    url: str
    folder: str
    lease: float
    keep: float
    plant: str | None = None


def work(listening: socket.socket, setting: Setting) -> None:
    """Serve until the process is killed."""
    log = (Path(setting.folder) / f"worker-{os.getpid()}.log").open("a", buffering=1)
    os.dup2(log.fileno(), sys.stderr.fileno())
    structlog.configure(
        processors=[structlog.processors.TimeStamper("iso"), structlog.dev.ConsoleRenderer(colors=False)],
        logger_factory=structlog.PrintLoggerFactory(log),
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
    )
    if setting.plant is not None:
        plants.plant(setting.plant)
    anyio.run(_serve, listening, setting)


async def _serve(listening: socket.socket, setting: Setting) -> None:
    folder = Path(setting.folder)
    ledger = SQLiteLedger(folder / "ledger.db", lease=2 * setting.lease)
    store = RedisStore(setting.url, lease=setting.lease, keep=setting.keep, ledger=ledger)
    async with anyio.create_task_group() as group, Runs(store, grace=1.0) as runs:
        group.start_soon(note_waits, folder, setting.lease)
        server = _Worker(runs, folder, ledger)
        listener = await anyio.abc.SocketListener.from_socket(listening)
        await listener.serve(server.answer)


async def note_waits(folder: Path, lease: float) -> None:
    """Record the times at which the scheduler delayed this process: shortly, or so long that leases may expire."""
    while True:
        due = time.monotonic() + 0.02
        await anyio.sleep(0.02)
        now = time.monotonic()
        for name, most in (("waits", lease / 20), ("stalls", lease / 4)):
            if now - due > most:
                with (folder / name).open("a") as file:
                    file.write(f"{due} {now}\n")


class _Worker:
    def __init__(self, runs: Runs, folder: Path, ledger: SQLiteLedger) -> None:
        self._runs = runs
        self._folder = folder
        self._ledger = ledger

    async def answer(self, client: SocketStream) -> None:
        async with client:
            try:
                request = msgspec.json.decode(await BufferedByteReceiveStream(client).receive_until(b"\n", 1 << 16))
                async for line in self._lines(request):
                    await client.send(msgspec.json.encode(line) + b"\n")
            except (anyio.BrokenResourceError, anyio.EndOfStream, anyio.IncompleteRead):
                pass

    async def _lines(self, request: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        try:
            if request["do"] == "start":
                await self._runs.start(self._stream(msgspec.convert(request["plan"], Plan)), owner=OWNER)
            else:
                run = await self._runs.find(request["run"], owner=OWNER)
                match request["do"]:  # nothing else for `find`
                    case "read":
                        async for event in run.attach(request["after"]):
                            yield {"event": msgspec.to_builtins(event)}
                    case "stop":
                        await run.stop()
                    case "approve":
                        await run.approve(request["call"])
            yield {"ok": True}
        except (RunNotFound, DecisionRefused, OwnerUnreachable) as error:
            yield {"fault": type(error).__name__, "why": str(error)}
        except Exception as error:
            yield {"fault": "other", "why": repr(error)}

    def _stream(self, plan: Plan) -> ToolStream:
        async def pay(key: str) -> str:
            """Do something that cannot be undone."""
            with (self._folder / "effects").open("a") as file:
                file.write(f"{key}\n")
            await anyio.sleep(plan.seconds)
            return f"paid {key}"

        tools = [Tool(pay), Tool(pay, name="sign", requires_approval=True)]
        return ToolStream(
            sources.events(_say(plan)),
            tools=tools,
            run_id=plan.id,
            runner=RunnerOptions(ledger=self._ledger),
            approvals=ApprovalOptions(ask="now", timeout=60),
        )


async def _say(plan: Plan) -> AsyncIterator[SourceEvent]:
    dice = random.Random(plan.id)
    for number in range(plan.texts):
        yield TextDelta(f"{number} " + "x" * dice.randrange(40))
        await anyio.sleep(plan.seconds * dice.random())
    if plan.call is not None:
        yield NativeToolCall("0", plan.call, {"key": plan.id}, f"call-{plan.id}")
    yield ProviderCompleted(finish_reason="tool_calls" if plan.call else "stop")
