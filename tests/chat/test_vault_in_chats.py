"""A chat with a `Vault`: the model sees only placeholders, and readers, tools and the history have the values."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from streamtools import RunnerOptions, TextJudge, TextOptions, ToolStream, chat, events, rules, sources, tool
from streamtools import conversation as models
from streamtools.errors import Code
from streamtools.history import Assistant, Format, Results, read_messages
from streamtools.parsing.dialects import DIALECTS
from streamtools.recording import RecordingTransport
from streamtools.rules import Vault
from streamtools.stream import hiding
from streamtools.tools import MemoryLedger
from tests.support import provider_streams
from tests.support.cases import cases, together
from tests.support.chat_chunks import DONE, chunk
from tests.support.collected import collecting
from tests.support.full_requests import FILE, HISTORIES
from tests.support.loopback import Loopback
from tests.support.loops import ONE_LOOP
from tests.support.provider import Provider

ANN, BO = "ann@example.org", "bo@example.com"
CARD = 4111111111111111
ASK = [{"role": "system", "content": f"Sign as {BO}."}, {"role": "user", "content": f"Write to {ANN}."}]
_NATIVE = (models.OpenAIChat, models.OpenAIResponses, models.AnthropicMessages, models.CohereChat)
_GOOGLE = (models.GeminiChat, models.GeminiInteractions)
BEDROCK = models.BedrockConverse("m", region="eu-west-1", credentials=("a", "b"))
MODELS: list[Any] = [*(kind("m", api_key="") for kind in (*_NATIVE, *_GOOGLE)), models.OllamaChat("m"), BEDROCK]
WITH_VALUE = base64.b64encode(f"A page. {ANN}".encode()).decode()
"""A text file with a value."""
IN_TEXT = '###: {"name": "send", "arguments": {"to": "<EMAIL_1>", "text": "Dear <email_1>"}}'
ARGUMENTS = {"to": ANN, "text": f"Dear {ANN}"}


def mails() -> tuple[list[dict[str, str]], Callable[..., dict[str, str]]]:
    sent: list[dict[str, str]] = []

    def send(to: str, text: str) -> dict[str, str]:
        """Send a mail."""
        sent.append({"to": to, "text": text})
        return {"sent to": to, "copy": BO}

    return sent, send


def new_vault() -> Vault:
    """A vault that knows Ann as EMAIL_1 and Bo as EMAIL_2."""
    vault = Vault([rules.email()])
    vault.replace(f"{ANN} {BO}")
    return vault


async def events_of(stream: ToolStream) -> list[events.UIEvent]:
    async with stream as told:
        return [event async for event in told]


def text_of(told: Sequence[events.UIEvent]) -> str:
    return "".join(event.text for event in told if isinstance(event, events.Text))


def asked(model: models.ScriptedModel) -> str:
    """Return all requests, as they would be sent by each model."""
    return json.dumps([each.body(ask) for ask in model.asks for each in MODELS], default=str)


def planted(value: Any, name: str = "") -> Any:
    """Return the messages of a full request with a value in each text."""
    if isinstance(value, dict):
        number = {"card": CARD} if name in ("input", "args", "arguments") else {}
        return {key: planted(member, key) for key, member in value.items()} | number
    if isinstance(value, list):
        return [planted(item, name) for item in value]
    if isinstance(value, str) and value.endswith(FILE):
        return value.removesuffix(FILE) + WITH_VALUE
    is_text = isinstance(value, str) and (" " in value or value.endswith(".")) and not value.startswith("{")
    return f"{value} {ANN}" if is_text and name not in ("data", "url", "thought") else value


@pytest.mark.parametrize("format", HISTORIES)
async def test_no_request_contains_a_value(format: Format) -> None:
    """In the messages of each format, written for each model."""
    history = read_messages(planted(HISTORIES[format]))
    assert ANN in repr(history)
    model = models.ScriptedModel(["Yes."])
    await chat(model, history, text=TextOptions(vault=Vault([rules.email(), rules.credit_card()])))

    turns = [message for message in model.asks[0].history if isinstance(message, Assistant)]
    signed = [thought for turn in turns for thought in turn.thoughts if thought.signature or thought.redacted]
    assert repr(model.asks[0].history).count(ANN) == repr(signed).count(ANN)
    assert repr(model.asks[0].history).count("<EMAIL_1>") > 3
    assert WITH_VALUE not in repr(model.asks[0].history)
    assert str(CARD) not in repr([(turn.calls, turn.in_text) for turn in turns])


@together("native", [True, False])
async def test_a_tool_gets_the_value_and_the_model_does_not(native: bool) -> None:
    """Also in the events, the result and the history, and in the next request."""
    sent, send = mails()
    call: list[Any] = [
        events.TextDelta("I write to <EMA"),
        events.TextDelta("IL_1>. "),
        events.NativeToolCall("send", {"to": "<EMAIL_1>", "text": "Dear <email_1>"}, "c1", "id1"),
        events.ProviderCompleted(finish_reason="tool_calls"),
    ]
    model = models.ScriptedModel(
        [call if native else f"I write to <EMAIL_1>. {IN_TEXT}", "Sent to <Emails 1> and &lt;EMAIL_2&gt;."]
    )
    dialects = None if native else ["hash_marker"]
    stream = chat(
        model, ASK, tools=[send], native_tool_calls=native, dialects=dialects, text=TextOptions(vault=new_vault())
    )
    told = await events_of(stream)

    assert sent == [ARGUMENTS]
    assert text_of(told) == f"I write to {ANN}. Sent to {ANN} and {BO}."
    (made,) = (event for event in told if isinstance(event, events.Call))
    (done,) = (event for event in told if isinstance(event, events.Executed))
    assert made.call.arguments == done.call.arguments == ARGUMENTS
    assert done.result == {"sent to": ANN, "copy": BO}
    assert [call.arguments for call in stream.result.calls] == [ARGUMENTS]
    (follow_up,) = (event for event in told if isinstance(event, events.FollowUp))
    for shown in (stream.messages(), stream.result.messages(), follow_up.messages):
        assert ANN in json.dumps(shown)
        assert "EMAIL" not in json.dumps(shown)
    assert ANN not in asked(model)
    assert BO not in asked(model)
    assert asked(model).count("<EMAIL_1>") > 3 * len(MODELS)


@pytest.mark.parametrize("name", provider_streams.NAMES)
async def test_values_are_restored_in_the_streams_of_all_providers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In reasoning, text and native calls, also if a placeholder is cut."""
    monkeypatch.setattr(provider_streams, "REASONING", "To <EMAIL_1>?")
    monkeypatch.setattr(provider_streams, "TEXT", "I use <EMAIL\\_1>.")
    calls = [("weather", {"city": "<EMAIL_1>"}), ("clock", {"zone": "of <email_1>", "seconds": True})]
    monkeypatch.setattr(provider_streams, "CALLS", calls)
    one, two = (json.dumps(arguments) for _, arguments in calls)
    monkeypatch.setattr(provider_streams, "_HALVES", [(one[:13], one[13:]), (two[:9], two[9:])])
    provider = getattr(provider_streams, f"_{name}")()
    vault = new_vault()
    async with ToolStream(sources.detect(_bytes(provider.frames)), text=TextOptions(vault=vault)) as stream:
        told = [event async for event in stream]

    assert text_of(told) == f"I use {ANN}."
    assert "".join(event.text for event in told if isinstance(event, events.Reasoning)) == f"To {ANN}?"
    (done,) = (event for event in told if isinstance(event, events.Done))
    found = [event.call for event in told if isinstance(event, events.Call)]
    expected = [{"city": ANN}, {"zone": f"of {ANN}", "seconds": True}]
    assert [call.arguments for call in found] == expected
    assert not done.pending or [call.arguments for call in done.pending] == expected
    assert "EMAIL" not in "".join(event.to_json() for event in told if isinstance(event, events.Partial))


async def _bytes(frames: Sequence[bytes]) -> Any:
    for frame in frames:
        yield frame


@ONE_LOOP
async def test_values_are_restored_in_the_arguments_of_all_dialects() -> None:
    """At any cut. A placeholder is no tag in dialects of tags."""
    vault = new_vault()
    placeholders = {"to": "<EMAIL_1>", "text": "Dear <EMAIL_1>"}
    with cases() as case:
        for dialect in DIALECTS.values():
            call = dialect.write_call("send", placeholders)
            for size in (1, 7, len(call)):
                pieces = [call[at : at + size] for at in range(0, len(call), size)]
                sent, send = mails()
                text = TextOptions(vault=vault)
                with case(dialect.id, size):
                    await ToolStream(sources.text(pieces), tools=[send], dialects=[dialect], text=text)
                    assert sent == [ARGUMENTS]


async def test_the_next_chat_uses_the_stored_state() -> None:
    """The same value has the same placeholder."""
    vault = Vault([rules.email()])
    first = chat(models.ScriptedModel(["I know <EMAIL_2>."]), ASK, text=TextOptions(vault=vault))
    await first
    assert first.vault is not None
    stored: dict[str, Any] = json.loads(json.dumps(first.vault.state))
    model = models.ScriptedModel(["Yes, <EMAIL_1>."])
    second = chat(
        model,
        [*first.messages(), {"role": "user", "content": f"Is it {ANN}?"}],
        text=TextOptions(vault=Vault([rules.email()], state=stored)),
    )

    assert (await second).text == f"Yes, {BO}."
    assert "I know <EMAIL_2>." in asked(model)
    assert "Is it <EMAIL_2>?" in asked(model)


async def test_chats_that_share_a_vault_do_not_share_values() -> None:
    """Also if they run at the same time. A value that the application has given is in all."""
    vault = Vault([rules.email()])
    vault.learn(BO)
    users = [f"Bo is {BO}, and I am {ANN}.", "Who is <EMAIL_2>?", "I am cy@example.net."]
    answers = ["<EMAIL_1> <EMAIL_2>", "<EMAIL_1> <EMAIL_2> <QUOTED_1>", "<EMAIL_1> <EMAIL_2>"]
    streams = [
        chat(models.ScriptedModel([answer]), [{"role": "user", "content": user}], text=TextOptions(vault=vault))
        for user, answer in zip(users, answers, strict=True)
    ]
    async with anyio.create_task_group() as group:
        for stream in streams:
            group.start_soon(stream._read_all)

    shown = [f"{BO} {ANN}", f"{BO} <EMAIL_2> <EMAIL_2>", f"{BO} cy@example.net"]
    assert [stream.result.text for stream in streams] == shown
    assert vault.state == {"values": {"email": [BO]}}
    assert [sum(map(len, stream.vault.state["values"].values())) for stream in streams if stream.vault] == [2, 2, 2]


async def test_roles_and_tools_can_be_skipped() -> None:
    def look() -> str:
        """Look."""
        return ANN

    for skips in (False, True):
        call = '###: {"name": "look", "arguments": {}}'
        model = models.ScriptedModel([call, "Fine."])
        more: dict[str, Any] = {"skip_roles": ["system"], "skip_tools": ["look"]} if skips else {}
        vault = Vault([rules.email()], **more)
        await chat(
            model, ASK, tools=[look], dialects=["hash_marker"], native_tool_calls=False, text=TextOptions(vault=vault)
        )

        system, _, _, results = model.asks[-1].history
        assert skips == (BO in repr(system)) == (ANN in repr(results))


@dataclass
class Contact:
    """A typed answer."""

    mail: str
    name: str


async def test_requests_are_written_in_a_thread() -> None:
    """Finders may be slow."""
    threads: set[int] = set()

    def find(text: str) -> list[str]:
        threads.add(threading.get_ident())
        return []

    await chat(models.ScriptedModel(["Yes."]), ASK, text=TextOptions(vault=Vault(finders={"person": find})))
    assert threads
    assert threading.get_ident() not in threads


async def test_typed_values_are_restored_before_validation() -> None:
    """Also values with characters that JSON escapes."""
    vault = Vault([rules.email()], finders={"person": lambda text: ['Bo "B" Ek'] if "Ek" in text else []})
    stream = chat(
        models.ScriptedModel(['{"mail": "<EMAIL_1>", "name": "<PERSON_1>"}']),
        [{"role": "user", "content": f'{ANN}, Bo "B" Ek'}],
        output=Contact,
        text=TextOptions(vault=vault),
    )
    await stream

    assert stream.result.output == Contact(ANN, 'Bo "B" Ek')
    assert stream.output == {"mail": ANN, "name": 'Bo "B" Ek'}


async def test_an_unknown_placeholder_is_a_warning() -> None:
    told = await events_of(chat(models.ScriptedModel(["See <EMAIL_7>."]), ASK, text=TextOptions(vault=new_vault())))

    assert text_of(told) == "See <EMAIL_7>."
    (warning,) = (event for event in told if isinstance(event, events.Warning))
    assert warning.code is Code.UNKNOWN_PLACEHOLDER


@together("on_break", ["continue", "restart_step"])
async def test_another_model_gets_placeholders(on_break: Any) -> None:
    """If it continues text that readers have seen."""
    lost = events.SourceError("lost", Code.STREAM_INTERRUPTED)
    broken: list[Any] = [events.TextDelta("I write to <EMAIL_1> "), lost]
    second = models.ScriptedModel(["and <EMAIL_2>."])
    stream = chat(
        models.Fallback(models.ScriptedModel([broken]), second, on_break=on_break),
        ASK,
        text=TextOptions(vault=new_vault()),
    )
    result = await stream

    assert result.text == ("" if on_break == "restart_step" else f"I write to {ANN} ") + f"and {BO}."
    assert ANN not in asked(second)
    assert (on_break == "continue") == ("I write to <EMAIL_1>" in asked(second))


@together("mode", ["fallback", "force"])
async def test_an_emulated_call_has_the_value(mode: Any) -> None:
    """The requests for a decision contain placeholders."""
    sent, send = mails()
    decision = '{"tools": [{"tool": "send", "arguments": {"to": "<EMAIL_1>", "text": "Dear <email_1>"}}]}'
    answers = (["I cannot."] if mode == "fallback" else []) + [decision]
    model = models.ScriptedModel([*answers, *(["Done."] if mode == "fallback" else []), '{"tools": []}', "Done."])
    request = models.RequestOptions(emulation=mode)
    stream = chat(model, ASK, tools=[send], request=request, max_steps=2, text=TextOptions(vault=new_vault()))
    await stream

    assert sent == [ARGUMENTS]
    assert ANN not in asked(model)
    assert BO not in asked(model)


async def test_a_call_waits_for_its_decision_with_the_value() -> None:
    """The approver and the ledger have the same arguments as the tool, and a second run continues."""
    sent, send = mails()
    ledger = MemoryLedger()
    vault = new_vault()
    common: dict[str, Any] = {
        "tools": [tool(send, requires_approval=True, trust="text")],
        "runner": RunnerOptions(ledger=ledger),
    }
    common |= {"native_tool_calls": False, "dialects": ["hash_marker"]}
    first = chat(models.ScriptedModel([IN_TEXT]), ASK, text=TextOptions(vault=vault), **common)
    await first
    assert first.suspension is not None
    (call,) = first.suspension.calls
    assert call.arguments == ARGUMENTS
    assert not sent

    model = models.ScriptedModel(["Sent to <EMAIL_1>."])
    second = chat(
        model,
        first.history,
        resume=first.suspension,
        approvals={call.id: True},
        text=TextOptions(vault=Vault([rules.email()], state=vault.state)),
        **common,
    )
    assert (await second).text == f"Sent to {ANN}."
    assert sent == [ARGUMENTS]
    assert ANN not in asked(model)


async def test_a_placeholder_that_a_user_writes_is_no_value() -> None:
    """Also in a call that waits, and in the next requests."""
    sent, send = mails()
    ask = [{"role": "user", "content": f"Tell {ANN} about <EMAIL_1>."}]
    common: dict[str, Any] = {"tools": [tool(send, requires_approval=True)]}
    common |= {"runner": RunnerOptions(ledger=MemoryLedger())}
    written = events.NativeToolCall("send", {"to": "<EMAIL_1>", "text": "about <QUOTED_1>"}, "c1", "c1")
    first = chat(models.ScriptedModel([[written]]), ask, text=TextOptions(vault=Vault([rules.email()])), **common)
    await first
    assert first.suspension is not None
    (call,) = first.suspension.calls
    model = models.ScriptedModel(["I wrote <QUOTED_1> to <EMAIL_1>."])
    text = TextOptions(vault=first.vault)
    second = chat(model, first.history, resume=first.suspension, approvals={call.id: True}, text=text, **common)

    assert (await second).text == f"I wrote <EMAIL_1> to {ANN}."
    assert sent == [call.arguments] == [{"to": ANN, "text": "about <EMAIL_1>"}]
    (said,) = (message for message in model.asks[0].history if isinstance(message, Assistant))
    assert said.calls[0].arguments == written.arguments


async def test_rules_and_the_judge_see_values() -> None:
    """Rules that change text apply to each value."""
    judged: list[str] = []

    def is_fine(text: str, before: str) -> bool:
        judged.append(text)
        return True

    sent, send = mails()
    text = TextOptions(
        vault=new_vault(),
        rules=[rules.replace("example", "…"), rules.stop("END")],
        rules_in_arguments=True,
        judge=TextJudge(is_fine),
    )
    model = models.ScriptedModel([IN_TEXT, "Write to <EMAIL_1>. END Bye."])
    told = await events_of(chat(model, ASK, tools=[send], dialects=["hash_marker"], text=text))

    assert "".join(judged) == text_of(told) == "Write to ann@….org. "
    assert sent == [ARGUMENTS]
    assert [event.call.arguments["to"] for event in told if isinstance(event, events.Executed)] == ["ann@….org"]


async def test_spans_recordings_and_logs_contain_placeholders(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """With the content of messages, arguments and results in spans, and the exceptions of tools."""

    def send(to: str, text: str) -> None:
        """Send a mail."""
        try:
            raise ExceptionGroup(f"failed for {to}", [LookupError(f"no mailbox {text}"), ValueError(BO)])
        except ExceptionGroup as group:
            raise RuntimeError(f"not sent to {to}") from group

    def pay() -> list[int]:
        """Pay."""
        return [CARD]

    text = f'I write to <EMAIL_1>. {IN_TEXT}\n###: {{"name": "pay", "arguments": {{}}}}'
    first = [chunk({"content": text}), chunk(finish="stop"), DONE]
    file = tmp_path / "mail.jsonl"
    with collecting(content=True) as collected:
        async with Provider(
            Loopback(first), Loopback([chunk({"content": "Sent."}), chunk(finish="stop"), DONE])
        ) as server:
            transport = RecordingTransport(httpx.AsyncHTTPTransport(), file, source="openai", record_body=True)
            async with httpx.AsyncClient(transport=transport) as client:
                model = models.OpenAIChat("m", base_url=server.url, api_key="", native_tool_calls=False, client=client)
                vault = Vault([rules.email(), rules.credit_card()])
                await chat(model, ASK, tools=[send, pay], dialects=["hash_marker"], text=TextOptions(vault=vault))
        told = [span.to_json() for span in collected.spans]
    recorded, logged = file.read_text(), caplog.text
    places = {"in spans": str(told), "in recordings": recorded, "in logs": logged}
    assert not [place for place, text in places.items() for value in (ANN, BO, str(CARD)) if value in text]
    assert all("RuntimeError: not sent to <EMAIL_1>" in text for text in (logged, str(told)))
    assert "LookupError: no mailbox Dear <EMAIL_1>" in logged
    assert "<EMAIL_1>" in recorded
    assert any("<CREDIT_CARD_1>" in text for text in told)
    assert any("Dear <EMAIL_1>" in text for text in told)


LEAKS: list[tuple[str, str, Any]] = [
    ("in spans", "machine.state_machine.StreamMachine.without_matches", lambda machine, value: value),
    ("in logs", "logs._copy", lambda error, copies: error),
    ("in recordings", "stream.hiding.hide", lambda vault, history: history),
    ("in recordings", "recording.files.RecordingWriter._write", lambda to, line: to._file.write(line + BO.encode())),
]


@pytest.mark.parametrize(("place", "name", "fault"), LEAKS)
async def test_a_leak_is_caught(
    place: str, name: str, fault: Any, monkeypatch: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(f"streamtools.{name}", fault)
    with pytest.raises(AssertionError, match=place):
        await test_spans_recordings_and_logs_contain_placeholders(tmp_path, caplog)


async def test_the_next_chat_without_a_vault_is_not_changed(caplog: pytest.LogCaptureFixture) -> None:
    """The logs of a chat in a tool have placeholders. Those of a later chat do not, and its values are in no vault."""

    def fail(why: str) -> None:
        """Fail."""
        raise RuntimeError(f"inner {why}")

    def calling(name: str, why: str) -> models.ScriptedModel:
        call = json.dumps({"name": name, "arguments": {"why": why}})
        return models.ScriptedModel([f"###: {call}", "Bye."])

    async def ask(why: str) -> None:
        """Ask."""
        await chat(calling("fail", why), ASK, tools=[fail], dialects=["hash_marker"])
        raise RuntimeError(f"outer {why}")

    vault = Vault([rules.email()])
    text = TextOptions(vault=vault)
    await chat(calling("ask", "<EMAIL_1>"), ASK, tools=[ask], dialects=["hash_marker"], text=text)
    assert "RuntimeError: inner <EMAIL_1>" in caplog.text
    assert "RuntimeError: outer <EMAIL_1>" in caplog.text
    assert BO not in caplog.text

    state = vault.state
    await chat(calling("fail", f"{BO} cy@example.net"), ASK, tools=[fail], dialects=["hash_marker"])
    assert f"RuntimeError: inner {BO} cy@example.net" in caplog.text
    assert vault.state == state


async def test_a_shared_vault_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Vault, "copy", lambda vault, state=None: vault)
    with pytest.raises(AssertionError):
        await test_chats_that_share_a_vault_do_not_share_values()


_change = hiding._change
FAULTS: dict[str, Any] = {
    "stream.hiding._change": lambda *to: to[1] if isinstance(to[1], Results) else _change(*to),
    "stream.hiding.hide": lambda vault, history: history,
    "stream.argument_rules.ArgumentRules.show_call": lambda rules, call: call,
}


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("name", FAULTS)
async def test_a_planted_fault_is_caught(name: str, native: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"streamtools.{name}", FAULTS[name])
    with pytest.raises(AssertionError):
        await test_a_tool_gets_the_value_and_the_model_does_not.__wrapped__(native)  # type: ignore[attr-defined]
