"""Measures the gateway relative to a bare pass-through of the same bytes, and the transport under an SDK.

    python benchmarks/bench_gateway.py

The gateway and the pass-through run in a separate process, whose processor time is measured. This process is the
upstream and the clients, which all send requests at the same time. The upstream sends one chunk for each delta, with a
turn of the event loop between chunks. The SDK reads a stream from memory, with and without the transport. This row
requires openai.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.measure import Comparison, main
from streamtools.gateway import ToolCallTransport

CLIENTS = 20
DELTAS = 400
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "The weather.", "parameters": SCHEMA}}]
ASKED = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "Weather?"}]}
BODY = json.dumps(ASKED | {"tools": TOOLS}).encode()
CALL = '\n\n~~~tool_call\n{"name": "weather", "arguments": {"city": "Bern"}}\n~~~'


def make_chunks(deltas: int) -> list[bytes]:
    """Return an answer with this number of deltas, and a call at its end."""
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    texts = [f"word {number} " for number in range(deltas)] + [CALL[at : at + 4] for at in range(0, len(CALL), 4)]
    told: list[dict[str, Any]] = [{"delta": {"role": "assistant", "content": ""}, "finish_reason": None}]
    told += [{"delta": {"content": text}, "finish_reason": None} for text in texts]
    told += [{"delta": {}, "finish_reason": "stop"}]
    chunks = [b"data: %b\n\n" % json.dumps({**head, "choices": [{"index": 0, **each}]}).encode() for each in told]
    return [*chunks, b"data: [DONE]\n\n"]


class Front:
    """The measured server, and a client of it."""

    def __init__(self, clients: int, chunks: list[bytes]) -> None:
        self._clients = clients
        self._chunks = chunks
        self._loop = asyncio.new_event_loop()
        self._server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"
        command = [sys.executable, "-m", "benchmarks.served_gateway", url]
        root = Path(__file__).resolve().parents[1]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=root)
        assert self._process.stdout is not None
        self._port = int(self._process.stdout.readline())

    def work(self, path: str) -> float:
        """Send requests to a path from all clients at the same time.

        Returns the processor time of the server in seconds.
        """
        return self._loop.run_until_complete(self._work(path))

    def check(self) -> None:
        """Raise AssertionError if the pass-through changes bytes, or the gateway does not find the call."""
        passed = self._loop.run_until_complete(self._read("POST", "/bare"))
        told = self._loop.run_until_complete(self._read("POST", "/v1/chat/completions"))
        assert _without_lengths(passed) == b"".join(self._chunks), passed[-300:]
        assert b'"tool_calls"' in told, told[-300:]
        assert b"~~~" not in told, told[-300:]

    def close(self) -> None:
        """End the servers."""
        self._process.communicate()
        self._server.close()
        self._loop.run_until_complete(self._server.wait_closed())
        self._loop.close()

    async def _work(self, path: str) -> float:
        before = await self._read("GET", "/time")
        bodies = await asyncio.gather(*(self._read("POST", path) for _ in range(self._clients)))
        after = await self._read("GET", "/time")
        assert all(b"[DONE]" in body for body in bodies)
        return float(after) - float(before)

    async def _read(self, method: str, path: str) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        body = BODY if method == "POST" else b""
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {len(body)}\r\n"
        writer.write(f"{head}Content-Type: application/json\r\n\r\n".encode() + body)
        told = (await reader.read(-1)).partition(b"\r\n\r\n")
        writer.close()
        await writer.wait_closed()
        return told[2]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:-2])
        await reader.readexactly(int(fields[b"content-length"]))
        kind = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n"
        writer.write(kind + b"Transfer-Encoding: chunked\r\n\r\n")
        for chunk in self._chunks:
            writer.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
            await writer.drain()
            await asyncio.sleep(0)
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        writer.close()


def _without_lengths(body: bytes) -> bytes:
    """Return a body without its transfer encoding, because chunk sizes may differ from those of the upstream."""
    parts = []
    while size := int((told := body.partition(b"\r\n"))[0], 16):
        parts.append(told[2][:size])
        body = told[2][size + 2 :]
    return b"".join(parts)


class Sdk:
    """The openai SDK, with or without the transport."""

    def __init__(self, chunks: list[bytes]) -> None:
        import httpx2
        import openai

        def respond(request: Any) -> Any:
            return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=iter(chunks))

        def client(transport: Any) -> Any:
            known = {"base_url": "http://localhost/v1", "api_key": "k", "max_retries": 0}
            return openai.OpenAI(**known, http_client=httpx2.Client(transport=transport))

        self._clients = {
            True: client(ToolCallTransport(httpx2.MockTransport(respond))),
            False: client(httpx2.MockTransport(respond)),
        }

    def work(self, with_transport: bool) -> float:
        """Read a stream. Returns the seconds that it took."""
        start = process_time()
        self._read(with_transport)
        return process_time() - start

    def check(self) -> None:
        """Raise AssertionError unless exactly the variant with the transport has a call."""
        assert any(each.choices[0].delta.tool_calls for each in self._read(True))
        assert not any(each.choices[0].delta.tool_calls for each in self._read(False))

    def _read(self, with_transport: bool) -> list[Any]:
        return list(self._clients[with_transport].chat.completions.create(**ASKED, tools=TOOLS))


def cases(small: bool) -> Iterator[Comparison]:
    """Yield the rows."""
    clients, deltas = (2, 10) if small else (CLIENTS, DELTAS)
    chunks = make_chunks(deltas)
    front = Front(clients, chunks)
    try:
        yield Comparison(
            f"{clients} answers of {len(chunks)} chunks",
            "the gateway, in mode text",
            clients * len(chunks),
            partial(front.work, "/v1/chat/completions"),
            partial(front.work, "/bare"),
            front.check,
            1.67,
            "× bare",
        )
    finally:
        front.close()
    if importlib.util.find_spec("openai") and importlib.util.find_spec("httpx2"):
        sdk = Sdk(chunks)
        yield Comparison(
            f"{len(chunks)} chunks in memory",
            "openai over the transport",
            len(chunks),
            partial(sdk.work, True),
            partial(sdk.work, False),
            sdk.check,
            1.1,
            "× openai",
        )


if __name__ == "__main__":
    main("gateway", cases)
