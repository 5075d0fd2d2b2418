"""S5: the approver, the log and the tool see the same values of a call, because it is read once.

A duplicate key means different things to different readers, so it is refused at any depth. An approval refers to a
digest of the values, not of the text.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamtools import ToolCall, parse
from streamtools.parsing.dialects import DIALECTS
from tests.support.approvals import Bank, run_chat
from tests.support.cases import cases

names = st.text(max_size=4)
values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | names,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)


@given(values, values, names, st.lists(st.booleans(), max_size=20))
def test_a_duplicate_key_is_refused(one: Any, other: Any, key: str, places: list[bool]) -> None:
    """Holds at any depth, for equal and different values, and for each way to escape the key."""
    escaped = "".join(f"\\u{ord(char):04x}" if ord(char) < 0x10000 else char for char in key)
    text = f'{{{json.dumps(key)}:{json.dumps(one)},"{escaped}":{json.dumps(other)}}}'
    for in_array in places:
        text = f"[{text}]" if in_array else f'{{"k":{text}}}'
    for written in (f'{{"name":"f","arguments":{{"a":{text}}}}}', f'{{"name":"f","arguments":{json.dumps(text)}}}'):
        result = parse(f"###:{written}")
        assert [] == result.calls
        expected = {"duplicate_key"} if '"a":' in written else {"duplicate_key", "invalid_arguments"}
        assert {each.code for each in result.errors} <= expected


def test_a_duplicate_argument_is_refused() -> None:
    """Holds in each dialect, including those without JSON."""
    tool = {"name": "f", "parameters": {"properties": {"to": {}}}}
    with cases() as case:
        for dialect in DIALECTS.values():
            with case(dialect.id):
                text = dialect.write_call("f", {"to": "Ann", "tq": "Eve"}).replace("tq", "to")
                result = parse(text, dialects=[dialect], tools=[tool])

                assert [] == result.calls
                assert [] != result.errors or result.content == text


@given(st.dictionaries(names, values, max_size=4))
def test_a_digest_depends_only_on_the_value(arguments: dict[str, Any]) -> None:
    """Order, white space, escapes and the dialect do not matter. Another value or name has another digest."""
    backwards = dict(reversed(arguments.items()))
    spellings = [
        json.dumps(arguments),
        json.dumps(backwards, indent=2),
        json.dumps(backwards, ensure_ascii=False, separators=(",", ":")),
    ]
    calls = [parse(f'###:{{"name":"f","arguments":{each}}}').calls[0] for each in spellings]
    calls.append(ToolCall(id="c", name="f", arguments=backwards, dialect="native"))

    assert 1 == len({call.digest for call in calls})
    assert calls[0].digest != ToolCall(id="c", name="g", arguments=arguments, dialect="native").digest
    for other in ({**arguments, "\0": 1}, {"\0": arguments}, {key: [each] for key, each in arguments.items()}):
        made = ToolCall(id="c", name="f", arguments=other, dialect="native")
        assert other == arguments or made.digest != calls[0].digest


async def test_the_shown_call_runs() -> None:
    """The question, the event and the tool have the same values. Neutralized values are restored."""
    bank = Bank()
    shown: list[Any] = []

    async def approve(event: Any, events: Any) -> None:
        for question in await events.questions():
            shown.append(question.call.arguments)
            events.approve(question.call.id, digest=question.digest)

    text = '###:{"name":"pay","arguments":{"amount":5,"to":"\\u0041nn\\u202e~\u2060~~"}}'
    await run_chat(text, "Done.", tools=bank.tools, ask="now", then=approve)

    assert [{"to": "Ann\u202e~~~", "amount": 5}] == shown
    assert [("Ann\u202e~~~", 5)] == bank.paid


@pytest.mark.parametrize("other", [True, 1.5, "1", [1], {"a": 1}, None])
def test_values_of_other_types_have_other_digests(other: Any) -> None:
    """In Python, 1 equals True, but an approver sees the difference."""
    one, two = (ToolCall(id="c", name="f", arguments={"a": each}, dialect="native") for each in (1, other))

    assert one.digest != two.digest
