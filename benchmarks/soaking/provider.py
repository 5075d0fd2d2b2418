"""The provider: a process that answers each request by the plan of the seed in its path.

It is the barest of HTTP servers, so that the processor is there for the process that is measured: a task for each
connection, which is kept alive between answers, and a pause before each chunk. What it has done is counted.
"""

from __future__ import annotations

import asyncio
import json
import random
import socket
import struct
from collections import Counter

from benchmarks.soaking.plans import Plan, make_plan
from benchmarks.soaking.wire import WIRES

_RESET = struct.pack("ii", 1, 0)  # to linger for no time, which makes closing a reset


class Provider:
    """Serves plans on a free port. `pace` is the mean of the seconds before a chunk."""

    def __init__(self, pace: float) -> None:
        self.done: Counter[str] = Counter()
        self._pace = pace

    async def start(self) -> int:
        """Start. Returns the port."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=4096)
        self._server = server
        return int(server.sockets[0].getsockname()[1])

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                for line in head.lower().split(b"\r\n"):
                    if line.startswith(b"content-length:"):
                        await reader.readexactly(int(line[15:]))
                plan = make_plan(int(head.split(b" ", 2)[1].rpartition(b"/")[2]))
                if not await self._answer(plan, reader, writer):
                    return
                self.done[plan.ending] += 1
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _answer(self, plan: Plan, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Send an answer. Returns whether the connection can be reused."""
        if plan.status != 200:
            await asyncio.sleep(self._pace)
            body = json.dumps({"error": {"message": f"status {plan.status}"}}).encode()
            head = f"HTTP/1.1 {plan.status} No\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body)
            return True
        declared = WIRES[plan.format].declared
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Type: {declared}\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        rng = random.Random(plan.seed)
        for chunk in plan.chunks():
            await asyncio.sleep(self._pace * (0.5 + rng.random()))
            if writer.transport.is_closing() or reader.at_eof():
                return False
            writer.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
        await asyncio.sleep(self._pace)
        if plan.ending in ("reset", "stall", "dropped"):
            self.done[plan.ending] += 1
            if plan.ending == "stall":
                await reader.read()
            if plan.ending == "reset" and not writer.transport.is_closing():
                connection: socket.socket = writer.get_extra_info("socket")
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                writer.transport.abort()
            return False
        writer.write(b"0\r\n\r\n")
        return True
