"""The template of a server without its parser, with servers that answer as those of llama.cpp and vLLM document it."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from streamtools.gateway import Exchange, Rewrite, ToolCallTransport
from tests.support.gateway import CLIENTS, answer, begin, collect, request

CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Zürich"}}\n</tool_call>'
TEXT = f"Where?\n</think>\n\nI look.\n{CALL}"
PROMPT = "<|im_start|>user\nWhat is it like?<|im_end|>\n<|im_start|>assistant\n<think>\n"
MODEL = "Qwen/Qwen3-8B"


def sse(*events: Any) -> bytes:
    return b"".join(b"data: %b\n\n" % json.dumps(each).encode() for each in events)


def llama(streamed: bool) -> bytes:
    """Return an answer of `/completion`."""
    end = {
        "content": "",
        "stop": True,
        "stop_type": "eos",
        "model": MODEL,
        "tokens_evaluated": 9,
        "tokens_predicted": 4,
    }
    if not streamed:
        return json.dumps(end | {"content": TEXT}).encode()
    pieces = [TEXT[at : at + 4] for at in range(0, len(TEXT), 4)]
    return sse(*({"index": 0, "content": each, "stop": False} for each in pieces), end)


def vllm(streamed: bool) -> bytes:
    """Return an answer of `/v1/completions`."""
    usage = {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}
    head = {"id": "cmpl-1", "object": "text_completion", "model": MODEL}
    if not streamed:
        choice = {"index": 0, "text": TEXT, "finish_reason": "stop"}
        return json.dumps({**head, "choices": [choice], "usage": usage}).encode()
    pieces = [TEXT[at : at + 4] for at in range(0, len(TEXT), 4)]
    chunks = [{**head, "choices": [{"index": 0, "text": each, "finish_reason": None}]} for each in pieces]
    chunks.append({**head, "choices": [{"index": 0, "text": "", "finish_reason": "stop"}]})
    return sse(*chunks, {**head, "choices": [], "usage": usage}) + b"data: [DONE]\n\n"


PREPARED: dict[str, bytes] = {
    "llama.cpp": json.dumps({"prompt": PROMPT}).encode(),
    "vllm": json.dumps({"count": 3, "tokens": [1, 2, 3], "token_strs": ["assistant", "\n", "<think>", "Ċ"]}).encode(),
}
ANSWERS = {"llama.cpp": llama, "vllm": vllm}


def ask(client: str, upstream: str, *, streamed: bool = True, **more: Any) -> Exchange:
    return begin(client, request(client, streamed=streamed, model=MODEL, **more), mode="auto", upstream=upstream)


@pytest.mark.parametrize("upstream", PREPARED)
def test_the_model_goes_on_with_the_prompt_of_its_template(upstream: str) -> None:
    for client in CLIENTS:
        for streamed in (True, False):
            exchange = ask(client, upstream, streamed=streamed)
            assert exchange.request is not None
            told = json.loads(exchange.request.body)
            endpoint = {"llama.cpp": "apply-template", "vllm": "tokenize"}[upstream]
            assert (exchange.request.endpoint, len(told["tools"])) == (endpoint, 2)
            seen = collect(client, answer(exchange, PREPARED[upstream], ANSWERS[upstream](streamed)))
            assert (seen.text, seen.reasoning.strip(), seen.finish) == ("I look.", "Where?", "tool_calls"), client
            assert [call[1:] for call in seen.calls] == [("get_weather", {"city": "Zürich"})], client
            assert exchange.head is not None
            assert exchange.head.status == 200


def test_what_the_model_is_asked() -> None:
    asked: dict[str, Any] = {}
    for upstream, prepared in PREPARED.items():
        exchange = ask("openai", upstream, max_tokens=5, stop="X", temperature=0)
        exchange.begin(200, [("content-type", "application/json")])
        exchange.feed(prepared)
        assert (exchange.close(), exchange.head) == (b"", None)
        assert exchange.request is not None
        asked[exchange.request.endpoint] = json.loads(exchange.request.body)
    body = asked["completion"]
    assert (body["prompt"], body["n_predict"], body["temperature"]) == (PROMPT, 5, 0)
    assert "<tool_call>" in body["preserved_tokens"]
    body = asked["completions"]
    assert (body["prompt"], body["max_tokens"], body["skip_special_tokens"]) == ([1, 2, 3], 5, False)
    assert body["add_special_tokens"] is False
    for each in asked.values():
        assert each["stop"][0] == "X"
        assert "<|im_end|>" in each["stop"]
        assert ("<end_of_turn>" in each["stop"]) is (each["prompt"] != PROMPT)  # whose template has another end
        assert not each.keys() & {"messages", "tools", "tool_choice"}


def test_what_the_way_cannot_carry_takes_the_other_which_is_said_once() -> None:
    image = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}]}]
    rewrite = Rewrite(mode="auto", upstream="llama.cpp")
    with capture_logs() as logs:
        for _ in range(2):
            for more in ({"response_format": {"type": "json_object"}}, {"n": 2}, {"messages": image}):
                body = request("openai", model=MODEL, **more)
                exchange = rewrite.begin("openai", json.dumps(body).encode())
                assert exchange.request is not None
                assert exchange.request.endpoint == "chat/completions", more
            exchange = rewrite.begin("openai", json.dumps(request("openai", model=MODEL)).encode())
            exchange.begin(404, [])
            assert exchange.close() == b""
            assert exchange.request is not None
            assert exchange.request.endpoint == "chat/completions"
    assert ["response_format", "n", "content", "status 404"] == [each["reason"] for each in logs]


def test_servers_that_refuse_or_tell_nothing() -> None:
    for upstream in PREPARED:
        for status, body, told in ((401, b'{"error": {"message": "No."}}', 401), (200, b"{}", 502), (200, b"?", 502)):
            exchange = ask("anthropic", upstream)
            exchange.begin(status, [("content-type", "application/json")])
            exchange.feed(body)
            assert json.loads(exchange.close())["type"] == "error"
            assert exchange.head is not None
            assert (exchange.head.status, exchange.request) == (told, None), (upstream, status)


@pytest.mark.anyio
async def test_over_the_transport() -> None:
    """The endpoints of the template are at the root; the answer is streamed all the same."""
    paths: list[str] = []

    def respond(request: httpx.Request) -> httpx.Response:
        paths.append(request.url.path)
        if request.url.path == "/apply-template":
            return httpx.Response(200, content=PREPARED["llama.cpp"])
        return httpx.Response(200, content=llama(True), headers={"content-type": "text/event-stream"})

    transport = ToolCallTransport(httpx.MockTransport(respond), mode="auto", upstream="llama.cpp")
    asked = {"url": "http://localhost/v1/responses", "json": request("responses", model=MODEL)}
    with httpx.Client(transport=transport) as http:
        responses = [http.post(**asked)]  # noqa: ASYNC212  # nothing blocks: the transport answers by itself
    async with httpx.AsyncClient(transport=transport) as other:
        responses.append(await other.post(**asked))
    for response in responses:
        assert collect("responses", response.content).finish == "tool_calls"
        assert response.headers["content-type"] == "text/event-stream"
    assert paths == ["/apply-template", "/completion"] * 2
