"""The transport under clients of httpx, asynchronous and blocking, over loopback."""

from __future__ import annotations

import gzip
import json
from typing import Any

import anyio
import httpx
import pytest

from streamtools.gateway import Rewrite, ToolCallTransport
from tests.support.bodies import Pieces
from tests.support.gateway import collect, request, stream, whole
from tests.support.loopback import Loopback
from tests.support.provider import Provider, serving

CALL = '~~~tool_call\n{"name": "get_weather", "arguments": {"city": "Zürich"}}\n~~~'
TOLD = stream(["So.\n", CALL[:9], CALL[9:]])
BAD = stream(["So.\n~~~tool_call\n{oops}\n~~~\n"])


def client(**options: Any) -> httpx.AsyncClient:
    """Return a client with the transport under it."""
    return httpx.AsyncClient(transport=ToolCallTransport(**options))


async def test_streams_and_bodies() -> None:
    answers = [Loopback([TOLD[:50], TOLD[50:]]), Loopback([whole(f"So.\n{CALL}")], declared="application/json")]
    async with Provider(*answers) as provider, client() as http:
        for streamed in (True, False):
            response = await http.post(
                f"{provider.url}v1/chat/completions?a=b", json=request("openai", streamed=streamed)
            )
            seen = collect("openai", response.content)
            assert (response.status_code, seen.text, seen.calls[0][2]) == (200, "So.", {"city": "Zürich"})
    assert provider.heads[0][""] == "POST /v1/chat/completions?a=b HTTP/1.1"


@pytest.mark.filterwarnings("ignore:Async generator '.*' was garbage collected:ResourceWarning")  # of the client's own
async def test_a_client_that_leaves_closes_the_connection() -> None:
    async with Loopback([stream(["So it is."], None, done=False)], hold=True) as provider, client() as http:
        async with http.stream("POST", f"{provider.url}v1/responses", json=request("responses")) as response:
            async for piece in response.aiter_bytes():
                if b"So it is." in piece:
                    break
        with anyio.fail_after(20):
            await provider.disconnected.wait()


async def test_other_requests_pass_unchanged() -> None:
    async with Loopback([b"{}"], declared="application/json", headers={"X-A": "b"}) as provider, client() as http:
        response = await http.post(f"{provider.url}v1/embeddings", content=b"raw")
        assert (response.content, response.headers["x-a"]) == (b"{}", "b")
        assert (await http.get(f"{provider.url}v1/models")).content == b"{}"
        assert provider.requests[0].endswith(b"raw")
    async with Loopback([TOLD]) as provider, client(mode="native") as http:
        response = await http.post(f"{provider.url}v1/chat/completions", json=request("openai"))
        assert response.content == TOLD


async def test_statuses_and_faults_of_the_network() -> None:
    refused = Loopback([b'{"error": {"message": "Slow."}}'], status=429, headers={"Retry-After": "3"})
    async with Provider(refused, Loopback([TOLD[:90]], drop=True)) as provider, client() as http:
        url = f"{provider.url}v1/chat/completions"
        response = await http.post(url, json=request("openai"))
        assert (response.status_code, response.headers["retry-after"]) == (429, "3")
        response = await http.post(url, json=request("openai"))
        assert (response.status_code, collect("openai", response.content).error is not None) == (200, True)
        with pytest.raises(httpx.RemoteProtocolError):
            await http.post(url, json=request("openai", streamed=False))
        response = await http.post(url, json={"messages": []})
        assert (response.status_code, len(provider.requests)) == (400, 3)
    with pytest.raises(httpx.ConnectError):
        async with client() as http:
            await http.post(url, json=request("openai"))


async def test_a_second_request_has_no_idempotency_key() -> None:
    """It is another request: here, one without the schema that the upstream refused."""
    refusal = Loopback([b'{"error": {"message": "no such grammar"}}'], declared="application/json", status=400)
    async with Provider(refusal, Loopback([TOLD])) as provider, client(api="vllm") as http:
        body = request("openai", tool_choice="required")
        url = f"{provider.url}v1/chat/completions"
        response = await http.post(url, json=body, headers={"idempotency-key": "k"})
        assert collect("openai", response.content).finish == "tool_calls"
        assert [each.get("idempotency-key") for each in provider.heads] == ["k", None]


def test_blocking_clients() -> None:
    with serving(Loopback([TOLD[:70], TOLD[70:]])) as provider, httpx.Client(transport=ToolCallTransport()) as http:
        response = http.post(f"{provider.url}v1/chat/completions", json=request("openai"))
        assert collect("openai", response.content).calls[0][1] == "get_weather"
        assert http.post(f"{provider.url}v1/chat/completions", json={"messages": []}).status_code == 400
        with http.stream("POST", f"{provider.url}v1/chat/completions", json=request("openai")) as left:
            next(left.iter_bytes())
        assert len(provider.requests) == 2
    with serving(Loopback([whole(CALL)])) as provider, httpx.Client(transport=ToolCallTransport()) as http:
        response = http.post(f"{provider.url}v1/chat/completions", json=request("openai", streamed=False))
        assert collect("openai", response.content).finish == "tool_calls"
    with serving(Loopback([BAD])) as provider, httpx.Client(transport=ToolCallTransport()) as http:
        assert b"error" in http.post(f"{provider.url}v1/chat/completions", json=request("openai")).content
        assert http.post(f"{provider.url}v1/embeddings", json={}).content == BAD
        assert len(provider.requests) == 2
    with serving(Loopback([TOLD])) as provider, httpx.Client(transport=ToolCallTransport(mode="native")) as http:
        assert http.post(f"{provider.url}v1/chat/completions", json=request("openai")).content == TOLD


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_lost_connection_in_mid_answer(streamed: bool) -> None:
    """Before the answer begins, the error is raised, so that the client may retry."""

    def respond(asked: httpx.Request) -> httpx.Response:
        declared = {"content-type": "text/event-stream" if streamed else "application/json"}
        return httpx.Response(200, headers=declared, stream=Pieces(BAD if streamed else b"{", httpx.ReadError("gone")))

    url, body = "http://localhost/v1/chat/completions", request("openai", streamed=streamed)

    def ask() -> bytes:
        transport = ToolCallTransport(httpx.MockTransport(respond))
        with httpx.Client(transport=transport) as http:
            return http.post(url, json=body).content

    async def ask_asynchronously() -> bytes:
        async with client(inner=httpx.MockTransport(respond)) as http:
            return (await http.post(url, json=body)).content

    if streamed:
        assert collect("openai", ask()).error is not None
        assert collect("openai", await ask_asynchronously()).error is not None
        return
    with pytest.raises(httpx.TransportError, match="gone"):
        ask()
    with pytest.raises(httpx.TransportError, match="gone"):
        await ask_asynchronously()


def test_a_custom_inner_transport() -> None:
    """It is called like any other transport. This one answers by itself."""
    asked: list[httpx.Request] = []

    def respond(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(200, content=whole(CALL))

    transport = ToolCallTransport(httpx.MockTransport(respond), rewrite=Rewrite())
    with httpx.Client(transport=transport, headers={"Authorization": "Bearer k"}) as http:
        response = http.post("http://localhost/v1/chat/completions", json=request("openai", streamed=False))
    assert collect("openai", response.content).finish == "tool_calls"
    assert (asked[0].url.path, asked[0].headers["authorization"]) == ("/v1/chat/completions", "Bearer k")
    assert json.loads(asked[0].content)["stream"] is False


async def test_nested_content_encodings_are_not_decoded() -> None:
    """Each decoding may expand a body a thousandfold in memory."""
    body = gzip.compress(gzip.compress(bytes(1_000_000)))
    for packed in ("gzip, gzip", "deflate,identity,GZIP"):
        async with Loopback([body], headers={"content-encoding": packed}) as provider, client() as http:
            with pytest.raises(httpx.RemoteProtocolError, match="several content encodings"):
                await http.post(f"{provider.url}v1/chat/completions", json=request("openai"))


def test_nested_content_encodings_for_a_blocking_client() -> None:
    packed = {"content-encoding": "gzip, gzip"}
    inner = httpx.MockTransport(lambda _: httpx.Response(200, headers=packed, content=iter([b"\x1f\x8b"])))
    with httpx.Client(transport=ToolCallTransport(inner)) as http, pytest.raises(httpx.RemoteProtocolError):
        http.post("http://x/v1/chat/completions", json=request("openai"))


async def test_an_inner_transport_that_read_the_body() -> None:
    class Looks(httpx.AsyncHTTPTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            response = await super().handle_async_request(request)
            await response.aread()
            return response

    async with Loopback([TOLD]) as provider, client(inner=Looks()) as http:
        with anyio.fail_after(20):
            response = await http.post(f"{provider.url}v1/chat/completions", json=request("openai"))
    assert collect("openai", response.content).finish == "tool_calls"


def test_an_inner_transport_of_the_wrong_kind() -> None:
    http = httpx.Client(transport=ToolCallTransport(httpx.AsyncHTTPTransport()))
    with pytest.raises(TypeError, match="AsyncHTTPTransport has no handle_request"):
        http.get("http://localhost/")


async def test_headers_may_have_any_bytes() -> None:
    async with Loopback([TOLD], headers={"x-a": "漢"}) as provider, client() as http:
        asked = httpx.Headers([(b"x-b", "漢".encode())])
        response = await http.post(f"{provider.url}v1/chat/completions", json=request("openai"), headers=asked)
    assert dict(response.headers.raw)[b"x-a"] == "漢".encode()
    assert b"x-b: " + "漢".encode() in provider.requests[0].lower()
