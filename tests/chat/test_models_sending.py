"""Requests over real connections: URLs, keys, retries, timeouts, and closed responses."""

from __future__ import annotations

import gzip
import re
import socket
import ssl
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any, Self

import anyio
import httpx
import msgspec
import pytest
from structlog.testing import capture_logs

from streamtools.conversation import (
    AnthropicMessages,
    Ask,
    BedrockConverse,
    CohereChat,
    GeminiChat,
    HTTPModel,
    OllamaChat,
    OpenAIChat,
    OpenAIResponses,
    Timeouts,
)
from streamtools.conversation.models import http_model
from streamtools.errors import Code, UnreadableSource
from streamtools.events import ProviderCompleted, SourceError, SourceEvent, TextDelta
from streamtools.history import User
from streamtools.sources import Source
from tests.support.cases import together
from tests.support.loopback import Loopback
from tests.support.provider import Provider

ASK = Ask((User("Hi"),))
ONE = b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'
REST = [b'data: {"choices":[{"delta":{"content":"b"},"finish_reason":"stop"}]}\n\n', b"data: [DONE]\n\n"]
STREAM = [ONE, *REST]
EVENTS = [TextDelta("a"), TextDelta("b"), ProviderCompleted(finish_reason="stop", raw_finish_reason="stop")]
KEY = "sk-secret"


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use no key and no proxy of this machine, and do not wait between attempts."""
    for name in ("OPENAI", "ANTHROPIC", "OLLAMA", "GOOGLE", "GEMINI"):
        monkeypatch.delenv(f"{name}_API_KEY", raising=False)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setattr(http_model, "BACKOFF", 0.0)


def says(message: str, status: int | None = None, cause: str | None = None) -> list[SourceEvent]:
    return [SourceError(message, status=status, cause=cause)]


def lost(cause: str) -> SourceError:
    return SourceError("the connection to the provider was lost", Code.STREAM_INTERRUPTED, cause=cause)


def busy(status: int = 503, **headers: str) -> Loopback:
    """An answer that allows an immediate retry."""
    named = {"Retry-After": "0"} | {name.replace("_", "-"): value for name, value in headers.items()}
    return Loopback([b'{"error":{"message":"busy"}}'], status=status, declared="application/json", headers=named)


def model(server: Loopback, **options: Any) -> OpenAIChat:
    return OpenAIChat("m", base_url=server.url, **options)


async def ask(model: HTTPModel) -> list[SourceEvent]:
    async with model.stream(ASK) as source:
        return await collect(source)


async def collect(source: Source) -> list[SourceEvent]:
    """Return the events without the URLs of errors, which differ each time."""
    events = [event async for batch in source for event in batch]
    return [msgspec.structs.replace(each, url=None) if isinstance(each, SourceError) else each for each in events]


# URLs, headers and keys.


async def test_an_answer() -> None:
    """The body is posted as JSON, and the source reads the answer."""
    async with Provider(Loopback(STREAM)) as server:
        asked = model(server)
        events = await ask(asked)

        assert EVENTS == events
        assert [asked.body(ASK)] == server.bodies
        assert "POST /chat/completions HTTP/1.1" == server.heads[0][""]
        assert "application/json" == server.heads[0]["content-type"]
        assert "authorization" not in server.heads[0]


async def test_certificates_are_loaded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each request without a client creates one. Loading certificates each time would block the event loop."""
    read, make = list[object](), ssl.create_default_context

    def count(**options: Any) -> ssl.SSLContext:
        read.append(options)
        return make(**options)

    monkeypatch.setattr(ssl, "create_default_context", count)
    async with Provider(Loopback(STREAM)) as server:
        for _ in range(2):
            assert EVENTS == await ask(model(server))
    assert len(read) <= 1, "as often as no request was sent before"


@pytest.mark.parametrize(
    ("client", "line", "variable", "header", "value"),
    [
        (OpenAIChat, "/chat/completions", "OPENAI_API_KEY", "authorization", "Bearer k"),
        (OpenAIResponses, "/responses", "OPENAI_API_KEY", "authorization", "Bearer k"),
        (AnthropicMessages, "/v1/messages", "ANTHROPIC_API_KEY", "x-api-key", "k"),
        (OllamaChat, "/api/chat", "OLLAMA_API_KEY", "authorization", "Bearer k"),
        (GeminiChat, "/models/m:streamGenerateContent?alt=sse", "GEMINI_API_KEY", "x-goog-api-key", "k"),
        (GeminiChat, "/models/m:streamGenerateContent?alt=sse", "GOOGLE_API_KEY", "x-goog-api-key", "k"),
    ],
)
async def test_headers_of_each_provider(
    client: type[HTTPModel], line: str, variable: str, header: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key is read from the provider's variable for each request, and sent in the provider's header."""
    async with Provider(Loopback(STREAM)) as server:
        asked = client("m", base_url=server.url)
        monkeypatch.setenv(variable, "k")
        await ask(asked)
        monkeypatch.setenv(variable, "k2")
        await ask(asked)
        await ask(client("m", base_url=server.url, api_key="given"))
        await ask(client("m", base_url=server.url, api_key=""))

        assert [f"POST {line} HTTP/1.1"] * 4 == [head[""] for head in server.heads]
        values = [head.get(header) for head in server.heads]
        assert [value, value + "2", value[:-1] + "given", None] == values
        version = server.heads[0].get("anthropic-version")
        assert ("2023-06-01" if client is AnthropicMessages else None) == version


@pytest.mark.parametrize("key", [KEY, lambda: KEY])
async def test_the_key_is_never_shown(key: Any) -> None:
    """No `repr`, log or message contains the key, or secrets in the URL or the headers."""
    asked = OpenAIChat(
        "m", base_url=f"http://u:{KEY}@127.0.0.1:1/v1?k={KEY}", api_key=key, headers={"a": KEY}, retries=1
    )
    with capture_logs() as logs:
        events = await ask(asked)

    assert "<OpenAIChat 'm' at 127.0.0.1:1/v1/chat/completions>" == repr(asked)
    assert KEY not in repr([asked.stream(ASK), events, logs])
    assert KEY not in repr(vars(asked.stream(ASK)))
    assert ["provider_not_reached", "request_sent_again", "provider_not_reached"] == [log["event"] for log in logs]


async def test_keys_that_headers_cannot_hold() -> None:
    """They raise ValueError. The message does not contain the key."""
    for key in ("sk-schlüssel", "sk-\nsecret"):
        with pytest.raises(ValueError, match="contains characters") as raised:
            OpenAIChat("m", api_key=key).stream(ASK)
        assert key not in str(raised.value)


GOOGLE = "https://generativelanguage.googleapis.com/v1beta"


@together(
    ("client", "name", "base", "url"),
    [
        (OpenAIChat, "m", None, "https://api.openai.com/v1/chat/completions"),
        (OpenAIResponses, "m", None, "https://api.openai.com/v1/responses"),
        (AnthropicMessages, "m", None, "https://api.anthropic.com/v1/messages"),
        (OllamaChat, "m", None, "http://127.0.0.1:11434/api/chat"),
        (OpenAIChat, "m", "http://h/v1/", "http://h/v1/chat/completions"),
        (OpenAIChat, "m", "http://h/v1/chat/completions", "http://h/v1/chat/completions"),
        (OpenAIChat, "m", "https://h/d?api-version=1#x", "https://h/d/chat/completions?api-version=1"),
        (AnthropicMessages, "m", "http://h/v1", "http://h/v1/messages"),
        (OllamaChat, "m", "http://h/api/", "http://h/api/chat"),
        (GeminiChat, "m", None, f"{GOOGLE}/models/m:streamGenerateContent?alt=sse"),
        (GeminiChat, "models/../a?b", "http://h", "http://h/models/..%2Fa%3Fb:streamGenerateContent?alt=sse"),
        (GeminiChat, "a/b", "http://h?alt=sse", "http://h/models/a%2Fb:streamGenerateContent?alt=sse"),
    ],
)
def test_urls(client: type[HTTPModel], name: str, base: str | None, url: str) -> None:
    """The endpoint is below the base URL, which may contain the beginning of the endpoint. Its query is kept."""
    assert url == client(name, base_url=base, api_key="").url


@together(
    "base", ["", "h/v1", "ftp://h", "http://", "//h", "http://[h", "http://h:99999", "http://xn--/", "http://h\t"]
)
def test_invalid_base_urls(base: str) -> None:
    """They raise when the model is created."""
    with pytest.raises(ValueError, match="`base_url` must begin with http:// or https:// and a host"):
        OpenAIChat("m", base_url=base)
    with pytest.raises(ValueError, match=r"For the provider's own server, leave it out\."):
        BedrockConverse("m", base_url=base, region="us-east-1")


def test_a_base_url_of_the_provider_without_its_path() -> None:
    """The message names the default. A path of a custom server is not checked."""
    for kind in (OpenAIChat, OpenAIResponses, GeminiChat):
        provider = re.escape(kind._default_base_url)
        for end in ("", "/"):
            base = kind._default_base_url.rpartition("/")[0] + end
            with pytest.raises(ValueError, match=f"leave it out, or write base_url='{provider}'"):
                kind("m", base_url=base, api_key="k")


@together(
    ("kind", "expected"),
    [
        (OpenAIChat, "`/v1/chat/completions`"),
        (OpenAIResponses, "`/v1/responses`"),
        (AnthropicMessages, "`/v1/messages`"),
        (GeminiChat, "`/v1beta/…`"),
        (OllamaChat, "`/api/chat`"),
        (CohereChat, "`/v2/chat`"),
    ],
)
async def test_a_wrong_url_names_the_usual_path(
    kind: type[HTTPModel], expected: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Each model class has another. A mock transport of httpx reads its response, and no warning is logged for it."""
    answers = {
        "Not Found; ": httpx.MockTransport(lambda request: httpx.Response(404)),
        "a page was sent: ": httpx.MockTransport(lambda request: httpx.Response(200, html="<p>Hello</p>\n")),
    }
    for message, transport in answers.items():
        async with httpx.AsyncClient(transport=transport) as client:
            (*_, event) = await ask(kind("m", client=client))
        assert f"{message}check the URL: its path is {expected} for most servers" in getattr(event, "message", "")
    assert "response_read_before" not in caplog.text


def test_invalid_timeouts_and_retries() -> None:
    """Timeouts must be above 0, retries at least 0."""
    with pytest.raises(ValueError, match="first_byte must be a positive number, got 0"):
        Timeouts(first_byte=0)
    with pytest.raises(ValueError, match="retries must be a number of at least 0, got -1"):
        OpenAIChat("m", retries=-1)
    wrong: Any = "content"
    for name in ("send_reasoning", "reasoning_field"):
        with pytest.raises(ValueError, match=f"{name} must be one of .*, got 'content'"):
            OpenAIChat("m", **{name: wrong})


# Answers.


UNKNOWN = b'{"error":{"message":"no such model","code":"model_not_found"}}'
NOT_FOUND = Loopback([UNKNOWN], status=404, declared="application/json")
COMPRESSED = Loopback([gzip.compress(b'{"error":"no"}')], status=400, headers={"Content-Encoding": "gzip"})
LOST = lost("httpx.RemoteProtocolError")
ANSWERS: dict[str, tuple[list[Loopback], Any, int]] = {  # answers of the server, events, number of requests
    "an error": ([NOT_FOUND], says("no such model", 404, "model_not_found"), 1),
    "a compressed error": ([COMPRESSED], says("no", 400), 1),
    "an error with status 200": ([Loopback([b'{"error":"no"}'], declared="application/json")], says("no"), 1),
    "a status that is no error": ([Loopback(status=304)], says("Not Modified", 304), 1),
    "a long Retry-After": ([busy(429, Retry_After="61")], says("busy", 429), 1),
    "lost before the first byte": ([Loopback(drop=True), Loopback(STREAM)], EVENTS, 2),
    "always lost": ([Loopback(drop=True)], [LOST], 3),
    "lost after the first byte": ([Loopback([ONE], drop=True), Loopback(STREAM)], [TextDelta("a"), LOST], 1),
    "no bytes": ([Loopback()], [], 1),
    "always busy": ([busy(500)], says("busy", 500), 3),
}


@together("answer", ANSWERS)
async def test_answers_and_how_often_the_request_is_sent(answer: str) -> None:
    """The request is sent again only before the first byte, and only if the provider may answer soon."""
    answers, events, requests = ANSWERS[answer]
    async with Provider(*answers) as server:
        assert events == await ask(model(server))
        assert requests == len(server.requests)


@together(
    ("location", "shown"),
    [
        ("http://other.example:8080/v1?key=1", "http://other.example:8080"),
        ("https://u:p@other.example/", "https://other.example"),
        ("//other.example/x", "//other.example"),
        ("/elsewhere", "another address"),
        ("ftp://other.example", "another address"),
        (f"http://{'x' * 301}", f"http://{'x' * 299}…"),
    ],
)
async def test_a_redirect(location: str, shown: str) -> None:
    """It is an error with the host of the target. Nothing is sent there, even if the client follows redirects."""
    async with (
        Loopback([b"moved"], status=307, headers={"Location": location}) as server,
        httpx.AsyncClient(follow_redirects=True) as client,
    ):
        for each in (None, client):
            events = await ask(model(server, api_key=KEY, client=each))
            advice = "nothing was sent there: set base_url to the final address"
            assert says(f"the provider redirects to {shown}; {advice}", 307) == events
        assert 2 == len(server.requests)


# Retries.


@together("status", [408, 409, 429, 500, 503, 529])
async def test_statuses_that_are_retried(status: int) -> None:
    """The same request is sent again after the failed response is closed."""
    failed = busy(status)
    async with Provider(failed, Loopback(STREAM)) as server:
        events = await ask(model(server, api_key=KEY))

        assert EVENTS == events
        assert 2 == len(server.requests)
        assert server.requests[0] == server.requests[1]
        with anyio.fail_after(10):
            await failed.disconnected.wait()


@together(
    ("wait", "seconds"),
    [
        ({"Retry_After": "0.01"}, 0.01),
        ({"Retry_After": "9", "retry_after_ms": "10"}, 0.01),
        ({"Retry_After": "0", "retry_after_ms": "soon"}, 0),
        ({"Retry_After": "-1"}, 0),
        ({"Retry_After": "nan"}, 0),
        ({"Retry_After": format_datetime(datetime.now(UTC) - timedelta(days=1), usegmt=True)}, 0),
        ({"Retry_After": "Wed, 99 Oct 2015"}, 0),
    ],
)
async def test_retry_after(wait: dict[str, str], seconds: float) -> None:
    """The wait is given in seconds, in milliseconds or as a date. Without it, back-off applies (here: none)."""
    async with Provider(busy(429, **wait), Loopback(STREAM)) as server:
        with capture_logs() as logs:
            assert EVENTS == await ask(model(server))

    again = {"event": "request_sent_again", "log_level": "info", "attempt": 1, "status": 429, "wait": seconds}
    assert [{**again, "logger": "streamtools.conversation.models.http_model"}] == logs


async def test_back_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wait doubles up to a limit, with a random part."""
    monkeypatch.setattr(http_model, "BACKOFF", 0.002)
    monkeypatch.setattr(http_model, "LONGEST_BACKOFF", 0.005)
    async with Provider(busy(Retry_After="")) as server:
        with capture_logs() as logs:
            await ask(model(server, retries=4))

    waits = [log["wait"] for log in logs]
    assert 4 == len(waits)
    assert all(least <= wait <= least + 0.002 for least, wait in zip([0.002, 0.004, 0.005, 0.005], waits, strict=True))


# Timeouts.


async def test_between_bytes_timeout() -> None:
    """It differs from the timeout of the first byte."""
    async with Loopback([ONE], hold=True) as server:
        events = await ask(model(server, timeout=Timeouts(between_bytes=0.05)))
        with anyio.fail_after(10):
            await server.disconnected.wait()

    delta, silence = events
    assert TextDelta("a") == delta
    assert isinstance(silence, SourceError)
    assert "TimeoutError" == silence.cause
    assert silence.message.startswith("the provider sent no data for too long")


# Clients.


class Noting:
    """A client that is not one of httpx. It records the arguments of `stream`."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client
        self.asked: list[dict[str, Any]] = []

    def stream(self, method: str, url: str, **options: Any) -> Any:
        self.asked.append(options)
        return self.client.stream(method, url, **options)


@pytest.mark.parametrize(("connect", "handed"), [(10.0, 10.0), (float("inf"), None)])
async def test_a_given_client(connect: float, handed: float | None) -> None:
    """It is used and stays open. It limits the time to connect, and the model the other times."""
    async with Loopback(STREAM) as server, httpx.AsyncClient(timeout=0.001) as client:
        noting = Noting(client)
        assert EVENTS == await ask(model(server, client=noting, timeout=Timeouts(connect=connect)))
        assert EVENTS == await ask(model(server, client=noting))
        assert not client.is_closed

    assert {"headers", "content", "follow_redirects", "timeout"} == noting.asked[0].keys()
    assert ((handed, None, None, None), False) == (noting.asked[0]["timeout"], noting.asked[0]["follow_redirects"])


async def test_unusable_clients() -> None:
    """A synchronous client and a closed one raise before anything is sent."""
    async with Loopback(STREAM) as server:
        with httpx.Client() as synchronous, pytest.raises(TypeError, match="client must be asynchronous"):
            await ask(model(server, client=synchronous))
        async with httpx.AsyncClient() as closed:
            pass
        with pytest.raises(RuntimeError, match="has been closed"):
            await ask(model(server, client=closed))
        assert [] == server.requests


class Opened:
    """An unreadable response that records whether it was closed."""

    status_code = 200
    headers: dict[str, str] = {}  # noqa: RUF012 - as simple as can be

    def __init__(self) -> None:
        self.closed = False

    def stream(self, *_: object, **__: object) -> Self:
        return self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.closed = True


async def test_an_unreadable_response() -> None:
    """The error is raised, and the response is closed."""
    opened = Opened()
    with pytest.raises(UnreadableSource):
        await ask(OpenAIChat("m", client=opened))

    assert opened.closed


class ClientError(Exception):
    """The base class of aiohttp's exceptions, by its name."""


class Malformed(Opened):
    """A response that httpx-aiohttp cannot parse."""

    async def __aenter__(self) -> Self:
        raise ClientError


async def test_an_exception_of_aiohttp() -> None:
    """It is an error of the provider, so a `Fallback` calls the next model."""
    error = (await ask(OpenAIChat("m", client=Malformed(), retries=0)))[0]
    assert isinstance(error, SourceError)
    assert (error.message, error.cause) == ("the provider could not be reached", f"{__name__}.ClientError")


def unresolved(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("secret") from socket.gaierror("secret")


def too_slow(request: httpx.Request) -> httpx.Response:
    raise httpx.ReadTimeout("secret")


async def test_the_cause_of_a_failed_connection(caplog: pytest.LogCaptureFixture) -> None:
    """The log names a refused port, and a host name that is not resolved, and says what to check."""
    unresolving, slow = (httpx.AsyncClient(transport=httpx.MockTransport(each)) for each in (unresolved, too_slow))
    causes = list[str | None]()
    for one in (None, unresolving, slow):
        (error,) = await ask(OpenAIChat("m", base_url="http://127.0.0.1:1/v1", client=one, retries=0))
        assert isinstance(error, SourceError)
        causes.append(error.cause)
    refused, unknown_name = "httpx.ConnectError ConnectionRefusedError", "httpx.ConnectError socket.gaierror"
    assert causes == [refused, unknown_name, "httpx.ReadTimeout"]
    logged = [each.getMessage() for each in caplog.records if "provider_not_reached" in each.getMessage()]
    assert [True] * 3 == [f"cause={cause!r}" in text for cause, text in zip(causes, logged, strict=True)]
    assert [False, False, True] == ["no answer in time: raise `timeout`" in text for text in logged]


# Closing.


async def leave_by_exception(source: Source) -> None:
    raise ZeroDivisionError


async def leave_by_break(source: Source) -> None:
    async for _ in source:
        break


async def leave_at_once(source: Source) -> None:
    pass


async def leave_closed(source: Source) -> None:
    await source.aclose()


@together("leave", [leave_at_once, leave_by_break, leave_by_exception, leave_closed])
@together("given", [True, False])
async def test_the_response_is_closed(leave: Callable[[Source], Any], given: bool) -> None:
    """The provider sees the disconnect however the answer is left, with any client."""
    async with Loopback([ONE], hold=True) as server, httpx.AsyncClient() as client:
        try:
            async with model(server, client=client if given else None).stream(ASK) as source:
                await leave(source)
        except ZeroDivisionError:
            assert leave is leave_by_exception
        with anyio.fail_after(10):
            await server.disconnected.wait()


@pytest.mark.parametrize("script", [[], [ONE]])
async def test_the_response_is_closed_by_cancellation(script: list[bytes]) -> None:
    """This holds before and after the first byte."""
    async with Loopback(script, hold=True) as server:

        async def read() -> None:
            async with model(server).stream(ASK) as source:
                async for batch in source:
                    begun.set()
                    assert [TextDelta("a")] == batch

        begun = anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            with anyio.fail_after(10):
                while not server.requests:
                    await anyio.lowlevel.checkpoint()
                if script:
                    await begun.wait()
            tasks.cancel_scope.cancel()
        with anyio.fail_after(10):
            await server.disconnected.wait()
