"""The ways of writing a backend, their servers, and the measurements."""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from benchmarks.backends import profiling
from benchmarks.backends.servers import NginxServer, NodeServer, PythonServer, Server, find_nginx, install_node_packages
from benchmarks.backends.wire_load import Pace, Provider, Seen, ask, open_all

PAUSE = 0.02  # seconds between two deltas of a paced stream
LATE = 20.0  # milliseconds of delay, at the 99th percentile, at which a core carries no more
LOADS = (0.3, 0.7)  # of what a core carries
RATE = 2000  # deltas of all streams together in a second, however many streams there are
FEW = 100  # streams, beside which many are measured
FAST = ("uvloop", "httptools", "httpx_aiohttp")  # the event loop, uvicorn's protocol, and the HTTP client
_SETTLED = 16  # seconds in which the deltas of many streams come


@dataclass(frozen=True)
class Row:
    """A way of writing a backend."""

    name: str
    page: str
    path: str
    ends: bytes
    """What the end of the body holds."""
    target: float | None = None
    readers: int = 1
    fast: bool = False
    """Whether it is served with the packages of the extra `fast`."""

    @property
    def program(self) -> str:
        """The program that serves the row: python, node or nginx."""
        first = self.page.partition("_")[0]
        return first if first in ("node", "nginx") else "python"

    @property
    def shared(self) -> bool:
        """Whether the row needs Redis, which keeps a server busy all the time."""
        return self.page == "redis_run"


ROWS = [
    Row("bare pass-through", "bare", "/bare", b"[DONE]"),
    Row("bare, fast", "bare", "/bare", b"[DONE]", fast=True),
    Row("bare, 20 readers of one answer", "bare_broadcast", "/bare_broadcast", b"[DONE]", readers=20),
    Row("bare, 20 readers, fast", "bare_broadcast", "/bare_broadcast", b"[DONE]", readers=20, fast=True),
    Row("bare, 20 readers, max_rate=30", "bare_broadcast", "/bare_broadcast?max_rate=30", b"[DONE]", readers=20),
    Row("engine in one task, ai_sdk", "one_task", "/one_task", b"[DONE]"),
    Row("loop by hand over httpx-sse", "by_hand", "/by_hand", b"[DONE]"),
    Row("streamtools, native", "native", "/native", b"event: done", 1.2),
    Row("streamtools, ag_ui", "ag_ui", "/ag_ui", b"RUN_FINISHED", 1.2),
    Row("streamtools, ai_sdk", "ai_sdk", "/ai_sdk", b"[DONE]", 1.2),
    Row("ai_sdk, fast", "ai_sdk", "/ai_sdk", b"[DONE]", 0.45, fast=True),
    Row("ai_sdk, max_rate=30", "ai_sdk", "/ai_sdk?max_rate=30", b"[DONE]"),
    Row("ai_sdk, max_rate=30, fast", "ai_sdk", "/ai_sdk?max_rate=30", b"[DONE]", fast=True),
    Row("a run, one reader", "run", "/run", b"event: done", 1.25),
    Row("a run, fast", "run", "/run", b"event: done", fast=True),
    Row("a run, 20 readers", "run", "/run", b"event: done", readers=20),
    Row("a run, 20 readers, max_rate=30", "run", "/run?max_rate=30", b"event: done", readers=20),
    Row("a run, 20 readers, max_rate=30, fast", "run", "/run?max_rate=30", b"event: done", readers=20, fast=True),
    Row("gateway", "gateway", "/gateway/v1/chat/completions", b"[DONE]", 1.6),
    Row("gateway, max_rate=30", "gateway_in_slots", "/gateway_in_slots/v1/chat/completions", b"[DONE]"),
    Row("a run on Redis", "redis_run", "/redis_run", b"event: done", 2.5),
    Row("nginx, proxy_pass", "nginx", "/nginx", b"[DONE]"),
    Row("Node, pipe", "node_pipe", "/node_pipe", b"[DONE]"),
    Row("Node, loop over fetch", "node_fetch", "/node_fetch", b"[DONE]"),
    Row("Node, AI SDK", "node_ai_sdk", "/node_ai_sdk", b"[DONE]"),
    Row("LiteLLM's proxy", "litellm", "/litellm/v1/chat/completions", b"[DONE]"),
    Row("loop by hand over the openai SDK", "openai", "/openai", b"[DONE]"),
    Row("OpenAI Agents SDK", "openai_agents", "/openai_agents", b"[DONE]"),
    Row("LangChain, an agent", "langchain", "/langchain", b"[DONE]"),
    Row("pydantic-ai, AG-UI", "pydantic_ai_ag_ui", "/pydantic_ai_ag_ui", b"RUN_FINISHED"),
    Row("pydantic-ai, Vercel", "pydantic_ai_vercel", "/pydantic_ai_vercel", b"[DONE]"),
]


class Bench:
    """The provider, the servers, and the measurements."""

    def __init__(self, provider: Provider, redis: str, chosen: argparse.Namespace) -> None:
        self.provider = provider
        self._redis = redis
        self._chosen = chosen
        self._servers: dict[tuple[str, bool, str], Server] = {}
        self.programs: dict[str, str] = {}
        """The path of the interpreter or server of each page."""
        self._runs = 0

    def server(self, row: Row) -> Server:
        """Return the server for a row."""
        kind = self.programs[row.page], row.fast, row.page if row.shared or row.page == "litellm" else ""
        if kind not in self._servers:
            self._servers[kind] = self.begin(row)
        return self._servers[kind]

    def begin(self, row: Row) -> Server:
        """Start a server for a row."""
        program, chosen = self.programs[row.page], self._chosen
        if row.program == "nginx":
            return NginxServer(program, self.provider.url)
        if row.program == "node":
            return NodeServer(program, self.provider.url)
        options = FAST if row.fast else (chosen.loop, chosen.http, chosen.client)
        redis = self._redis if row.shared else ""
        return PythonServer(program, self.provider.url, redis, options, proxy=row.page == "litellm")

    async def find_pages(self) -> None:
        """Find the pages of the servers, here and in the environments of peers."""
        for python in (sys.executable, *self._chosen.peers):
            server = PythonServer(python, self.provider.url, self._redis, ("asyncio", "h11", "httpx"), proxy=True)
            await self._add_pages(python, server)
        if node := shutil.which("node"):
            install_node_packages()
            await self._add_pages(node, NodeServer(node, self.provider.url))
        if nginx := find_nginx():
            self.programs["nginx"] = nginx

    async def _add_pages(self, program: str, server: Server) -> None:
        try:
            for page in json.loads(await ask(server.port, "/rows")):
                self.programs.setdefault(page, program)
        finally:
            server.close()

    def close(self) -> None:
        """End the servers."""
        for server in self._servers.values():
            server.close()

    def paths(self, row: Row, streams: int) -> Iterator[str]:
        """Yield the request paths of a row's clients: streams of the provider, with several readers each."""
        for _ in range(streams):
            self._runs += 1
            for _ in range(row.readers):
                run = f"{'&' if '?' in row.path else '?'}run={self._runs}" if row.readers > 1 else ""
                yield row.path + run

    async def measure(self, row: Row, streams: int, pace: Pace) -> tuple[float, list[int]]:
        """Return the server's processor seconds for each delta, and the delay of each delta at a client."""
        server = self.server(row)
        self.provider.pace = pace
        before = server.time()
        opened = await open_all(server.port, self.paths(row, streams))
        seen = await asyncio.gather(*(each.over for each in opened))
        spent = server.time() - before
        for each in seen:
            check(row, each, pace.deltas)
        return spent / (streams * pace.deltas), [late for each in seen for late in each.late]

    async def first(self, row: Row, requests: int) -> list[int]:
        """Return the microseconds from each request to its first text. The provider answers immediately."""
        server = self.server(row)
        self.provider.pace = Pace(1, None)
        waited = []
        for _ in range(requests):
            [opened] = await open_all(server.port, self.paths(row, 1))
            check(row, await opened.over, 1)
            waited.append(opened.seen.first)
        return waited

    async def count(self, row: Row, deltas: int) -> profiling.Counted:
        """Return the counted work of the server for one stream."""
        server = self.server(row)
        await ask(server.port, "/count")
        await self.measure(row, 1, Pace(deltas, 0.01 * (3 + row.readers)))  # as slow as counting is
        found: profiling.Counted = json.loads(await ask(server.port, "/count?end"))
        return found

    async def idle(self, row: Row, streams: int) -> float:
        """Return the memory of an open stream after its first deltas, with warm caches on both servers."""
        server = self.begin(row)
        try:
            self.provider.pace = Pace(3, 0.0, silent=True)
            held = []
            for _ in range(2):
                before = server.memory()
                opened = await open_all(server.port, self.paths(row, streams))
                await asyncio.gather(*(each.begun for each in opened))
                await asyncio.sleep(0.5)
                held.append((server.memory() - before) / streams)
            return held[-1]
        finally:
            server.kill()

    async def carries(self, row: Row, spent: float, seconds: float) -> Carried:
        """Return how many streams a core carries, and the delays at a part of that load.

        At the limit, one delta in a hundred is too late, or the processor is saturated.
        """
        pace = Pace(round(seconds / PAUSE), PAUSE)
        streams, most = max(2, round(0.4 * PAUSE / spent)), 0
        while True:
            _, late = await self.measure(row, streams, pace)
            if at(late, 0.99) > LATE:
                if most or streams <= 2:
                    break
                streams = round(streams * 0.6)
                continue
            most = streams
            streams = max(streams + 1, round(streams * 1.15))
        loads = []
        for part in LOADS:
            _, late = await self.measure(row, max(1, round(part * most)), pace)
            loads.append((at(late, 0.5), at(late, 0.99)))
        return Carried(most, loads)

    async def many(self, row: Row, streams: int) -> Many:
        """Return the server's cost of opening a stream, and of each delta while all are open."""
        pause = streams / RATE
        deltas = max(2, round(_SETTLED / pause)) + 1 if streams >= FEW else 3
        server = self.begin(row)
        try:
            self.provider.pace = Pace(deltas, pause, silent=True, held=True)
            before = server.time()
            opened = await open_all(server.port, self.paths(row, streams), deltas=deltas)
            await asyncio.gather(*(each.begun for each in opened))
            begun = server.time()
            self.provider.go_on()
            await asyncio.gather(*(each.whole for each in opened))
            spent = server.time() - begun
            lost = sum(each.seen.came != deltas or each.seen.wrong > 0 for each in opened)
            assert not lost, f"{row.name}: {lost} of {streams} streams were lost"
            return Many((begun - before) / streams, spent / (streams * (deltas - 1)))
        finally:
            server.kill()

    async def stalled(self, row: Row, seconds: float) -> Stalled:
        """Return the cost of a client that stops reading while the provider writes at full speed."""
        server = self.begin(row)
        try:
            self.provider.pace = Pace(100, None)  # what is loaded, or filled, when it is used first
            for each in await open_all(server.port, self.paths(row, 1)):
                await each.over
            before = server.memory()
            self.provider.written = self.provider.ended = 0
            self.provider.pace = Pace(10**5, None, silent=True)  # no more than its deltas have digits for
            await open_all(server.port, self.paths(row, 1), stalled=True)
            await asyncio.sleep(seconds / 2)
            half = self.provider.written
            await asyncio.sleep(seconds / 2)
            held = server.memory() - before
            waits = self.provider.written == half and not self.provider.ended
            return Stalled(self.provider.written, round(held), waits)
        finally:
            server.kill()


class Carried(NamedTuple):
    """How many streams a core carries, and the median and 99th percentile of the delay at a part of that, in ms."""

    streams: int
    loads: list[tuple[float, float]]


class Many(NamedTuple):
    """Processor seconds for each opened stream, and for each delta."""

    opening: float
    delta: float


class Stalled(NamedTuple):
    """The bytes written by the provider, the growth of the server in bytes, and whether the provider had to wait."""

    written: int
    held: int
    waits: bool


def check(row: Row, seen: Seen, deltas: int) -> None:
    """Raise AssertionError unless every delta arrived once and in order, followed by the end of the body."""
    assert (seen.came, seen.wrong) == (deltas, 0), f"{row.name}: {seen.came} of {deltas} deltas, {seen.tail[-300:]!r}"
    assert row.ends in seen.tail, f"{row.name}: no {row.ends!r} at the end: {seen.tail[-300:]!r}"


def at(late: list[int], part: float) -> float:
    """Return the delay in milliseconds that this share of the deltas does not exceed."""
    return sorted(late)[min(len(late) - 1, int(part * len(late)))] / 1000
