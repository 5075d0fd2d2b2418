"""Arguments of calls as growing values: in each dialect, at each cut, and natively."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from streamtools import ParserOptions, ToolStream, coalesce, parse, sources
from streamtools import events as kinds
from streamtools.json_values import Draft
from streamtools.machine.event_order import validate
from streamtools.machine.state_machine import StreamMachine
from streamtools.parsing.dialects import DIALECTS
from tests.typed.test_typed_values import sizes, values

arguments = st.dictionaries(st.sampled_from(["a", "b", "c"]), values, max_size=3)
json_dialects = sorted(name for name, each in DIALECTS.items() if each.teachable)


def grown(events: Sequence[kinds.UIEvent]) -> dict[str, Any]:
    """Return the value that the partials of each call make."""
    drafts: dict[str, Draft] = {}
    for event in events:
        if isinstance(event, kinds.Partial):
            assert event.call_id is not None
            drafts.setdefault(event.call_id, Draft()).add(event.path, event.value, event.complete)
    return {call_id: draft.value for call_id, draft in drafts.items()}


@given(arguments, sizes, st.sampled_from(json_dialects))
@example({"a": 'x"\\\n', "b": [1.5, {}, None]}, 1, "hash_marker")
def test_partials_of_calls_in_text(said: dict[str, Any], size: int, dialect: str) -> None:
    """They make the arguments of the call, and are the same for each cut."""
    text = "So: \n" + DIALECTS[dialect].write_call("look", said) + "\n"
    told = [
        parse(pieces, dialects=[dialect], call_deltas=True, call_partials=True).events
        for pieces in ([text], [text[at : at + size] for at in range(0, len(text), size)])
    ]
    assert coalesce(told[0]) == coalesce(told[1])
    for events in told:
        assert [each.call.arguments for each in events if isinstance(each, kinds.Call)] == list(grown(events).values())


@given(st.lists(arguments, min_size=1, max_size=3), sizes)
def test_partials_of_native_calls(said: list[dict[str, Any]], size: int) -> None:
    """Ids separate concurrent calls. No partial precedes the name of its call."""
    machine = StreamMachine(call_partials=True)
    written = {str(number): json.dumps(each) for number, each in enumerate(said)}
    sent: list[kinds.SourceEvent] = [kinds.ToolCallStart(key, f"id{key}") for key in written]
    for at in range(0, max(map(len, written.values())), size):
        sent += [kinds.ToolCallDelta(key, text[at : at + size]) for key, text in written.items() if text[at:]]
        sent += [kinds.ToolCallStart(key, None, "look") for key in written]  # late, and again
    sent += [kinds.NativeToolCall("look", None, key, f"id{key}") for key in written]
    events = [
        each for event in [*sent, kinds.ProviderCompleted(finish_reason="tool_calls")] for each in machine.feed(event)
    ]
    events += machine.close()

    validate(events)
    assert grown(events) == {f"id{key}": each for key, each in enumerate(said)}
    assert not any(isinstance(event, kinds.CallDelta) for event in events)
    begun = [event.call_id for event in events if isinstance(event, kinds.CallStart)]
    first = {event.call_id: at for at, event in reversed(list(enumerate(events))) if isinstance(event, kinds.Partial)}
    starts = {event.call_id: at for at, event in enumerate(events) if isinstance(event, kinds.CallStart)}
    assert all(starts[call_id] < first[call_id] for call_id in begun)


def test_a_malformed_call_ends_with_an_error() -> None:
    """The partials before the fault have been sent."""
    events = parse('###:{"name": "a", "arguments": {"x": "one", oops', call_partials=True).events
    (error,) = (event for event in events if isinstance(event, kinds.Error))
    assert grown(events) == {error.call_id: {"x": "one"}}


async def test_arguments_are_not_part_of_the_output() -> None:

    async def deltas() -> Any:
        for piece in ('###:{"name": "a", "arguments": {"x": [7]}}\n', '{"y": [1, 2]}'):
            yield piece

    stream = ToolStream(sources.text(deltas()), output=dict[str, list[int]], parser=ParserOptions(call_partials=True))
    async with stream as events:
        assert [each async for each in events.items(int)] == [1, 2]
    assert stream.output == {"y": [1, 2]}
    assert stream.result.output == {"y": [1, 2]}
