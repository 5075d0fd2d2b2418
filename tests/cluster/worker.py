"""A worker process. It serves runs of the shared store over a socket, with one JSON request for each connection."""

from __future__ import annotations

import logging
import os
import random
import socket
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
import structlog
from anyio.abc import SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from streamtools import ApprovalOptions, chat, sources
from streamtools.conversation import Ask, Chat
from streamtools.errors import DecisionRefused, OwnerUnreachable, RunNotFound
from streamtools.events import NativeToolCall, ProviderCompleted, SourceEvent, TextDelta
from streamtools.history import Assistant
from streamtools.runs import LostRun, RedisStore, Runs
from streamtools.tools import SQLiteLedger, Tool
from tests.cluster import plants

OWNER = "ann"
END = " That is all."


class Plan(msgspec.Struct):
    """The texts and the call of a run. `seconds` is the pause between two texts, and the duration of the tool.

    If its process is lost, a run that `recovers` is continued, and any other run ends.
    """

    id: str
    texts: int
    seconds: float
    call: str | None = None  # "pay", or "sign", which waits for approval
    recovers: bool = True

    @property
    def pieces(self) -> list[str]:
        """The pieces of the first answer."""
        dice = random.Random(self.id)
        return [f"{number} {'x' * dice.randrange(40)}" for number in range(self.texts)]

    @property
    def text(self) -> str:
        """The text of the whole run."""
        return "".join(self.pieces) + (END if self.call else "")


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
    chats = Chats(folder)
    store = RedisStore(setting.url, lease=setting.lease, keep=setting.keep, recover=chats.recover, max_recoveries=50)
    async with anyio.create_task_group() as group, Runs(store, ledger=ledger, grace=1.0) as runs:
        group.start_soon(note_waits, folder, setting.lease)
        listener = await anyio.abc.SocketListener.from_socket(listening)
        await listener.serve(_Worker(runs, chats).answer)


class Chats:
    """Makes the chats of the runs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def recover(self, lost: LostRun) -> Chat | None:
        plan = msgspec.convert(lost.note, Plan)
        return self.make(plan, lost) if plan.recovers else None

    def make(self, plan: Plan, lost: LostRun | None = None) -> Chat:
        async def pay(key: str) -> str:
            """Do something that cannot be undone."""
            with (self._folder / "effects").open("a") as file:
                file.write(f"{key}\n")
            await anyio.sleep(plan.seconds)
            return f"paid {key}"

        return chat(
            _Model(plan),
            [{"role": "user", "content": "Go on."}],
            tools=[Tool(pay), Tool(pay, name="sign", requires_approval=True)],
            run_id=None if lost else plan.id,
            continue_from=lost,
            approvals=ApprovalOptions(ask="now", timeout=60),
        )


class _Model:
    """A model that continues a prefill. Its second answer follows the call of the plan."""

    name, prefill, native_tool_calls = "model", "vllm", True

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.options: dict[str, Any] = {}

    def body(self, ask: Ask) -> dict[str, Any]:
        return {}

    @asynccontextmanager
    async def stream(self, ask: Ask) -> AsyncIterator[Any]:
        yield sources.events(self._say(ask))

    async def _say(self, ask: Ask) -> AsyncIterator[SourceEvent]:
        plan, dice = self._plan, random.Random(self._plan.id)
        is_first = not any(isinstance(message, Assistant) for message in ask.history)
        shown = len(ask.prefill or "")
        for piece in plan.pieces if is_first else [END]:
            text, shown = piece[shown:], max(0, shown - len(piece))
            if text:
                yield TextDelta(text)
                await anyio.sleep(plan.seconds * dice.random())
        makes_call = is_first and plan.call is not None
        if makes_call:
            yield NativeToolCall(plan.call, {"key": plan.id}, id=f"call-{plan.id}")
        yield ProviderCompleted(finish_reason="tool_calls" if makes_call else "stop")


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
    def __init__(self, runs: Runs, chats: Chats) -> None:
        self._runs = runs
        self._chats = chats

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
                plan = msgspec.convert(request["plan"], Plan)
                await self._runs.start(self._chats.make(plan), owner=OWNER, note=request["plan"])
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
