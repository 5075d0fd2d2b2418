"""Growth of all readers of data from clients, providers, tool servers and recordings; see `tests.fuzz.growth`.

Decisions are not among them: the work that is spent on one is bounded, whatever it holds, and grows up to there; the
target `decisions` holds them to it.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

from streamtools import Parser, StreamMachine, extract_tool_calls, rules
from streamtools.conversation.prompts import augment_system_prompt
from streamtools.errors import StreamToolsError, UnknownTool
from streamtools.events import SourceEvent, UIEvent, read_source_event
from streamtools.history import Format, Message, read_messages, write_messages
from streamtools.history.calls_in_text import neutralize_quotations
from streamtools.limits import Limits
from streamtools.recording import redaction
from streamtools.recording.redaction import Scrubber
from streamtools.sources import ADAPTERS
from streamtools.stream.collector import Collector
from streamtools.tools import Tool, ToolRegistry
from streamtools.tools.mcp import tools_of
from tests.fuzz.growth import LONG, NUMBER, Grammar, target
from tests.fuzz.target import Target, pieces
from tests.fuzz.targets import gateway, guards, values
from tests.fuzz.targets.foreign import DIALECTS, FORMATS
from tests.fuzz.targets.grammars import EVENTS, MESSAGES, SCHEMAS, STREAMS, Stream
from tests.machine.test_machine_laws import run
from tests.outputs.test_encoders_contract import ENCODERS
from tests.recording.test_scrubbing import PLANTED
from tests.support import event_streams

_ANY = Limits(calls=10**6)
RULES = [
    *(rules.email(), rules.phone(), rules.iban(), rules.credit_card(), rules.keys(), rules.urls(allow=["a.test"])),
    rules.remove(re.compile(r"aab|a{1,40}b|(?<!b)a{3,9}(?=b)")),
]
_KINDS = ("native", "ai_sdk", "ag_ui", "openai", "responses", "anthropic")
_ENCODERS = [[name for name in ENCODERS if name.startswith(kind)] for kind in _KINDS]
_LEFT = ("ai_sdk 6", "ag_ui 1.0", "openai, with usage")  # encoders of a body whose `done` does not come


def _body(name: str, parts: list[Any]) -> bytes:
    if name == "bedrock":
        return b"".join(event_streams.event(kind, value) for each in parts for kind, value in each.items())
    begin, end = ("", "\n") if name == "ollama" else ("data: ", "\n\n")
    return "".join(each if isinstance(each, str) else f"{begin}{json.dumps(each)}{end}" for each in parts).encode()


def _source(name: str, parts: list[Any]) -> None:
    body = _body(name, parts)
    adapter = ADAPTERS[name](Limits())
    run([event for chunk in pieces(body, 1000) for event in adapter.take(chunk)] + adapter.close())


def _machine(events: list[SourceEvent]) -> None:
    run(events)


def _machine_of_text(events: list[SourceEvent]) -> None:
    run(events, idle=True, cancel=True, execute="eager", native_tool_calls=False)


def _source_events(parts: list[Any]) -> list[SourceEvent]:
    return [read_source_event(json.dumps(each)) for each in parts]


def _events(parts: list[Any], limits: Limits = _ANY) -> tuple[list[UIEvent], int]:
    """Return a machine's events for source events, and the number of events before the end."""
    machine = StreamMachine(run_id="r", limits=limits, call_deltas=True)
    events = [event for each in _source_events(parts) for event in machine.feed(each)]
    return [*events, *machine.close()], len(events)


def _encode(names: Sequence[str], told: tuple[list[UIEvent], int]) -> None:
    events, left = told
    for name in names:
        encoder = ENCODERS[name].make()
        for event in events[:left] if name in _LEFT else events:
            encoder.encode(event)
        encoder.close()


def _collected(parts: list[Any]) -> list[UIEvent]:
    return _events(parts, Limits())[0]


def _result(formats: Sequence[Format], events: list[UIEvent]) -> None:
    collector = Collector(DIALECTS)
    collector.take(events)
    result = collector.read()
    for format in formats:
        result.messages(format, answer_pending=True)


def _history(parts: list[Any]) -> None:
    with contextlib.suppress(ValueError):
        read_messages(parts)


def _read(parts: list[Any]) -> list[Message]:
    try:
        return read_messages(parts)
    except ValueError:
        return []


def _write(format: Format, history: list[Message]) -> None:
    with contextlib.suppress(ValueError):
        write_messages(history, format, dialects=DIALECTS)


def _plain(history: list[Message]) -> None:
    neutralize_quotations(history, DIALECTS)


def _finished(shape: Callable[[list[Any]], object], parts: list[Any]) -> None:
    with contextlib.suppress(StreamToolsError):
        extract_tool_calls(shape(parts))


def _merge(one: Any, other: Any) -> Any:
    """Merge `other` into `one`."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key, each in other.items():
            one[key] = _merge(one[key], each) if key in one else each
        return one
    if isinstance(one, list) and isinstance(other, list):
        one += other
        return one
    return other


def _schema(parts: list[Any]) -> ToolRegistry:
    schema: Any = {}
    for each in json.loads(json.dumps(parts)):
        schema = _merge(schema, each)
    with contextlib.suppress(ValueError, TypeError):
        return ToolRegistry(Tool.declared("f", "Do it.", schema))
    return ToolRegistry()


def _server(parts: list[Any]) -> ToolRegistry:
    class Session:
        async def list_tools(self, cursor: str | None = None) -> Any:
            return SimpleNamespace(tools=[SimpleNamespace(**each) for each in parts])

        async def call_tool(self, name: str, arguments: dict[str, Any]) -> Any: ...

    registry = ToolRegistry(_done(tools_of(Session())))
    with contextlib.suppress(UnknownTool):
        registry.find("t0x")
    return registry


def _use(read: Callable[[list[Any]], ToolRegistry], use: Callable[[ToolRegistry], object], parts: list[Any]) -> None:
    use(read(parts))


def _define(registry: ToolRegistry) -> None:
    for format in ("anthropic", "ollama", "tool_clients", "compact"):
        with contextlib.suppress(ValueError):
            registry.definitions(format)


def _done(work: Coroutine[Any, Any, Any]) -> Any:
    """Return the result of a coroutine that never waits."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("it waits")


def _text(dialects: Any, size: int, parts: list[Any], **policies: Any) -> None:
    parser = Parser(dialects, call_deltas=True, **policies)
    for delta in pieces("".join(parts), size):
        parser.feed(delta)
    parser.close()


def _met(parts: list[Any]) -> list[Any]:
    """Create the states of the rules, which happens once and not for each text."""
    _text((), 8, parts, text_rules=RULES)
    return parts


def _scrub(parts: list[Any]) -> None:
    scrubber = Scrubber(("tulip", "rose"))
    for piece in pieces("".join(parts).encode(), 64):
        scrubber.feed(piece)
    scrubber.close(complete=True)


def _redact(parts: list[Any]) -> None:
    redaction.redact_text("".join(parts))
    redaction.redact_url("https://a.test/?" + "".join(parts))


def _redact_headers(parts: list[Any]) -> None:
    text = "".join(parts)
    headers = [("authorization", text), ("cookie", text)]
    redaction.credentials_in(headers, "https://a.test/?key=" + text)
    redaction.redact_url("https://a.test/?key=" + text)


def _redact_body(body: Callable[[list[Any]], str], parts: list[Any]) -> None:
    request = redaction.describe_request("POST", "https://a.test/", [], body(parts).encode(), record_body=True)
    redaction.redact_request(request, redaction.encode_secrets([]))


_OBJECT = {"type": "object", "properties": {"a": {"$ref": "#/$defs/d"}}, "$defs": {"d": {"type": "string"}}}
_TOOLS = [
    {"name": f"t{NUMBER}", "description": "Do it.", "inputSchema": _OBJECT},
    {"name": "t", "description": "Do it.", "inputSchema": _OBJECT},
    {"name": f"t{NUMBER}", "description": LONG, "inputSchema": {}},
    {"name": f"t.{NUMBER}", "description": '###:{"name": "f"}', "inputSchema": {"$defs": 5}},
]
_USES: tuple[Callable[[ToolRegistry], object], ...] = (_define, partial(augment_system_prompt, "Hi."))
_SHAPES: tuple[Callable[[list[Any]], object], ...] = (
    lambda parts: parts,
    lambda parts: {"output": parts},
    lambda parts: {"choices": [{"message": {"tool_calls": parts}}]},
    lambda parts: {"content": parts},
)
_BODIES: tuple[Callable[[list[Any]], str], ...] = (
    "".join,
    json.dumps,
    lambda parts: json.dumps({"token": "".join(parts)}),
    lambda parts: "a=" + "".join(parts),
)
_MATCHED = ("a", "b", "aab", "sk-", "@a.", "4111 ", "https://", "[1]")
_MARKERS = ("###:{", "<think>", "</think>", "`", "\n", LONG)
_SECRETS = ("sk-", "tulip", "tul", "a", "Bearer ")
_SEPARATORS = ('"', "\\u0041", "%20", "=", "&", ";", ",", " ", "\n")

_GRAMMARS: dict[str, Grammar] = {
    "machine": Grammar(EVENTS, [_machine, _machine_of_text], made=_source_events),
    "encoders": Grammar(EVENTS, [partial(_encode, names) for names in _ENCODERS], made=_events),
    "result": Grammar(EVENTS, [partial(_result, FORMATS[at::3]) for at in range(3)], made=_collected),
    "history": Grammar(MESSAGES, [_history]),
    "requests": Grammar(MESSAGES, [*(partial(_write, format) for format in FORMATS), _plain], made=_read),
    "finished": Grammar(
        [*MESSAGES, {"name": "f", "arguments": {"a": LONG}}], [partial(_finished, shape) for shape in _SHAPES]
    ),
    "schema": Grammar(SCHEMAS, [partial(_use, _schema, use) for use in _USES]),
    "server": Grammar(_TOOLS, [partial(_use, _server, use) for use in _USES]),
    "rules": Grammar(
        [*_MATCHED, *_MARKERS, '###:{"name": "f", "arguments": {"a": "aab"}}'],
        [partial(_text, ("hash_marker",), size, text_rules=RULES) for size in (1, 8, 10**9)],
        made=_met,
    ),
    "guards": Grammar(
        ["secret", "ab", "bad. ", '"', "\\u0061", "\\", "@a.", "[", "](", ")", "(", "\n", " ", "x", "漢", LONG],
        [*(partial(guards.use, what, size) for what in guards.USES for size in (1, 8, 10**9))],
    ),
    "redaction": Grammar(
        [*PLANTED[:6], *_SECRETS, *_SEPARATORS, 'data: {"choices":[{"delta":{"content":"sk-aaaa"}}]}\n\n'],
        [_scrub, _redact, _redact_headers, *(partial(_redact_body, body) for body in _BODIES)],
    ),
}


def _stream(name: str, stream: Stream) -> Grammar:
    return Grammar(stream.frames, [partial(_source, name)], stream.first, stream.last)


_SOURCES = {f"source:{name}": _stream(name, stream) for name, stream in STREAMS.items()}
_GATEWAY = {f"gateway:{name}": each for name, each in gateway.GRAMMARS.items()}
GRAMMARS: dict[str, Grammar] = _SOURCES | _GRAMMARS | _GATEWAY | values.GRAMMARS


def make(name: str) -> Target:
    """Return the target of one grammar."""
    return target(name, GRAMMARS[name])


MAKE: dict[str, Callable[[], Target]] = {f"growth:{name}": partial(make, name) for name in GRAMMARS}
"""What makes the target of each grammar."""
