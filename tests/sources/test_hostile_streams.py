"""Tests of hostile streams: halves of characters, and pieces of the wrong type."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from streamtools.errors import Code
from streamtools.events import NativeToolCall, SourceEvent, SourceRaw, SourceWarning, TextDelta
from streamtools.sources.adapter import FrameAdapter
from streamtools.sources.wire_formats.ai_sdk import AISDKMessages
from streamtools.sources.wire_formats.anthropic import Anthropic
from streamtools.sources.wire_formats.gemini import Gemini
from streamtools.sources.wire_formats.latitude import Latitude
from streamtools.sources.wire_formats.openai import ChatCompletions
from streamtools.sources.wire_formats.responses import Responses
from tests.sources.adapters import Make
from tests.support.cases import together

_ADAPTERS: tuple[Make, ...] = (ChatCompletions, Responses, Anthropic, Gemini, AISDKMessages, Latitude)


def _frames(*values: Any) -> bytes:
    return b"".join(b"data: %b\n\n" % json.dumps(value).encode() for value in values)


def _read(adapter: FrameAdapter, *values: Any) -> list[SourceEvent]:
    return adapter.feed(_frames(*values)) + adapter.close()


# Half of a surrogate pair, wherever it stands.


@together("adapter", _ADAPTERS)
@together(
    "value",
    [
        {"\ud83d": 1},
        {"type": "x", "delta": {"\ud83d": 1}, "choices": [{"delta": {"\ud83d": 1}}], "data": {"\ud83d": {"\udc00": 1}}},
        {"type": "\ud83d", "delta": "\udc00x", "choices": "\udc00x", "data": "\udc00x", "response": "\udc00x"},
        {"type": "x", "choices": ["\udc00x"], "delta": ["\udc00x"], "data": {"response": "\udc00x"}},
        {"choices": [{"delta": "\udc00x", "message": "\ud83d"}], "event_type": "\ud83d", "candidates": ["\ud83d"]},
    ],
)
def test_half_a_character_in_a_key_or_value_raises_nothing(adapter: Callable[[], FrameAdapter], value: Any) -> None:
    """The adapter continues after half of a surrogate pair in any position."""
    for event in _read(adapter(), value, value):
        assert event.to_json()


def test_text_is_read_if_another_key_holds_half_a_character() -> None:
    """The key is ignored, and a text that was cut in mid-character is joined."""
    first = {"choices": [{"delta": {"content": "hi\ud83d", "\ud83d": 1}}]}
    second = {"choices": [{"delta": {"content": "\ude00", "\udc00": 1}}]}
    events = _read(ChatCompletions(), first, second)
    assert [event.text for event in events if isinstance(event, TextDelta)] == ["hi", "\U0001f600"]


# A piece of a call that has the wrong type makes that call faulty, and no other.


def _ends(make: Callable[[], FrameAdapter], *values: Any) -> list[tuple[str | None, Any, Code | None]]:
    """Return name, arguments and fault of each call of a stream that ended."""
    events = _read(make(), *values)
    return [(each.name, each.arguments, each.fault) for each in events if isinstance(each, NativeToolCall)]


def _block(index: Any, name: str, **more: Any) -> dict[str, Any]:
    block = {"type": "tool_use", "id": f"id {name}", "name": name, **more}
    return {"type": "content_block_start", "index": index, "content_block": block}


def _piece(index: Any, delta: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": delta}


def _halt(index: Any) -> dict[str, Any]:
    return {"type": "content_block_stop", "index": index}


_JSON = {"type": "input_json_delta", "partial_json": '{"to":1}'}
_BAD = ("f", None, Code.INVALID_ARGUMENTS)
_WRONG: tuple[Any, ...] = ({"to": "bob"}, 5, ["x"], [], False)
_STRAY: tuple[Any, ...] = ("x", 5, None, {"type": 5})


@together(
    "piece",
    [
        *(_piece(0, {"type": "input_json_delta", "partial_json": bad}) for bad in _WRONG),
        *(_piece(0, bad) for bad in (*_STRAY, {"partial_json": "{}"})),
        *(_piece("0", {"type": "input_json_delta", "partial_json": 5}), _piece(None, "x"), _piece("zero", _JSON)),
    ],
)
def test_a_block_with_a_piece_of_the_wrong_type_is_faulty(piece: dict[str, Any]) -> None:
    """The piece is forwarded, and its open call becomes faulty. The next call is unaffected."""
    after = (_piece(0, _JSON), _halt(0), _block(1, "g"), _piece(1, _JSON), _halt(1), {"type": "message_stop"})
    assert _ends(Anthropic, _block(0, "f"), piece, *after) == [_BAD, ("g", None, None)]
    assert SourceRaw(piece) in _read(Anthropic(), _block(0, "f"), piece, *after)


def test_a_piece_of_another_block_does_not_affect_a_call() -> None:
    """The piece has an unknown number, or a type other than that of arguments."""
    pieces = (_piece(7, "x"), _piece(0, {"type": "citations_delta"}), _piece(0, _JSON), _halt(0))
    assert _ends(Anthropic, _block(0, "f"), *pieces) == [("f", None, None)]


def _part(call: dict[str, Any]) -> dict[str, Any]:
    return {"candidates": [{"content": {"parts": [{"functionCall": call}]}}]}


@pytest.mark.parametrize("bad", [5, "x", {"a": 1}, 0, "", {}, False])
def test_gemini_pieces_that_are_not_a_list_make_the_call_faulty(bad: Any) -> None:
    """In a call that is whole, at the beginning of a streamed one, and at its end."""
    begins, more = _part({"name": "f", "willContinue": True}), [{"jsonPath": "$.to", "numberValue": 1}]
    last = _part({"partialArgs": more})
    good = _part({"name": "g", "args": {"a": 1}})
    for stream in (
        [_part({"name": "f", "partialArgs": bad})],
        [begins, _part({"partialArgs": bad})],
        [_part({"name": "f", "willContinue": True, "partialArgs": bad}), last],
    ):
        first, second = _ends(Gemini, *stream, good)
        assert (first[0], first[2], second) == ("f", Code.INVALID_ARGUMENTS, ("g", {"a": 1}, None))


def _step(kind: str, index: Any = 0, **more: Any) -> dict[str, Any]:
    return {"event_type": f"step.{kind}", "index": index, **more}


def _function(name: str, **more: Any) -> dict[str, Any]:
    return {"type": "function_call", "id": f"id {name}", "name": name, **more}


@together(
    "piece",
    [
        *(_step("delta", delta={"type": "arguments_delta", "arguments": bad}) for bad in _WRONG),
        *(_step("delta", delta=bad) for bad in _STRAY),
        _step("delta", None, delta={"type": "arguments_delta", "arguments": "{}"}),
    ],
)
def test_a_step_with_a_piece_of_the_wrong_type_is_faulty(piece: dict[str, Any]) -> None:
    """As in a block of Anthropic's."""
    begin, other = _step("start", step=_function("f")), _step("start", 1, step=_function("g", arguments={"a": 1}))
    assert _ends(Gemini, begin, piece, _step("stop"), other, _step("stop", 1)) == [_BAD, ("g", {"a": 1}, None)]


@pytest.mark.parametrize(("given", "told"), [([], []), (0, 0), (False, False), ({}, None), ("", None), (None, None)])
def test_the_input_of_a_block_and_the_arguments_of_a_step_are_unchanged(given: Any, told: Any) -> None:
    """Only an empty object or a missing value means that there are no arguments."""
    assert _ends(Anthropic, _block(0, "f", input=given), _halt(0)) == [("f", told, None)]
    start = _step("start", step=_function("f", arguments=given))
    assert _ends(Gemini, start, _step("delta", delta={"type": "x"}), _step("stop")) == [("f", told, None)]


def _calls(*entries: Any, finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {"choices": [{"delta": {"tool_calls": list(entries), **more}, "finish_reason": finish}]}


def _entry(index: int, name: str | None = None, arguments: Any = None) -> dict[str, Any]:
    entry: dict[str, Any] = {"index": index, "function": {"arguments": arguments}}
    if name is not None:
        entry |= {"id": f"id {name}", "function": {"name": name, "arguments": arguments}}
    return entry


_DEEP: Any = {"a": 1}
for _ in range(200):
    _DEEP = {"a": _DEEP}


@together("finish", ["tool_calls", "length"])
@together(
    ("bad", "fault"),
    [
        ({"index": 0, "function": ['{"to":1}']}, Code.INVALID_ARGUMENTS),
        ({"index": 0, "id": "id f", "function": 5}, Code.INVALID_ARGUMENTS),
        ({"index": None, "function": "x"}, Code.INVALID_ARGUMENTS),
        ('{"to":1}', Code.INVALID_ARGUMENTS),
        (5, Code.INVALID_ARGUMENTS),
        (_entry(0, None, _DEEP), Code.TOO_DEEP),
    ],
)
def test_a_chat_call_with_a_piece_of_the_wrong_type_is_faulty(bad: Any, fault: Code, finish: str) -> None:
    """The open call of its slot, or else any that has not closed; a closed one survives, however the turn ends."""
    stream = (_calls(_entry(1, "g", '{"a":1}')), _calls(_entry(0, "f")), _calls(bad), _calls(finish=finish))
    ends = _ends(ChatCompletions, *stream)
    assert ends == [("f", None, fault), *([("g", None, None)] if finish == "tool_calls" else [])]
    assert any(isinstance(event, SourceRaw | SourceWarning) for event in _read(ChatCompletions(), *stream))


def test_a_chat_call_with_an_unreadable_start_is_faulty() -> None:
    """It has an id, so it is one."""
    assert _ends(
        ChatCompletions,
        _calls({"index": 0, "id": "x", "function": ["f"]}),
        _calls(_entry(0, None, "{}"), finish="stop"),
    ) == [(None, None, Code.INVALID_ARGUMENTS)]


def test_a_function_call_with_a_piece_of_the_wrong_type_is_faulty() -> None:
    """A `function_call` that is not an object follows a valid one."""
    frames = ({"choices": [{"delta": {"function_call": each}}]} for each in ({"name": "f"}, ["x"]))
    assert _ends(ChatCompletions, *frames, _calls(finish="function_call")) == [_BAD]


# One call in two forms.


def test_function_call_repeats_tool_calls() -> None:
    """Servers that speak both forms say each call twice."""
    first = _calls(_entry(0, "f", '{"to"'), function_call={"name": "f", "arguments": '{"to"'})
    rest = _calls(_entry(0, None, ":1}"), function_call={"arguments": ":1}"}, finish="tool_calls")
    assert _ends(ChatCompletions, first, rest) == [("f", None, None)]


def test_function_call_with_an_empty_list_is_a_call() -> None:
    """The new form says nothing, so the old one counts."""
    first = _calls({"index": 0}, function_call={"name": "f", "arguments": "{}"}, finish="function_call")
    assert _ends(ChatCompletions, first) == [("f", None, None)]


@together("citations", [5, "x", {"a": 1}, [1], [{"type": "char_location"}]])
def test_invalid_citations_raise_nothing(citations: Any) -> None:
    """A valid citation follows them."""
    events = _read(
        Anthropic(),
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "citations": citations}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "citations_delta", "citation": {"x": 1}}},
        {"type": "content_block_stop", "index": 0},
    )
    (cited,) = [each.data["citations"] for each in events if isinstance(each, SourceRaw) and each.about == "text"]
    kept = [each for each in citations if isinstance(each, dict)] if isinstance(citations, list) else []
    assert [*kept, {"x": 1}] == cited
