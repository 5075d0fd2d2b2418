"""JSON from other programs: histories, finished responses, and frames of websocket clients.

Each reader raises only its documented errors, and its result can be used.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, get_args

from streamtools import extract_tool_calls
from streamtools.calls import ToolCall
from streamtools.errors import UnreadableSource
from streamtools.history import Assistant, Format, Message, ProviderItem, Results, User, read_messages, write_messages
from streamtools.outputs import validate
from streamtools.parsing.dialects import hash_marker, tilde_fence
from streamtools.serving.websockets import Frame, FrameError, ResumeFrame, read_frame
from streamtools.sources.finished import finished
from tests.fuzz import loose
from tests.fuzz.target import Input, Target, encode, seeds
from tests.machine.test_machine_laws import run
from tests.stream.test_extracting import SHAPES
from tests.support.exact_histories import EXACT
from tests.support.history_rules import breaches
from tests.support.provider_streams import PROVIDERS

DIALECTS = (hash_marker(), tilde_fence())
FORMATS: tuple[Format, ...] = get_args(Format)
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_LONGEST = 400  # characters of a client's frame
_WORDS = ('{"', '":', '"', ",", "null", "true", "-1", "1e999", "{}", "[]", '""', '"\\ud83d"', "[[", "}]", '"x"', "NaN")


def _check_history(given: Input) -> Iterator[object]:
    """Messages are read or refused. Every provider accepts the read messages, or the writer gives a reason."""
    value = loose.read(given.text)
    messages = value if isinstance(value, list) else [value]
    try:
        history = [User("?"), *read_messages(messages), User("And?")]
    except ValueError as error:
        yield "refused", str(error)[12:40]
        return
    yield from ((type(each), len(str(each)) // 100) for each in history)
    ours = _is_ours(history)
    for format in FORMATS:
        try:
            written = write_messages(history, format, dialects=DIALECTS)
        except ValueError as error:
            yield format, str(error)[:20]
            continue
        if not ours:
            continue
        assert [] == breaches(written, format)
        again = write_messages(read_messages(written), format, dialects=DIALECTS)
        assert [] == breaches(again, format)


def _is_ours(history: Sequence[Message]) -> bool:
    """Return whether streamtools writes all of it. Some parts are kept as they arrived."""
    parts = [part for each in history if isinstance(each, Assistant) for part in each.parts]
    if any(
        isinstance(part, ProviderItem) or (part.own or part.raw if isinstance(part, ToolCall) else part.extra)
        for part in parts
    ):
        return False
    if any(result.extra or result.parts for each in history if isinstance(each, Results) for result in each.results):
        return False
    texts = all(isinstance(each.content, str) for each in history if isinstance(each, User))
    names = [result.name for each in history if isinstance(each, Results) for result in each.results]
    return texts and all(_NAME.fullmatch(name) for name in names)


def _make_history() -> Target:
    call = {"id": "w", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Oslo"}'}}
    block = {"type": "tool_use", "id": "w", "name": "weather", "input": {"city": "Oslo"}}
    turn = {"role": "assistant", "content": "Hm.", "tool_calls": [call]}
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    histories: list[Any] = [
        [{"role": "user", "content": "?"}, turn, {"role": "tool", "tool_call_id": "w", "content": "grey"}],
        [{"role": "system", "content": "Be brief."}, {"role": "assistant", "content": '###:{"name":"f"}'}],
        [
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm.", "signature": "s"}, block]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "w", "content": "grey"}]},
        ],
        [
            {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "x"},
            {"type": "function_call", "call_id": "w", "name": "weather", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "w", "output": "grey"},
        ],
        [{"role": "user", "content": [{"type": "text", "text": "?"}, image]}],
        [
            {"role": "assistant", "content": "", "tool_calls": [call, call]},
            {"role": "user", "content": "###result f: {}"},
        ],
        [turn, turn, {"role": "assistant", "content": None, "refusal": "No."}, {"role": "developer", "content": ["a"]}],
        *(messages for _, messages in EXACT.values()),
    ]
    words = [
        *('"role":"user"', '"role":"assistant"', '"role":"tool"', '"tool_calls":[', '"content":'),
        '"tool_call_id":"w"',
    ]
    words += [json.dumps(each) for each in (call, block, image, turn)] + ['"type":"text"', '"thinking":', '"refusal":']
    return _make("history", _check_history, histories, words)


def _check_finished(given: Input) -> Iterator[object]:
    """A finished response is read or refused. Its calls are those of a run that ends once."""
    value = loose.read(given.text)
    try:
        calls, errors = extract_tool_calls(value)
        events = finished(value)
    except UnreadableSource:
        yield "refused"
        return
    told = run(events, idle=True)
    validate(told)
    assert len({call.id for call in calls}) == len(calls)
    assert all(call.name for call in calls)
    yield from ((type(event), getattr(event, "finish_reason", "")) for event in events)
    yield min(len(calls), 3), *(error.code for error in errors)


def _make_finished() -> Target:
    bodies = [provider.finished for provider in PROVIDERS if provider.finished]
    shapes = [each for each in SHAPES.values() if _is_json(each)]
    words = ['"tool_calls":[', '"function":{"name":"f","arguments":"{}"}', '"choices":[', '"message":{', '"content":[']
    words += [
        *('"output":[', '"candidates":[', '"type":"tool_use"', '"finish_reason":', '"functionCall":{'),
        '"arguments":',
    ]
    return _make("finished", _check_finished, [*bodies, *shapes], words)


def _check_client(given: Input) -> Iterator[object]:
    """A frame is valid, or the client gets a reason."""
    said = _read_frame(given.text if given.choose(0, (True, True, False)) else json.dumps(loose.read(given.text)))
    match said:
        case FrameError():
            assert len(json.dumps(said.answer)) < 2 * _LONGEST
            yield said.answer["code"], str(said)[:30]
        case ResumeFrame():
            assert said.after >= 0
        case dict():
            assert not said.keys() & {"cancel", "resume", "decision", "conversation"}
    yield type(said)


def _read_frame(text: str) -> Frame | FrameError:
    try:
        return read_frame(text, _LONGEST, conversation_key="conversation")[0]
    except FrameError as bad:
        return bad


def _make_client() -> Target:
    denied = {"call_id": "c", "decision": "deny", "reason": "x"}
    frames: list[Any] = [
        *({"cancel": True}, {"resume": 3, "run_id": "r"}, {"call_id": "c", "decision": "answer", "result": {"a": [1]}}),
        *({"call_id": "c", "decision": "answer", "error": "no"}, denied, {"hello": 1}, [], "x"),
        *({"call_id": "c", "decision": "approve", "digest": "d"}, {"cancel": 1, "resume": -1}, {"conversation": "c"}),
    ]
    words = [
        *('"cancel":true', '"resume":', '"decision":"answer"', '"decision":"deny"', '"call_id":"c"'),
        *('"decision":"approve"', '"error":'),
    ]
    return _make("client", _check_client, frames, words)


def _make(name: str, check: Any, values: list[Any], words: list[str]) -> Target:
    bodies = [json.dumps(each) for each in values]
    return Target(name, check, lambda: list(seeds(bodies, {})), [encode(word) for word in (*words, *_WORDS)])


def _is_json(value: object) -> bool:
    try:
        json.dumps(value)
    except TypeError:
        return False
    return True


MAKE = {"history": _make_history, "finished": _make_finished, "client": _make_client}
"""What makes the target of each reader."""
