"""Decisions: the answer of a model that was asked whether a tool is needed.

No answer raises an error. A decision has only names and JSON. Written again in the requested form, it gives the same
decision. Reasoning before it is ignored. Hostile brackets stay within the bound on work.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from streamtools.conversation.emulation import ModelDecision, read_decision
from tests.chat.test_decision import READ, UNREADABLE
from tests.fuzz.target import Input, Target, encode, seeds

_PUMPED = 10_000  # characters of a long answer


def check(given: Input) -> Iterator[object]:
    """Read one answer."""
    answer = given.text
    read = read_decision(answer)
    assert read.readable or not read.calls, "an answer that cannot be read asks for tools"
    assert all(call.name and call.name == call.name.strip() for call in read.calls), read.calls
    assert read._replace(differs=False) == _again(read), "told in the form that was asked for, it is another"
    thought = answer.replace("<", "").replace("[", "")
    assert read_decision('{"tools":[]}') == read_decision(f'<think>{thought}</think>{{"tools":[]}}')
    if given.wants(0) and answer:
        read_decision(answer * (_PUMPED // len(answer) + 1))  # in bounded time
    yield read.readable, min(len(read.calls), 4)
    yield from (type(call.arguments) for call in read.calls)
    yield "fence" if "```" in answer else "", "JSON_BEGIN" in answer, "think" in answer, read.readable, bool(read.calls)


def _again(read: ModelDecision) -> ModelDecision:
    """Return the decision of an answer that is written again in the requested form, with harmless strings."""
    if not read.readable:
        return read
    calls = [
        {"tool": call.name} | ({} if call.arguments is None else {"arguments": call.arguments}) for call in read.calls
    ]
    told = json.dumps({"tools": calls})
    return read_decision(re.sub(r"<|\[(?=THINK)|J(?=SON_BEGIN)", lambda found: f"\\u{ord(found[0]):04x}", told))


def make() -> Target:
    """Return the target."""
    bodies = [answer for answer, _ in READ.values()] + [each for each in UNREADABLE.values() if len(each) < 1000]
    bodies += ["[" * 200, '{"a":' * 100, "```a\n" * 50, "{} " * 100]
    words = [
        *('{"tools":[', '{"tool":"a"}', '"arguments":', '{"name":"a","input":{}}', '"function":{', "JSON_BEGIN"),
        "JSON_END",
    ]
    words += [
        *("<think>", "</think>", "```", "~~~", "\n", "null", "]}", "{", "[", '"', "\\", ",", ":", "NaN", "1e999"),
        "true",
    ]
    return Target("decisions", check, lambda: list(seeds(bodies, {}, laws=1)), [encode(word) for word in words])
