"""The gateway over loopback: answers, refusals, and answers that break off."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from streamtools.calls import ToolCall
from streamtools.errors import Code
from streamtools.events import Call, Error, Matched, Warning
from streamtools.gateway.metrics import Metrics
from streamtools.gateway.service import app
from streamtools.serving.requests import read_body
from streamtools.sources import read_pace
from tests.support.gateway import CLIENTS, collect, request, stream, whole
from tests.support.loopback import Loopback
from tests.support.provider import Provider
from tests.support.serving import Exchange, Served

CALL = '~~~tool_call\n{"name": "get_weather", "arguments": {"city": "Zürich"}}\n~~~'
TOLD = stream(["So.\n", CALL[:9], CALL[9:]])
WHOLE = whole(f"So.\n{CALL}")
PATHS = {"openai": "/v1/chat/completions", "responses": "/v1/responses", "anthropic": "/v1/messages"}
JSON: dict[str, Any] = {"declared": "application/json"}

pytestmark = pytest.mark.asyncio_only


@asynccontextmanager
async def gateway(*answers: Loopback, **options: Any) -> AsyncIterator[tuple[httpx.AsyncClient, Provider]]:
    """A gateway for an upstream with these answers, and a client of the gateway."""
    async with (
        Provider(*(answers or (Loopback([TOLD]),))) as upstream,
        Served(app(f"{upstream.url}v1", **options)) as server,
        httpx.AsyncClient(base_url=server.url, trust_env=False) as client,
    ):
        yield client, upstream


async def test_each_client_is_answered_in_its_form_and_counted() -> None:
    answers = [Loopback([TOLD[:60], TOLD[60:]]), Loopback([WHOLE], **JSON)] * 3
    async with gateway(*answers) as (http, upstream):
        for client in CLIENTS:
            for streamed in (True, False):
                response = await http.post(PATHS[client], json=request(client, streamed=streamed))
                seen = collect(client, response.content)
                assert (response.status_code, seen.text, seen.calls[0][2]) == (200, "So.", {"city": "Zürich"}), client
                assert ("content-length" in response.headers) is not streamed
        metrics = (await http.get("/metrics")).text
        health = await http.get("/health")
    assert all(head[""] == "POST /v1/chat/completions HTTP/1.1" for head in upstream.heads)
    assert 'requests_total{kind="messages",status="200"} 2' in metrics
    assert 'calls_total{dialect="tilde_fence"} 6' in metrics
    assert "default-src 'none'" in health.headers["content-security-policy"]
    assert health.text == "ok\n"


async def test_only_listed_paths_pass() -> None:
    async with gateway(Loopback([b"{}"], **JSON, headers={"set-cookie": "a=b", "x-a": "b"})) as (http, upstream):
        for path in ("/v1/embeddings", "/v1/completions", "/v1/audio/speech"):
            response = await http.post(path, json={"a": 1}, headers={"cookie": "c=d", "authorization": "Bearer k"})
            assert (response.content, response.headers["x-a"]) == (b"{}", "b"), path
            assert "set-cookie" not in response.headers
        assert (await http.get("/v1/models")).status_code == 200
        assert (await http.get("/v1/models/org%2Fname")).status_code == 200
        seen = len(upstream.requests)
        for method, path in [
            ("GET", "/v1/models/.."),
            ("GET", "/v1/models/..%2F..%2Fadmin"),
            ("GET", "/v1/models/a%2F.."),
            ("GET", "/v1/models/a%5C..%5Cb"),
            ("GET", "/v1/models/a/..%3B/b"),
            ("GET", "/v1/files"),
            ("POST", "/v1/images"),
            ("GET", "/nowhere"),
            ("GET", "/v1/responses/resp_1"),
        ]:
            asked = http.build_request(method, "/", json={} if method == "POST" else None)
            asked.url = asked.url.copy_with(raw_path=path.replace("..", "%2E%2E").encode())
            response = await http.send(asked)
            assert (response.status_code, "message" in response.json()["error"]) == (404, True), path
        assert len(upstream.requests) == seen
    assert [head[""] for head in upstream.heads][-2:] == [
        "GET /v1/models HTTP/1.1",
        "GET /v1/models/org%2Fname HTTP/1.1",
    ]
    assert upstream.heads[0]["authorization"] == "Bearer k"
    assert [] == [head for head in upstream.heads if "cookie" in head], "a client's or the upstream's cookie"


async def test_mounted_at_a_path() -> None:
    async with Provider(Loopback([TOLD])) as upstream:
        mounted = Starlette(routes=[Mount("/llm", app(f"{upstream.url}v1"))])
        async with Served(mounted) as server, httpx.AsyncClient(base_url=server.url, trust_env=False) as http:
            response = await http.post("/llm/v1/chat/completions", json=request("openai", streamed=True))
            assert (response.status_code, collect("openai", response.content).text) == (200, "So.")
            for path, status in (("/llm/health", 200), ("/llm/metrics", 200), ("/llm/health/v1", 404)):
                assert (await http.get(path)).status_code == status, path
            assert "/v1/chat/completions" in upstream.heads[0][""]


async def test_headers_of_the_upstream() -> None:
    """They may have any encoding. Headers that a browser or a proxy would apply to the gateway are removed."""
    told = {
        "x-a": "漢",
        "refresh": "0;url=//evil.example",
        "x-accel-redirect": "/etc/passwd",
        "www-authenticate": "Basic",
        "reporting-endpoints": 'all="https://evil.example"',
        "activate-storage-access": "load",
        "authorization": "Bearer own",
        "connection": "X-Hop, close",
        "x-hop": "this connection's alone",
    }
    async with gateway(Loopback([b"{}"], **JSON, headers=told), Loopback([TOLD], headers=told)) as (http, upstream):
        http.headers = httpx.Headers([*http.headers.raw, (b"x-request-id", "漢".encode())])
        for response in (await http.get("/v1/models"), await http.post(PATHS["openai"], json=request("openai"))):
            assert response.status_code == 200
            assert dict(response.headers.raw)[b"x-a"] == "漢".encode()
            assert not told.keys() & set(response.headers) - {"x-a"}
        assert all(b"x-request-id: " + "漢".encode() in each.lower() for each in upstream.requests)


async def test_nested_content_encodings_are_refused() -> None:
    packed = Loopback([b"\x1f\x8b"], headers={"content-encoding": "gzip, gzip"})
    async with gateway(packed) as (http, _):
        for path in (PATHS["openai"], "/v1/embeddings"):
            response = await http.post(path, json=request("openai"))
            assert (response.status_code, "encodings" in response.json()["error"]["message"]) == (502, True)


async def test_forbidden_requests() -> None:
    asked = request("openai")
    refusals: list[tuple[str, int, dict[str, str], Any]] = [
        ("another name", 421, {"host": "evil.example"}, asked),
        ("another page", 403, {"origin": "https://evil.example"}, asked),
        ("no JSON", 415, {"content-type": "text/plain"}, asked),
        ("a long body", 413, {}, asked | {"user": "u" * 5000}),
        ("broken JSON", 400, {"content-type": "application/json"}, b"{"),
        ("hosted state", 400, {}, asked | {"messages": []}),
    ]
    async with gateway(max_body=4000, origins=["https://good.example"]) as (http, upstream):
        for name, status, headers, body in refusals:
            given = {"content": body} if isinstance(body, bytes) else {"json": body}
            response = await http.post(PATHS["openai"], headers=headers, **given)
            assert (response.status_code, "message" in response.json()["error"]) == (status, True), name

        async def long() -> AsyncIterator[bytes]:
            yield b" " * 5000

        kind = {"content-type": "application/json"}
        response = await http.post(PATHS["anthropic"], content=long(), headers=kind)
        assert (response.status_code, response.json()["type"]) == (413, "error")
        assert upstream.requests == []
        allowed = {"origin": "https://good.example"}
        response = await http.post(PATHS["openai"], json=asked, headers=allowed)
        assert (response.status_code, response.headers["access-control-allow-origin"]) == (200, allowed["origin"])
        wanted = allowed | {"access-control-request-method": "POST"}
        assert (await http.options(PATHS["openai"], headers=wanted)).status_code == 200


async def test_slow_bodies_do_not_block_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other requests are answered meanwhile. The number of waiting requests and their time are limited."""
    begun, waits = anyio.Semaphore(0), anyio.Event()

    async def read(asked: Any, make: Any, **options: Any) -> Any:
        if "slow" not in asked.headers:
            return await read_body(asked, make, **options)
        begun.release()
        await waits.wait()
        return await read_body(asked, make, timeout=0, **options)

    monkeypatch.setattr("streamtools.gateway.service.read_body", read)
    head = f"POST {PATHS['anthropic']} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    async with gateway(max_running=1) as (http, upstream), AsyncExitStack() as stack:
        slow = [
            await stack.enter_async_context(await anyio.connect_tcp("127.0.0.1", http.base_url.port or 0))
            for _ in range(5)
        ]
        for each in slow[:3]:
            await each.send(f"{head}Slow: 1\r\nContent-Length: 9\r\n\r\n{{".encode())
            await begun.acquire()
        assert (await http.post(PATHS["openai"], json=request("openai"))).status_code == 200
        await slow[3].send(f"{head}Slow: 1\r\nContent-Length: 9\r\n\r\n{{".encode())
        await begun.acquire()
        await slow[4].send(f"{head}Slow: 1\r\nContent-Length: 9\r\n\r\n{{".encode())
        refused = await slow[4].receive()
        assert refused.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: " in refused
        waits.set()
        for each in slow[:4]:
            assert (await each.receive()).startswith(b"HTTP/1.1 408 ")
        assert len(upstream.requests) == 1


async def test_keys() -> None:
    async with gateway(key="own", client_key="theirs") as (http, upstream):
        for path in ("/metrics", "/v1/models"):
            assert (await http.get(path)).status_code == 401, path
        assert (await http.get("/health")).status_code == 200
        for headers in ({"x-api-key": "theirs"}, {"authorization": "Bearer theirs"}):
            await http.post(PATHS["anthropic"], json=request("anthropic"), headers=headers)
        assert [head["authorization"] for head in upstream.heads] == ["Bearer own"] * 2
        assert not any("theirs" in str(head) for head in upstream.heads)
    async with gateway() as (http, upstream):
        await http.post(PATHS["anthropic"], json=request("anthropic"), headers={"x-api-key": "k"})
        assert [head.get("authorization") for head in upstream.heads] == ["Bearer k"]
    for client in (("192.0.2.1", 1), ("unix", 1)):
        asked = Exchange()
        asked.scope |= {"client": client, "headers": [(b"host", b"localhost")]}
        await app("http://127.0.0.1:1/v1", key="own")(asked.scope, asked.receive, asked.send)
        assert asked.status == 403
    for upstream_url in ("ftp://a/v1", "http://key@a/v1", "http://a/v1?key=b", "a"):
        with pytest.raises(ValueError, match="`upstream` must be a URL"):
            app(upstream_url)
    for origin in ("*", "https://good.example/", "good.example"):
        with pytest.raises(ValueError, match="`origins` must be origins"):
            app("http://a/v1", origins=[origin])
    with pytest.raises(ValueError, match="`client_key` is empty"):
        app("http://a/v1", client_key="")


async def test_the_key_of_the_gateway_is_hidden() -> None:
    """An upstream repeats the key in a header, in an error, and in an answer that is cut anywhere."""
    key = "own-own-own-keys"
    wrong = Loopback([b'{"error": {"message": "Wrong: own-own-own-keys"}}'], status=401, headers={"x-a": key}, **JSON)
    echo = b'{"a": "own-own-own-own-keys own-own"}'
    cuts = range(1, len(echo))
    async with gateway(*[wrong] * 3, *[Loopback([echo[:at], echo[at:]], **JSON) for at in cuts], key=key) as (http, _):
        for client in CLIENTS:
            response = await http.post(PATHS[client], json=request(client))
            assert (response.status_code, key in f"{response.text} {response.headers}") == (401, False), client
        for at in cuts:
            told = await http.post("/v1/embeddings", json={})
            assert told.content == b'{"a": "own-**************** own-own"}', at
    word = b'{"a": "EMPTY"}'  # as a server of one's own may have it, and a model may write it
    async with gateway(Loopback([word], **JSON), key="EMPTY") as (http, _):
        assert (await http.post("/v1/embeddings", json={})).content == word


async def test_upstream_errors_reach_the_client() -> None:
    slow = Loopback([b'{"error": {"message": "Slow."}}'], status=429, headers={"Retry-After": "3"}, **JSON)
    moved = Loopback([], status=307, headers={"Location": "http://127.0.0.1:1/"})
    broken = Loopback([TOLD[:400]], drop=True)
    async with gateway(slow, moved, broken, broken, Loopback([], hold=True), timeout=0.2) as (http, _):
        response = await http.post(PATHS["anthropic"], json=request("anthropic"))
        assert (response.status_code, response.headers["retry-after"]) == (429, "3")
        assert response.json()["error"]["message"] == "Slow."
        response = await http.post(PATHS["openai"], json=request("openai"))
        assert (response.status_code, "redirects" in response.text, "location" in response.headers) == (
            502,
            True,
            False,
        )
        for client in ("openai", "responses"):
            response = await http.post(PATHS[client], json=request(client))
            assert (response.status_code, collect(client, response.content).error is not None) == (200, True), client
        response = await http.post(PATHS["openai"], json=request("openai", streamed=False))
        assert response.status_code in (502, 504)
    async with gateway(broken, mode="native") as (http, _):
        with pytest.raises(httpx.RemoteProtocolError):
            await http.post(PATHS["openai"], json=request("openai"))
    async with Served(app("http://127.0.0.1:1/v1")) as server, httpx.AsyncClient(trust_env=False) as http:
        response = await http.post(server.url + PATHS["anthropic"], json=request("anthropic"))
        assert (response.status_code, response.json()["error"]["type"]) == (502, "api_error")


async def test_a_client_that_leaves_closes_the_upstream() -> None:
    held = Loopback([stream(["So it is."], None, done=False)], hold=True)
    async with gateway(held, max_running=1) as (http, _):
        async with http.stream("POST", PATHS["openai"], json=request("openai")) as response:
            seen = b""
            async for piece in response.aiter_bytes():
                seen += piece
                if b"So it is." in seen:
                    break
            other = await http.post(PATHS["anthropic"], json=request("anthropic"))
            assert (other.status_code, "retry-after" in other.headers) == (503, True)
        with anyio.fail_after(20):
            await held.disconnected.wait()
            while "running 0" not in (await http.get("/metrics")).text:
                await anyio.lowlevel.checkpoint()


async def test_a_slow_client_slows_the_upstream() -> None:
    """Data that the client does not accept is not read: of 200 MB, a few are in buffers."""
    sent = 0

    def pieces() -> Iterator[bytes]:
        nonlocal sent
        for sent in range(3200):  # noqa: B007  # counted
            yield b"x" * 65536

    async with Loopback() as upstream:
        upstream._script = pieces()  # type: ignore[assignment]  # a list would be made at once
        exchange = Exchange(stuck=10)
        exchange.scope |= {"path": "/v1/models", "headers": [(b"host", b"localhost")]}
        async with anyio.create_task_group() as group:
            gateway: Any = app(f"{upstream.url}v1")
            group.start_soon(gateway, exchange.scope, exchange.receive, exchange.send)
            await exchange.has_sent(10)
            before = -1
            while before != sent:
                before = sent
                for _ in range(20):
                    await anyio.wait_all_tasks_blocked()
            assert sent < 800
            exchange.gone.set()


async def test_answers_have_a_time_limit() -> None:
    """On a slow machine, the limit may pass before the head of the response: then the status is 504."""
    held = Loopback([stream(["So it is."], None, done=False)], hold=True)
    for client in ("openai", "anthropic"):
        async with gateway(held, longest=0.3) as (http, _):
            response = await http.post(PATHS[client], json=request(client))
            assert b'"error"' in response.content
            response = await http.post(PATHS[client], json=request(client, streamed=False))
            assert response.status_code in (502, 504)
    async with gateway(held, longest=0.3, mode="native") as (http, _):
        with suppress(httpx.RemoteProtocolError):
            assert (await http.post(PATHS["openai"], json=request("openai"))).status_code == 504


async def test_a_silent_answer_is_kept_alive() -> None:
    held = Loopback([stream(["So it is."], None, done=False)], hold=True)
    async with gateway(held, longest=2.0, keep_alive=0.02) as (http, _):
        assert b": keep-alive" in (await http.post(PATHS["openai"], json=request("openai"))).content


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_shutdown_ends_answers() -> None:
    """A streamed answer ends with an error, and no new answer starts."""
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    told, give = anyio.Event(), anyio.Event()
    held = Loopback([stream(["So it is."], None, done=False)], hold=True)

    async def receive() -> dict[str, str]:
        if not told.is_set():
            return {"type": "lifespan.startup"}
        await give.wait()
        return {"type": "lifespan.shutdown"}

    async def send(message: Any) -> None:
        told.set()

    answers: list[httpx.Response] = []
    try:
        async with held, anyio.create_task_group() as group:
            gateway: Any = app(f"{held.url}v1")
            group.start_soon(gateway, {"type": "lifespan", "app": None}, receive, send)
            await told.wait()
            transport = httpx.ASGITransport(gateway)
            async with httpx.AsyncClient(base_url="http://localhost", transport=transport) as http:

                async def ask(client: str) -> None:
                    answers.append(await http.post(PATHS[client], json=request(client)))

                async with anyio.create_task_group() as asking:
                    asking.start_soon(ask, "openai")
                    with anyio.fail_after(20):
                        while not held.requests:
                            await anyio.lowlevel.checkpoint()
                    signal.raise_signal(signal.SIGTERM)
                await ask("anthropic")
            give.set()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert b'"error"' in answers[0].content
    assert (answers[1].status_code, answers[1].headers["retry-after"]) == (503, "5")


async def test_exchanges_are_recorded_without_keys(tmp_path: Path) -> None:
    target = tmp_path / "exchanges.jsonl"
    async with gateway(record=target, key="sk-verysecretkeyofours") as (http, _):
        await http.post(PATHS["openai"], json=request("openai"))
    assert b"sk-verysecret" not in target.read_bytes()
    assert "/chat/completions" in target.read_text()


def test_hostile_names_are_escaped() -> None:
    metrics = Metrics()
    metrics.record(Call(ToolCall(id="a", name="n", arguments={}, dialect='<b>"\\\n', raw="")))
    assert 'dialect="<b>\\"\\\\\\n"' in metrics.prometheus()


def test_malformed_calls_are_counted_by_dialect() -> None:
    metrics = Metrics()
    for code in (Code.INVALID_JSON, Code.TRUNCATED):
        metrics.record(Error(code, "no", call_id="b", raw="{", dialect="hermes_json"))
    metrics.record(Warning(Code.NEAR_MISS, "a call of the dialect tilde_fence in code or a quote is text"))
    metrics.record(Matched("email", "replace", 0, 3))
    lines = metrics.prometheus().splitlines()
    for line in (
        'errors_total{code="invalid_json",dialect="hermes_json"} 1',
        'near_misses_total{dialect="tilde_fence"} 1',
        'rule_matches_total{rule="email"} 1',
    ):
        assert f"streamtools_gateway_{line}" in lines


@pytest.mark.parametrize("max_rate", [None, 30])
async def test_the_upstream_is_read_in_time_slots_after_the_first_text(
    max_rate: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = list[float]()

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        await anyio.lowlevel.checkpoint()

    monkeypatch.setattr(read_pace, "sleep", sleep)
    gate, chunks = anyio.Event(), [stream([each], None, done=False) for each in "abcdefgh"]
    received = b""
    async with (
        gateway(Loopback([chunks[0], gate, *chunks[1:], stream([])]), max_rate=max_rate) as (http, _),
        http.stream("POST", PATHS["openai"], json=request("openai")) as response,
    ):
        async for piece in response.aiter_bytes():
            received += piece
            gate.set()
    assert "abcdefgh" == collect("openai", received).text
    assert bool(waits) is (max_rate is not None)


def test_a_rate_that_is_too_low_for_reading_in_time_slots() -> None:
    with pytest.raises(ValueError, match="max_rate must be a number of at least 10 or None, got 5"):
        app("http://127.0.0.1:8080/v1", max_rate=5)
