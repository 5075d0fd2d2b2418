"""Texts of a model, and the messages that a client gets for them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from tests.support.gateway import Collected, request, stream, whole

FORCED: Any = {"type": "function", "function": {"name": "get_weather"}}
FORCED_BY: dict[str, Any] = {
    "openai": FORCED,
    "responses": {"type": "function", "name": "get_weather"},
    "anthropic": {"type": "tool", "name": "get_weather"},
}
FOR_ANTHROPIC = {"parallel_tool_calls": ("tool_choice", {"type": "auto", "disable_parallel_tool_use": True}),
                 "tool_choice": ("tool_choice", {"type": "none"})}  # fmt: skip
ARGUMENTS = '{"city": "Bern"}'
CALLED = {"id": "call_text_9", "type": "function", "function": {"name": "get_weather", "arguments": ARGUMENTS}}
USED = {"type": "tool_use", "id": "call_text_9", "name": "get_weather", "input": {"city": "Bern"}}
FOLLOWING: dict[str, list[Any]] = {
    "openai": [
        {"role": "assistant", "content": None, "tool_calls": [CALLED]},
        {"role": "tool", "tool_call_id": "call_text_9", "content": "Sunny."},
    ],
    "responses": [
        {"type": "function_call", "call_id": "call_text_9", "name": "get_weather", "arguments": ARGUMENTS},
        {"type": "function_call_output", "call_id": "call_text_9", "output": "Sunny."},
    ],
    "anthropic": [
        {"role": "assistant", "content": [USED]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call_text_9", "content": "Sunny."}]},
    ],
}

CALL = '~~~tool_call\n{"name": "get_weather", "arguments": {"city": "Zürich"}}\n~~~'
WEATHER = ("call_text_1", "get_weather", {"city": "Zürich"})
DEEP = {"city": {"of": ["Zürich", {"🏔": None}], "n": 1.5e3, "x": True}, "é": ""}


class Scene(NamedTuple):
    """A text of a model, and the message that its client gets."""

    text: str
    seen: Collected
    finish: str = "stop"
    reasoning: str = ""
    request: Mapping[str, Any] = MappingProxyType({})
    options: Mapping[str, Any] = MappingProxyType({})
    follows: bool = False
    """True if the request contains a call and its result."""

    def asked(self, client: str, *, streamed: bool) -> Any:
        """Return the request in a client's format."""
        more = {key: value for key, value in self.request.items() if key != "tool_choice" or value != FORCED}
        if client == "anthropic":
            more = dict(FOR_ANTHROPIC[key] for key in more)
        if len(more) < len(self.request):
            more["tool_choice"] = FORCED_BY[client]
        body = request(client, streamed=streamed, **more)
        if self.follows:
            body["input" if client == "responses" else "messages"] += FOLLOWING[client]
        return body

    def answered(self, *, streamed: bool) -> bytes:
        """Return the response of the upstream."""
        pieces = [self.text[at : at + 3] for at in range(0, len(self.text), 3)]
        if streamed:
            return stream(pieces, self.finish, reasoning=self.reasoning)
        return whole(self.text, self.finish, reasoning=self.reasoning)


UNREADABLE = Collected("So.", "", [], None, "the model wrote a call that cannot be read")


def called(*calls: tuple[str, str, Any], text: str = "", reasoning: str = "") -> Collected:
    """Return a message with these calls, or with one of `WEATHER`."""
    return Collected(text, reasoning, [*calls] or [WEATHER], "tool_calls")


def said(text: str) -> Collected:
    return Collected(text, "", [], "stop")


SCENES = {
    "one call": Scene(f"I look.\n\n{CALL}\n", called(text="I look.")),
    "parallel calls": Scene(
        f'{CALL}\n~~~tool_call\n{{"name": "get_time", "arguments": {{"city": "Bern"}}}}\n~~~\n',
        called(WEATHER, ("call_text_2", "get_time", {"city": "Bern"})),
    ),
    "no call": Scene("It is `~~~`\n\ndata: {.", said("It is `~~~`\n\ndata: {.")),
    "nested and Unicode arguments": Scene(
        f"~~~tool_call\n{json.dumps({'name': 'get_weather', 'arguments': DEEP})}\n~~~",
        called(("call_text_1", "get_weather", DEEP)),
    ),
    "no arguments": Scene('~~~tool_call\n{"name": "get_time"}\n~~~', called(("call_text_1", "get_time", {}))),
    "reasoning, then a call": Scene(f"<think>Where?</think>\n\n{CALL}", called(reasoning="Where?")),
    "reasoning of the server's": Scene(f"So.\n{CALL}", called(text="So.", reasoning="Hm."), reasoning="Hm."),
    "an unknown tool": Scene(
        '~~~tool_call\n{"name": "fly", "arguments": {"to": 1}}\n~~~', called(("call_text_1", "fly", {"to": 1}))
    ),
    "a cut answer": Scene("It is sun", Collected("It is sun", "", [], "length"), finish="length"),
    "a malformed call as text": Scene(
        "So.\n~~~tool_call\n{oops\n~~~\n", said("So.\n~~~tool_call\n{oops\n~~~\n"), options={"on_malformed": "text"}
    ),
    "one call at most": Scene(f"{CALL}\n{CALL}", called(), request={"parallel_tool_calls": False}),
    "one call at most, and another that cannot be read": Scene(
        f"{CALL}\n~~~tool_call\n{{oops}}\n~~~", called(), request={"parallel_tool_calls": False}
    ),
    "no call wanted": Scene(f"So.\n{CALL}", said("So.\n"), request={"tool_choice": "none"}),
    "a call that is forced": Scene(CALL, called(), request=MappingProxyType({"tool_choice": FORCED})),
    "results that are followed up": Scene("It is sunny.", said("It is sunny."), follows=True),
    "a cut call": Scene('So.\n~~~tool_call\n{"name": "get_weather", "arguments": {"city": "Zü', UNREADABLE),
    "a malformed call": Scene(
        'So.\n~~~tool_call\n{"name": "get_weather", "arguments": {"city": oops}}\n~~~\n', UNREADABLE
    ),
}


def normal(seen: Collected, *, streamed: bool) -> Collected:
    """Return a message without parts that differ between runs. A failed one has text only if it was streamed."""
    calls = [(f"call_text_{at}", name, arguments) for at, (_, name, arguments) in enumerate(seen.calls, 1)]
    if seen.error is None:
        return seen._replace(calls=calls)
    return seen._replace(error=seen.error.partition(":")[0], calls=[], text=seen.text if streamed else "So.")
