"""Misspelled keys in messages of all formats are refused, and keys of providers are not."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest

from streamtools.history import Assistant, Message, Results, System, User, read_messages, write_messages
from streamtools.history.message_keys import _KINDS, _KNOWN, _similar, refuse_misspelled_keys
from streamtools.history.parts import CallResult, TextPart
from tests.support.cases import cases

MISSPELLED: list[dict[str, Any]] = [
    {"rol": "user", "content": "Hi"},
    {"role": "user", "content": [{"type": "text", "txt": "Hi"}]},
    {"role": "user", "content": [{"typ": "text", "text": "Hi"}]},
    {"role": "user", "parts": [{"txt": "x"}]},
    {"Role": "user", "content": "x"},
    {"role": "user", "body": "Hi"},
    {"role": "user", "text": "Hi"},
    {"role": "user", "message": "Hi"},
    {"role": "assistant", "toolCalls": [{"id": "1"}]},
    {"role": "assistant", "content": "x", "toolcalls": []},
    {"role": "tool", "toolCallId": "1", "content": "x"},
    {"role": "user", "content": [{"type": "text", "content": "Hi"}]},
    {"role": "user", "content": [{"type": "image_url", "image_url": {"ulr": "x"}}]},
    {"role": "user", "content": [{"txt": "hi"}]},
    {"role": "assistant", "content": [{"tooluse": {"toolUseId": "1", "name": "f", "input": {}}}]},
    {"role": "assistant", "content": [{"toolUse": {"toolUseID": "1", "name": "f", "input": {}}}]},
    {"id": "1", "role": "user", "parts": [{"type": "text", "txt": "x"}]},
    {"id": "1", "role": "user", "parts": [{"type": "file", "ulr": "x", "mediaType": "image/png"}]},
    {"id": "1", "role": "user", "contnt": "x"},
    {"id": "1", "role": "assistant", "content": "", "toolcalls": []},
    {"id": "1", "role": "tool", "tool_callId": "1", "content": "x"},
    {"id": "1", "role": "tool", "toolCalId": "1", "content": "x"},
    {"type": "function_call", "call_idd": "1", "name": "f", "arguments": "{}"},
    {"type": "function_call", "call_id": "1", "name": "f", "argument": "{}"},
    {"type": "function_call_output", "call_id": "1", "outptu": "x"},
    {"type": "user_input", "contnt": "x"},
    {"typ": "function_call", "call_id": "1"},
    {"role": "user", "content": "x", "image": ["abc"]},
    {"role": "assistant", "content": "", "thinkng": "x"},
    {"role": "assistant", "content": "x", "reasoning_contnet": "y"},
    {"role": "assistant", "tool_plam": "x", "tool_calls": []},
    {"role": "assistant", "content": "x", "refusl": "y"},
]

WRITTEN: list[dict[str, Any]] = [
    {"role": "assistant", "content": "x", "reasoning_content": "y", "refusal": None, "function_call": None},
    {"role": "assistant", "content": "x", "tool_calls": None},
    {"role": "user", "content": [{"type": "video_url", "video_url": {"url": "x"}}]},
    {"role": "user", "content": "x", "name": "n", "metadata": {}, "user_id": 3},
    {"role": "assistant", "content": None},
    {"role": "user", "content": ""},
    {"role": "user"},
    {"role": "tool", "tool_call_id": "1", "content": [{"city": "x", "txt": "y"}]},
    {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "1", "name": "f", "input": {"contnt": 1}, "caller": {}}],
    },
    {
        "role": "assistant",
        "content": [{"type": "text", "text": "x", "citations": [{"type": "char_location", "cited_txt": "x"}]}],
    },
    {"id": "1", "role": "activity", "activityType": "x", "content": {"txt": 1}},
]

VENDOR_KEYS = [
    *("reasoning", "reasoning_details", "reasoning_text", "reasoning_opaque", "reasoning_items", "thinking_blocks"),
    *("cache_control", "annotations", "audio", "provider_specific_fields", "provider_options", "providerOptions"),
    *("providerMetadata", "additional_kwargs", "response_metadata", "usage_metadata", "invalid_tool_calls"),
    *("tool_call_chunks", "finish_reason", "stop_reason", "logprobs", "token_ids", "weight", "timestamp", "created_at"),
    *("context", "citations", "video_url", "index", "metadata", "extra_content", "user_id", "x_vendor"),
]


def test_a_misspelled_key_is_refused() -> None:
    """The error names the message and the key. A similar key, or a missing content, is the reason."""
    with cases() as case:
        for message in MISSPELLED:
            with case(json.dumps(message)):
                with pytest.raises(ValueError, match=r"^message 1: .*'\w+' is unknown|has no role") as refused:
                    read_messages([{"role": "user", "content": "Hi"}, message])
                assert "did you mean" in str(refused.value) or "' is unknown" in str(refused.value)


def test_other_keys_are_not_refused() -> None:
    with cases() as case:
        for message in WRITTEN:
            with case(json.dumps(message)):
                read_messages([message])


def test_keys_of_providers_are_not_refused_at_any_place() -> None:
    """In a message, in a part of its content and in a call."""
    part: dict[str, Any] = {"type": "text", "text": "Hi"}
    values: list[Any] = ["x", [], {"contnt": "x"}, None]
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    with cases() as case:
        for key in VENDOR_KEYS:
            for value in values:
                with case(f"{key}: {value!r}"):
                    read_messages([{"role": "assistant", "content": [part], "tool_calls": [call], key: value}])
                    read_messages([{"role": "assistant", "content": [part | {key: value}], "tool_calls": [call]}])
                    read_messages([{"role": "assistant", "content": [part], "tool_calls": [call | {key: value}]}])


def test_a_text_may_have_any_other_key() -> None:
    """It needs no other key, so a key that is similar to that of another part is not misspelled."""
    for key in ("sources", "images", "files", "tool_results", "names"):
        for part in ({"type": "text", "text": "Hi"}, {"type": "input_text", "text": "Hi"}):
            read_messages([{"role": "user", "content": [part | {key: []}]}])
            with pytest.raises(ValueError, match=f"{key!r} is unknown"):
                read_messages([{"role": "user", "content": [{"type": part["type"], key: []}]}])


def changed(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield copies of a message in which one key of an object that the reader reads is misspelled."""
    for place, key in list(places(value)):
        for wrong in {key[:-1], key[:2] + key[3:], key + key[-1], key[0] + key[2] + key[1] + key[3:]} - {key}:
            copied = copy.deepcopy(value)
            target = copied
            for step in place:
                target = target[step]
            if len(wrong) > 3 and wrong not in target:
                target[wrong] = target.pop(key)
                yield f"{key} -> {wrong}", copied


def places(value: Any, path: tuple[Any, ...] = (), kind: str = "message") -> Iterator[tuple[tuple[Any, ...], str]]:
    """Yield the path and the key of each known key with at least four letters."""
    for at, item in enumerate(value) if isinstance(value, list) else [(None, value)]:
        if isinstance(item, dict):
            here = path if at is None else (*path, at)
            for key, inner in item.items():
                if key in _KNOWN[kind] and len(key) > 3:
                    yield here, key
                    if key in _KINDS:
                        yield from places(inner, (*here, key), _KINDS[key])


@pytest.mark.parametrize("format", ["openai", "anthropic", "gemini", "ollama", "bedrock", "cohere"])
def test_each_key_of_each_format_may_not_be_misspelled(format: str) -> None:
    """The history has a text, an image, a call and its result. No misspelling loses one of them silently."""
    function = {"name": "look", "arguments": '{"city": "Oslo"}'}
    call = read_messages([{"role": "assistant", "tool_calls": [{"id": "c1", "function": function}]}])[0]
    assert isinstance(call, Assistant)
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    history: list[Message] = [
        System("Be kind."),
        User([{"type": "text", "text": "Hi"}, image]),
        Assistant(parts=(TextPart("I look."), *call.parts)),
        Results((CallResult("native", "look", "18 °C", "c1"),)),
    ]
    messages = write_messages(history, format)
    assert read_messages(messages)
    with cases() as case:
        for index, message in enumerate(messages):
            for name, wrong in changed(message):
                with case(f"{index}: {name}"), pytest.raises(ValueError, match=f"^message {index}: "):
                    read_messages([*messages[:index], wrong, *messages[index + 1 :]])


def test_a_long_key_is_not_compared() -> None:
    """So it does not stay in the cache."""
    cached = _similar.cache_info().currsize
    refuse_misspelled_keys({"role": "user", "content": "x", "content" * 9: "x"})
    assert _similar.cache_info().currsize == cached
    for wrong in ("contnt", "contnet", "contet", "contents"):
        assert _similar(wrong, "message") == "content"


def test_deep_nesting_needs_no_recursion() -> None:
    """The content of an unknown part may nest as deeply as a body may."""
    deep: Any = {"type": "x"}
    for _ in range(20_000):
        deep = {"type": "x", "content": [deep]}
    refuse_misspelled_keys({"role": "user", "content": [deep]})


_CALLS = {"arguments": ("function", "function_call"), "input": ("tool_use", "toolUse"), "args": ("functionCall",)}
_RESULTS = {
    "content": ("tool_result", "toolResult"),
    "output": ("function_call_output",),
    "response": ("functionResponse",),
}


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        (name, right, wrong)
        for rights, wrongs in ((_CALLS, (*_CALLS, "parameters")), (_RESULTS, (*_RESULTS, "result")))
        for right, names in rights.items()
        for name in names
        for wrong in wrongs
        if wrong != right
    ],
)
def test_the_key_of_another_format_is_refused(name: str, right: str, wrong: str) -> None:
    """Otherwise the call would have no arguments, or the result no content."""

    def message(key: str) -> dict[str, Any]:
        value: dict[str, Any] = {"name": "f", key: {"a": 1}}
        if name == "function":
            return {"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": value}]}
        if name.startswith("function_"):
            return {"type": name, "call_id": "c", **value}
        if name.startswith("tool_"):
            return {"role": "assistant", "content": [{"type": name, "id": "c", "tool_use_id": "c", **value}]}
        return {
            "role": "model" if name.endswith("Call") else "user",
            "parts": [{name: value}],
            "content": [{name: value}],
        }

    refuse_misspelled_keys(message(right))
    with pytest.raises(ValueError, match=f"the key '{wrong}' of '{name}' is unknown; did you mean '{right}'?"):
        refuse_misspelled_keys(message(wrong))
