"""A gateway with a `Vault`: the upstream sees only placeholders, and the client only values."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from streamtools import rules
from streamtools.gateway import FallbackUpstream, ToolCallTransport, answer, exchange
from streamtools.gateway.service import app
from streamtools.history import read_messages, write_messages
from streamtools.rules import Vault
from streamtools.rules.matcher import Matcher, replace_matches
from streamtools.stream.hiding import hide
from tests.support.cases import cases, together
from tests.support.chat_chunks import DONE, chunk
from tests.support.gateway import CLIENTS, HEADERS, Collected, begin, collect, request, stream
from tests.support.gateway import answer as answered
from tests.support.loopback import Loopback
from tests.support.provider import Provider
from tests.support.serving import Served

ANN, BO, CY = "ann@example.org", "bo@example.com", "cy@example.net"
CARD = 4111111111111111
PATHS = {"openai": "v1/chat/completions", "responses": "v1/responses", "anthropic": "v1/messages"}
VAULT = Vault([rules.email(), rules.credit_card()])
FILE = base64.b64encode(f"A page of {ANN}".encode()).decode()
ARGUMENTS = {"to": BO, "text": f"Dear {BO}"}
IN_TEXT = '~~~tool_call\n{"name": "send", "arguments": {"to": "<EMAIL_2>", "text": "Dear <email_2>"}}\n~~~'
TEXT = "I write to <EMAIL_2> and <EMAIL_3>, 1 <2. <EMAIL_9>"
SHOWN = f"I write to {BO} and {CY}, 1 <2. <EMAIL_9>"


def asked(client: Any, *, streamed: bool = True) -> Any:
    """Return a request with a value in each field for text."""
    arguments = json.dumps({"to": BO, "card": [CARD]})
    call = {"id": "c1", "type": "function", "function": {"name": "send", "arguments": arguments}}
    file = {"type": "file", "file": {"filename": "a.txt", "file_data": f"data:text/plain;base64,{FILE}"}}
    history: list[dict[str, Any]] = [
        {"role": "user", "content": [{"type": "text", "text": f"Write to {BO}."}, file]},
        {"role": "assistant", "content": f"To {BO}:", "reasoning_content": f"{BO}?", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": json.dumps({"sent": CY, "by": BO})},
    ]
    system = f"Sign as {ANN}."
    body = request(client, streamed=streamed, tools=["send"])
    if client == "openai":
        body["messages"] = [{"role": "system", "content": system}, *history]
        return body | {"user": ANN, "prediction": {"type": "content", "content": f"Dear {CY}"}}
    messages = write_messages(read_messages(history), client)
    if client == "responses":
        return body | {"user": ANN, "instructions": system, "input": messages}
    thinking = {"type": "thinking", "thinking": f"{BO}?", "signature": "of another provider"}
    messages[1]["content"].insert(0, thinking)
    return body | {"metadata": {"user_id": ANN}, "system": system, "messages": messages}


def upstream_body(begun: exchange.Exchange) -> Any:
    """Return the request for the upstream, which has no value."""
    assert begun.request is not None
    sent = begun.request.body.decode()
    assert not [value for value in (ANN, BO, CY, FILE, str(CARD)) if value in sent]
    return json.loads(sent)


def answers(size: int, *, native: bool, streamed: bool) -> list[bytes]:
    """Return an answer of the upstream in pieces. Placeholders are cut at each place, for all sizes of deltas."""
    call = {"name": "send", "arguments": json.dumps({"to": "<EMAIL_2>", "text": "Dear <email_2>"})}
    if not streamed:
        message: dict[str, Any] = {"role": "assistant", "content": TEXT, "reasoning_content": "<Email 2>?"}
        message |= {"tool_calls": [{"id": "c1", "type": "function", "function": call}]} if native else {}
        message |= {} if native else {"content": f"{TEXT}\n{IN_TEXT}"}
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if native else "stop"}
        return [json.dumps({"id": "r", "object": "chat.completion", "model": "m", "choices": [choice]}).encode()]

    def cut(text: str) -> list[str]:
        return [text[at : at + size] for at in range(0, len(text), size)]

    deltas: list[dict[str, Any]] = [{"reasoning_content": each} for each in cut("<Email 2>?")]
    deltas += [{"content": each} for each in cut(TEXT if native else f"{TEXT}\n{IN_TEXT}")]
    if native:
        first = {"index": 0, "id": "c1", "type": "function", "function": {"name": "send", "arguments": ""}}
        pieces = [{"index": 0, "function": {"arguments": each}} for each in cut(call["arguments"])]
        deltas += [{"tool_calls": [each]} for each in (first, *pieces)]
    return [*map(chunk, deltas), chunk({}, "tool_calls" if native else "stop"), DONE]


def seen_by(client: str, size: int, *, native: bool, streamed: bool) -> Collected:
    begun = begin(client, asked(client, streamed=streamed), mode="native" if native else "text", vault=VAULT)
    written = json.dumps(upstream_body(begun))
    assert all(f"<EMAIL_{n}>" in written for n in (1, 2, 3))
    return collect(client, answered(begun, answers(size, native=native, streamed=streamed)))


@pytest.mark.parametrize("client", CLIENTS)
def test_the_upstream_sees_placeholders_and_the_client_values(client: str) -> None:
    """In text, reasoning and arguments, native or in text, at each cut, and in an answer that is not streamed."""
    with cases() as case:
        for native in (True, False):
            for size in (1, 2, 3, 5, 7, 8, 1000, 0):
                with case(native, size):
                    seen = seen_by(client, size or 1, native=native, streamed=size > 0)
                    assert (seen.text.rstrip(), seen.reasoning) == (SHOWN, f"{BO}?")
                    assert [(name, arguments) for _, name, arguments in seen.calls] == [("send", ARGUMENTS)]
                    assert seen.error is None
    assert VAULT.state == {"values": {}}  # each request has a copy


@pytest.mark.parametrize("client", CLIENTS)
def test_a_conversation_keeps_its_placeholders(client: str) -> None:
    """The client returns values, and the upstream gets what it wrote. In a shorter history, numbers may differ."""
    body = asked(client)
    key = "input" if client == "responses" else "messages"
    begun = begin(client, body, mode="native", vault=VAULT)
    first = upstream_body(begun)["messages"]
    text = collect(client, answered(begun, stream(["<EMAIL_2> and <EMAIL_3>, not <EMAIL_9>"]))).text
    asks = f"And dee@example.org and {ANN}?"
    body[key] += [{"role": "assistant", "content": text}, {"role": "user", "content": asks}]
    second = upstream_body(begin(client, body, mode="native", vault=VAULT))["messages"]
    said, question = second[len(first) :]
    assert second[: len(first)] == first
    assert said["content"] == "<EMAIL_2> and <EMAIL_3>, not <EMAIL_9>"
    assert question["content"] == "And <EMAIL_4> and <EMAIL_1>?"
    body[key] = body[key][-1:]
    begun = begin(client, body, mode="native", vault=VAULT)
    question = upstream_body(begun)["messages"][-1]["content"]
    assert "<EMAIL_2>" in question
    assert collect(client, answered(begun, stream([question]))).text == asks


def test_only_a_live_prefix_is_pending() -> None:
    """As in the rule. The encoder also buffers white space."""
    vault = VAULT.copy()
    vault.replace(f"{ANN} {BO} {CY}")
    matcher = Matcher([vault.rule()])
    begun = begin("openai", asked("openai"), mode="native", vault=VAULT)
    begun.begin(200, [("content-type", "text/event-stream")])
    expected = shown = ""
    for character in "a < b, <EMAIL_x, <EMAIL_2> \\<EMAIL\\_3\\> &lt;b <EMAILS>":
        expected += replace_matches(matcher.feed(character))
        shown += "".join(delta_of(begun.feed(chunk({"content": character}))))
        assert shown == expected.rstrip()
    assert shown.startswith(f"a < b, <EMAIL_x, {BO} {CY} &lt;b")


def test_text_that_is_pending_too_long_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    feed = answer.ClientAnswer.feed
    kept: Any = [[]]
    monkeypatch.setattr(answer.ClientAnswer, "feed", lambda to, batch: kept.append(batch) or feed(to, kept.pop(0)))
    with pytest.raises(AssertionError, match="assert '' == 'a'"):
        test_only_a_live_prefix_is_pending()


def delta_of(sent: bytes) -> list[str]:
    events = [json.loads(each.removeprefix(b"data: ")) for each in sent.split(b"\n\n") if each]
    return [choice["delta"].get("content") or "" for event in events for choice in event["choices"]]


@pytest.mark.parametrize("share", [4, pytest.param(1, marks=pytest.mark.deep)])
@pytest.mark.parametrize("prefill", ["", "vllm"])
def test_the_next_upstream_continues_placeholders(prefill: Any, share: int) -> None:
    """At each break of the answer. A complete call is kept."""
    text = f"{TEXT}\n{IN_TEXT}\nSent to <EMAIL_2>."
    second = FallbackUpstream(url="http://127.0.0.1:2/v1", prefill=prefill)
    for at in range(0, len(text), share):
        begun = begin("openai", asked("openai"), vault=VAULT, fallbacks=[second])
        upstream_body(begun)
        begun.begin(200, [("content-type", "text/event-stream")])
        sent = begun.feed(stream(list(text[:at]), None, done=False)) + begun.close("transport")
        messages = upstream_body(begun)["messages"]
        written = [each["content"] for each in messages if each["role"] == "assistant"][1:]
        rest = text.removeprefix("".join(written))
        assert rest != text or not written
        seen = collect("openai", sent + answered(begun, stream(list(rest))))
        assert seen.text == f"{SHOWN}\nSent to {BO}."
        assert [arguments for _, _, arguments in seen.calls] == [ARGUMENTS]


@pytest.mark.parametrize("kind", ["json_object", "text"])
def test_a_value_in_a_json_answer_is_escaped(kind: str) -> None:
    quoted = 'Ann "Bo" Lee'
    vault = Vault(finders={"person": lambda text: [quoted] if quoted in text else []})
    body = request("openai", response_format={"type": kind}, tools=[])
    body["messages"] = [{"role": "user", "content": f"Who is {quoted}?"}]
    begun = begin("openai", body, mode="native", vault=vault)
    assert b"Lee" not in begun.request.body  # type: ignore[union-attr]
    seen = collect("openai", answered(begun, stream(['{"name": "<PERS', 'ON_1>"}']))).text
    assert seen == (json.dumps({"name": quoted}) if kind == "json_object" else f'{{"name": "{quoted}"}}')


def test_options_of_the_vault_and_rules() -> None:
    """Skipped messages are sent unchanged. Text rules apply to each value."""
    vault = Vault([rules.email()], skip_roles=["system"], skip_tools=["send"])
    begun = begin("openai", asked("openai"), mode="native", vault=vault, text_rules=[rules.replace(BO, "B")])
    assert begun.request is not None
    system, *_, result = json.loads(begun.request.body)["messages"]
    assert (system["content"], json.loads(result["content"])) == (f"Sign as {ANN}.", {"sent": CY, "by": BO})
    assert collect("openai", answered(begun, stream(["To <EMA", "IL_1>"]))).text == "To B"
    with pytest.raises(TypeError, match="vault must be a Vault"):
        begin("openai", {}, vault=[rules.email()])


@pytest.mark.asyncio_only
async def test_a_gateway_records_and_logs_placeholders(tmp_path: Path) -> None:
    """Requests that are not rewritten are refused, because they may contain values. Files are reported once."""
    target = tmp_path / "recording.jsonl"
    bodies = [Loopback(answers(1000, native=False, streamed=True)) for _ in CLIENTS]
    with capture_logs() as logs:
        async with (
            Provider(*bodies, Loopback([b"{}"], declared="application/json")) as upstream,
            Served(app(f"{upstream.url}v1", vault=VAULT, record=target)) as server,
            httpx.AsyncClient(base_url=server.url, trust_env=False) as http,
        ):
            for client in CLIENTS:
                response = await http.post(PATHS[client], json=asked(client))
                seen = collect(client, response.content)
                assert (seen.text.rstrip(), seen.calls[0][2]) == (SHOWN, ARGUMENTS)
            recorded = target.read_text()
            metrics = (await http.get("metrics")).text
            assert (await http.get("v1/models")).status_code == 200
            for path, more in (("v1/embeddings", {"input": ANN}), ("v1/responses", {"previous_response_id": "r"})):
                assert (await http.post(path, json={"model": "m", "input": ANN, **more})).status_code == 400
    assert "EMAIL" in recorded
    places = {"in requests": repr(upstream.requests), "in recordings": recorded + metrics, "in logs": repr(logs)}
    assert not [place for place, text in places.items() for value in (ANN, BO, CY) if value in text]
    assert [each["event"] for each in logs].count("request_has_files") == 1
    assert 'rule_matches_total{rule="vault"}' in metrics


warn: Any = exchange.log.warning
LEAKS: list[tuple[str, str, Any]] = [
    ("in requests", "gateway.exchange.hide", lambda vault, history: hide(vault, history) and history),
    ("in logs", "gateway.exchange.hide", lambda to, history: warn(repr(history)) or hide(to, history)),
    ("in recordings", "recording.files.RecordingWriter._write", lambda to, line: to._file.write(line + BO.encode())),
    ("== 400", "gateway.settings.Settings.may_forward", lambda settings, method, path: True),
]


@pytest.mark.asyncio_only
@pytest.mark.parametrize(("place", "name", "fault"), LEAKS)
async def test_a_leak_is_caught(place: str, name: str, fault: Any, monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.setattr(f"streamtools.{name}", fault)
    with pytest.raises((AssertionError, ExceptionGroup)) as raised:
        await test_a_gateway_records_and_logs_placeholders(tmp_path)
    assert place in str(raised.getrepr())


async def test_the_transport_has_the_vault() -> None:
    def upstream(sent: httpx.Request) -> httpx.Response:
        requests.append(sent.content.decode())
        return httpx.Response(200, content=b"".join(answers(3, native=True, streamed=True)), headers=dict(HEADERS[:1]))

    requests: list[str] = []
    transport = ToolCallTransport(httpx.MockTransport(upstream), mode="native", vault=VAULT)
    for client in CLIENTS:
        url = f"http://127.0.0.1/{PATHS[client]}"
        async with httpx.AsyncClient(transport=transport) as http:
            response = await http.post(url, json=asked(client))
            refused = await http.post("http://127.0.0.1/v1/embeddings", json={"input": ANN})
        seen = collect(client, response.content)
        assert (seen.text, seen.calls[0][2], refused.status_code) == (SHOWN, ARGUMENTS, 400)
        assert "vault" in refused.json()["error"]["message"]
    assert len(requests) == len(CLIENTS)
    assert not [value for value in (ANN, BO, CY) if value in "".join(requests)]


FAULTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "requests are sent unchanged": lambda patch: patch.setattr(exchange, "hide", lambda vault, history: history),
    "options are sent unchanged": lambda patch: patch.setattr(exchange, "with_texts", lambda value, change: value),
    "arguments have placeholders": lambda patch: patch.setattr(answer, "with_texts", lambda value, change: value),
    "text has placeholders": lambda patch: patch.setattr(Vault, "value_of", lambda vault, placeholder: placeholder),
    "values of earlier requests are kept": lambda patch: patch.setattr(Vault, "copy", lambda vault: vault),
}


@together("plant", FAULTS.values(), ids=[*FAULTS])
def test_planted_faults_are_caught(plant: Callable[[pytest.MonkeyPatch], None]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(globals(), "VAULT", VAULT.copy())
        plant(patch)
        with pytest.raises(AssertionError):
            test_the_upstream_sees_placeholders_and_the_client_values("anthropic")
