"""One episode: at least twenty runs on three workers, at least two faults, and the recorded history."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import msgspec
from anyio.abc import TaskGroup
from anyio.streams.buffered import BufferedByteReceiveStream

from streamtools.events import ApprovalRequested, UIEvent, read_ui_event
from streamtools.tools.redis_client import open_client
from tests.cluster.network import Relay
from tests.cluster.worker import Plan, Setting, note_waits, work
from tests.support.redis_server import RedisServer

LEASE = 0.6  # seconds
KEEP = 90.0  # longer than any episode
SECONDS = 10.0  # duration of an episode, at the end of which all runs must have ended
_LONGEST = 45.0  # maximum duration on a slow machine
_LATE = "-late"  # ends the ids of runs that start after all faults, so that all requests arrive
_FAULTS = ("kill", "pause", "cut", "stall", "swallow to", "swallow from", "redis")


@dataclass
class Fault:
    """One fault: its kind, the worker (None: Redis), and its time."""

    kind: str
    worker: int | None
    begun: float
    over: float


@dataclass
class Reading:
    """The events that one reader received of a run, over all of its connections."""

    run: str
    events: list[UIEvent] = field(default_factory=list)
    connections: int = 0
    is_over: bool = False


@dataclass
class Asked:
    """A stop or an approval, and its answer."""

    kind: str
    run: str
    begun: float
    over: float = 0.0
    answer: str = ""
    worker: int = 0


@dataclass
class History:
    """Everything that was recorded in an episode."""

    seed: int
    plans: dict[str, Plan]
    started: dict[str, float] = field(default_factory=dict)
    starters: dict[str, set[int]] = field(default_factory=dict)
    """The workers that were asked to start a run. One of them drives it, unless that worker has a fault."""
    readings: list[Reading] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    slow: list[Fault] = field(default_factory=list)
    """Times at which the machine was too slow for such short leases. They count as faults."""
    waits: list[Fault] = field(default_factory=list)
    """Times at which the scheduler delayed a process for some turns. A message and its answer take a dozen turns."""
    effects: list[str] = field(default_factory=list)
    told: dict[str, list[UIEvent]] = field(default_factory=dict)
    """The log of each run, read at the end."""
    answers: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    """Keys that do not expire."""
    everysec: bool = False


class Worker:
    """A process that serves runs, with spare processes that replace it after it was killed."""

    def __init__(self, relay_port: int, setting: Setting, spares: list[Spare]) -> None:
        self.setting = msgspec.structs.replace(setting, url=f"redis://127.0.0.1:{relay_port}")
        self.spares = spares
        self.pid = 0
        self.port = 0

    def start(self) -> None:
        """Use the next spare process."""
        spare = self.spares.pop()
        self.pid, self.port = spare.pid, spare.port
        os.write(spare.pipe, msgspec.json.encode(self.setting))
        os.close(spare.pipe)


@dataclass
class Spare:
    """A process that waits for its settings. It is forked before an event loop exists that it would inherit."""

    pid: int
    port: int
    pipe: int


def make_spares(count: int) -> list[Spare]:
    """Fork processes that wait for their settings."""
    made = list[Spare]()
    for _ in range(count):
        listening = socket.socket()
        listening.bind(("127.0.0.1", 0))
        listening.listen(64)
        reading, writing = os.pipe()
        pid = os.fork()
        if not pid:
            try:
                os.close(writing)
                for other in made:
                    os.close(other.pipe)
                os.setpgid(0, 0)
                with os.fdopen(reading, "rb") as told:
                    data = told.read()
                if data:
                    listening.setblocking(False)
                    work(listening, msgspec.json.decode(data, type=Setting))
            finally:
                os._exit(0)
        os.close(reading)
        made.append(Spare(pid, listening.getsockname()[1], writing))
        listening.close()
    return made


def run_episode(seed: int, *, plant: str | None = None, keep_folder: bool = False) -> History:
    """Run an episode, and return its history. Must not be called in an event loop or while other threads run."""
    dice = random.Random(seed)
    spares = make_spares(6)
    pids = [spare.pid for spare in spares]
    folder = Path(tempfile.mkdtemp(prefix="streamtools-cluster-"))
    try:
        return anyio.run(_Episode(seed, dice, folder, spares, plant).play)
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)
        for spare in spares:
            os.close(spare.pipe)
        if keep_folder:
            print(folder)
        else:
            shutil.rmtree(folder, ignore_errors=True)


class _Episode:
    def __init__(self, seed: int, dice: random.Random, folder: Path, spares: list[Spare], plant: str | None) -> None:
        self.dice = dice
        self.folder = folder
        self.spares = spares
        self.plant = plant
        plans = {}
        for number in range(20 + dice.randrange(5)):
            call = dice.choice((None, "pay", "pay", "sign"))
            id = f"run-{seed}-{number}"
            seconds, recovers = dice.choice((0.0, 0.02, 0.1)), dice.random() < 0.7
            plans[id] = Plan(id, dice.randrange(2, 30), seconds, call, recovers)
        for number in range(5):  # no fault excuses a failure of these
            id = f"run-{seed}-{number}{_LATE}"
            plans[id] = Plan(id, 2, 0.0, "sign")
        self.history = History(seed, plans, everysec=dice.random() < 0.2)
        self.workers: list[Worker] = []
        self.relays: list[Relay] = []
        self.begun = 0.0
        self.approved: set[str] = set()

    @property
    def now(self) -> float:
        return time.monotonic() - self.begun

    async def play(self) -> History:
        server = RedisServer(fsync="everysec" if self.history.everysec else "always")
        async with AsyncExitStack() as stack:
            stack.enter_context(server)
            for _ in range(3):
                self.relays.append(await stack.enter_async_context(Relay(server.port).serve()))
            for relay in self.relays:
                setting = Setting("", str(self.folder), LEASE, KEEP, self.plant)
                self.workers.append(Worker(relay.port, setting, self.spares))
                self.workers[-1].start()
            self.begun = time.monotonic()
            with anyio.CancelScope() as whole:
                async with anyio.create_task_group() as pinging:
                    pinging.start_soon(self._ping, server.url)
                    pinging.start_soon(note_waits, self.folder, LEASE)  # the relays are in this process
                    pinging.start_soon(self._end_in_time, whole)
                    async with anyio.create_task_group() as group:
                        group.start_soon(self._break, server)
                        for plan in self.history.plans.values():
                            late = plan.id.endswith(_LATE)
                            delay = (5.0 if late else 0.0) + (0.5 if late else 2.5) * self.dice.random()
                            seed = self.dice.randrange(1 << 30)
                            group.start_soon(self._follow, plan, delay, seed)
                    pinging.cancel_scope.cancel()
            await self._look(server.url)
        return self.history

    # The clients of the workers.

    async def _ask(self, worker: int, take: Callable[[Any], Awaitable[bool]] | None = None, **request: Any) -> str:
        """Return the result of a request: `ok`, the name of an error, or `lost` if the connection broke."""
        with suppress(OSError, anyio.EndOfStream, anyio.BrokenResourceError, anyio.IncompleteRead):
            async with await anyio.connect_tcp("127.0.0.1", self.workers[worker].port) as connection:
                await connection.send(msgspec.json.encode(request) + b"\n")
                buffer = BufferedByteReceiveStream(connection)
                while True:
                    line = msgspec.json.decode(await buffer.receive_until(b"\n", 1 << 20))
                    if "event" in line:
                        assert take is not None
                        if await take(line["event"]):
                            return "left"
                    else:
                        return "ok" if line.get("ok") else f"{line['fault']}: {line['why']}"
        return "lost"

    async def _follow(self, plan: Plan, delay: float, seed: int) -> None:
        dice = random.Random(seed)
        await anyio.sleep(delay)
        while plan.id not in self.history.started:  # a start whose answer was lost may have succeeded
            answer = "lost"
            with anyio.move_on_after(2.0):
                worker = dice.randrange(3)
                self.history.starters.setdefault(plan.id, set()).add(worker)
                answer = await self._ask(worker, do="start", plan=msgspec.to_builtins(plan))
            if "already has a run" in answer:
                answer = await self._ask(dice.randrange(3), do="find", run=plan.id)
            if answer == "ok":
                self.history.started[plan.id] = self.now
            self.history.answers.append(f"{self.now:.2f} start {plan.id}: {answer}")
            await anyio.sleep(0.05)
        async with anyio.create_task_group() as group:
            for _ in range(dice.randrange(1, 3)):
                group.start_soon(self._read, plan, random.Random(dice.random()), group)
            if dice.random() < 0.2:
                group.start_soon(self._tell, "stop", plan, dice.random(), dice.randrange(3))

    async def _read(self, plan: Plan, dice: random.Random, group: TaskGroup) -> None:
        reading = Reading(plan.id)
        self.history.readings.append(reading)

        while not reading.is_over:
            reading.connections += 1
            count = dice.choice((3, 10, 1000))  # of events, after which the reader reconnects
            first = len(reading.events)

            async def take(data: Any, first: int = first, count: int = count) -> bool:
                event = read_ui_event(msgspec.json.encode(data))
                reading.events.append(event)
                if isinstance(event, ApprovalRequested) and event.call.id not in self.approved:
                    self.approved.add(event.call.id)
                    group.start_soon(self._approve, plan, event.call.id, random.Random(dice.random()))
                reading.is_over = event.type == "done"
                return reading.is_over or len(reading.events) - first >= count

            after = reading.events[-1].seq if reading.events else 0
            await self._ask(dice.randrange(3), take, do="read", run=plan.id, after=after)
            await anyio.sleep(0.02)

    async def _approve(self, plan: Plan, call: str, dice: random.Random) -> None:
        answer = ""
        while not answer.startswith(("ok", "DecisionRefused")):
            answer = await self._tell("approve", plan, 0.1 * dice.random(), dice.randrange(3), call)

    async def _tell(self, kind: str, plan: Plan, delay: float, worker: int, call: str = "") -> str:
        await anyio.sleep(delay)
        asked = Asked(kind, plan.id, self.now, worker=worker)
        self.history.asked.append(asked)
        asked.answer = await self._ask(worker, do=kind, run=plan.id, call=call)
        asked.over = self.now
        return asked.answer

    # Faults.

    async def _break(self, server: RedisServer) -> None:
        async with anyio.create_task_group() as group:
            for _ in range(self.dice.randrange(2, 5)):
                kind, worker = self.dice.choice(_FAULTS), self.dice.randrange(3)
                delay, length = 0.3 + 2.5 * self.dice.random(), 0.2 + 1.2 * self.dice.random()
                group.start_soon(self._do, kind, worker, delay, length, server)

    async def _end_in_time(self, whole: anyio.CancelScope) -> None:
        """End the episode after `SECONDS`. Seconds in which the machine was too slow do not count."""
        left = SECONDS
        while left > 0 and self.now < _LONGEST:
            begun = self.now
            await anyio.sleep(0.05)
            slow = self.history.slow and self.history.slow[-1].over > begun - 1.0
            left -= 0.0 if slow or self.now - begun > 0.1 or self._stalls() > begun - 1.0 else self.now - begun
        whole.cancel()

    def _stalls(self) -> float:
        """Return the end of the last delay of a worker by the scheduler; 0 if there was none."""
        try:
            written = (self.folder / "stalls").stat().st_mtime
        except FileNotFoundError:
            return 0.0
        return written - time.time() + self.now

    async def _ping(self, url: str) -> None:
        """Record the times at which the server is slow, for example because its disk is busy."""
        async with open_client(url) as client:
            while True:
                begun = self.now
                with suppress(Exception):
                    await client.execute("SET", "ping", 1)
                if self.now - begun > LEASE / 4:
                    self.history.slow.append(Fault("slow", None, begun, self.now))
                await anyio.sleep(0.05)

    async def _do(self, kind: str, number: int, delay: float, length: float, server: RedisServer) -> None:
        await anyio.sleep(delay)
        worker, relay = self.workers[number], self.relays[number]
        fault = Fault(kind, None if kind == "redis" else number, self.now, SECONDS)
        self.history.faults.append(fault)
        match kind:
            case "kill":
                os.kill(worker.pid, signal.SIGKILL)
                await anyio.sleep(length / 4)
                if self.spares:
                    worker.start()
            case "pause":
                pid = worker.pid
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
                    await anyio.sleep(length + LEASE)
                    os.kill(pid, signal.SIGCONT)
            case "cut":
                relay.cut()
            case "stall":
                async with relay.stalled():
                    await anyio.sleep(length + LEASE / 2)
            case "swallow to" | "swallow from":
                async with relay.swallowing("to" if kind == "swallow to" else "from"):
                    await anyio.sleep(length)
            case "redis":
                if sum(each.kind == "redis" for each in self.history.faults) == 1:
                    server.kill()
                    await anyio.sleep(length / 4)
                    server.start()
        fault.over = self.now

    # The final state.

    async def _look(self, url: str) -> None:
        async with open_client(url) as client:
            for run in self.history.started:
                key = f"streamtools:{{ann/{run}}}:"
                entries = await client.execute("XRANGE", key + "log", "-", "+")
                self.history.told[run] = [read_ui_event(data) for _, (_, data) in entries]
                for name in ("log", "meta"):
                    if await client.execute("PTTL", key + name) == -1:
                        self.history.left.append(key + name)
            for member in await client.execute("ZRANGE", "streamtools:running", 0, -1):
                self.history.left.append(f"running: {member.decode()}")
        for name, noted in (("stalls", self.history.slow), ("waits", self.history.waits)):
            with suppress(FileNotFoundError):
                for line in (self.folder / name).read_text().splitlines():
                    begun, over = map(float, line.split())
                    noted.append(Fault(name, None, begun - self.begun, over - self.begun))
        with suppress(FileNotFoundError):
            self.history.effects = (self.folder / "effects").read_text().split()
