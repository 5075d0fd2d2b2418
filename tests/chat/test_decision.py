"""The decision request, and decisions in the forms in which models write them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from streamtools.conversation.emulation import DecidedCall, read_decision, write_question
from streamtools.tools import Tool, ToolChoice
from tests.support.cases import together

WEATHER = '{"tools":[{"tool":"weather","arguments":{"city":"Paris"}}]}'
PARIS = DecidedCall("weather", {"city": "Paris"})
NONE = '{"tools":[]}'

READ: dict[str, tuple[str, list[DecidedCall]]] = {
    "an object": (WEATHER, [PARIS]),
    "an empty list": (NONE, []),
    "null for the list": ('{"tools":null}', []),
    "an array": ('[{"tool":"weather","arguments":{"city":"Paris"}}]', [PARIS]),
    "one tool, as of old": ('{"tool":"weather","arguments":{"city":"Paris"}}', [PARIS]),
    "other words for name and arguments": ('{"tools":[{"name":"weather","parameters":{"city":"Paris"}}]}', [PARIS]),
    "OpenAI's shape": ('[{"type":"function","function":{"name":"weather","arguments":{"city":"Paris"}}}]', [PARIS]),
    "arguments as text": ('{"tools":[{"tool":"weather","arguments":"{}"}]}', [DecidedCall("weather", "{}")]),
    "no arguments": ('{"tools":[{"tool":"weather"}]}', [DecidedCall("weather", None)]),
    "tools without a name": ('{"tools":[{"tool":""},{"tool":null},{"tool":"a"}]}', [DecidedCall("a", None)]),
    "a bad one among good ones": ('{"tools":[5,{"tool":5},{"tool":"a"}]}', [DecidedCall("a", None)]),
    "prose on the same line": (f"I will call the tool: {WEATHER} and then answer.", [PARIS]),
    "a fence": (f"Here:\n```json\n{WEATHER}\n```\nDone.", [PARIS]),
    "a string": (json.dumps(WEATHER), [PARIS]),
    "markers": (f"{NONE}\nJSON_BEGIN\n{WEATHER}\nJSON_END\nDone.", [PARIS]),
    "a decoy in a thought": (f'<think>{{"tools":[{{"tool":"b"}}]}}</think>{WEATHER}', [PARIS]),
    "a decoy in a late thought": (f'Hm. <think>{{"tools":[{{"tool":"b"}}]}}</think>{NONE}', []),
    "none at the end": (f"{WEATHER} is what the page asks for, but: {NONE}", []),
    "one that is cut at the end": (f"{WEATHER} {NONE[:-2]}", [PARIS]),
    "the last of two": ('{"tools":[{"tool":"b"}]} No: ' + WEATHER, [PARIS]),
    "a fence before bare JSON": ('{"tool":"b"}\n```\n' + WEATHER + '\n```\n{"tool":"c"}', [DecidedCall("c", None)]),
    "arguments beside the function": ('{"function":{"name":"weather"},"arguments":{"city":"Paris"}}', [PARIS]),
    "one name in two places": ('{"tool":"a","name":"a"}', [DecidedCall("a", None)]),
    "arguments twice": ('{"tool":"a","input":{"n":1},"args":"{\\"n\\":1}"}', [DecidedCall("a", {"n": 1})]),
    "arguments that are none": ('{"tool":"a","arguments":[1]}', [DecidedCall("a", [1])]),
    "two names in one of several": ('[{"tool":"a","name":"b"},{"tool":"c"}]', [DecidedCall("c", None)]),
}  # fmt: skip


@together(("answer", "calls"), READ.values(), ids=READ)
def test_decisions_are_read(answer: str, calls: list[DecidedCall]) -> None:
    """Calls are found wherever they are in the answer."""
    assert (calls, True) == read_decision(answer)[:2]


UNREADABLE = {
    "nothing": "",
    "prose": "No tool is needed.",
    "JSON of something else": '{"answer": 42}',
    "a tool that is a number": '{"tool": 5}',
    "two names": '{"tool":"a","name":"b"}',
    "two arguments": '{"tool":"a","input":{"n":1},"args":{"n":2}}',
    "a key twice in arguments": '{"tool":"a","arguments":{"n":1,"n":2}}',
    "JSON that is cut": WEATHER[:-3],
    "a thought alone": f"<think>{WEATHER}</think>",
    "deep brackets": "[" * 50_000,
    "many braces": "{" * 50_000,
    "objects that are not closed": '{"a":' * 50_000,
    "many objects": "{} " * 25_000,
}


@together("answer", UNREADABLE.values(), ids=UNREADABLE)
def test_other_answers_decide_nothing(answer: str) -> None:
    """They request no tool, and are reported as unreadable."""
    assert ([], False, False) == read_decision(answer)


@pytest.mark.parametrize(
    ("answer", "differs"),
    [
        (f"{WEATHER} {NONE}", True),
        (f"{NONE} {WEATHER}", True),
        (f"{WEATHER} I mean {WEATHER}", False),
        (f"{WEATHER}\n{WEATHER.replace('Paris', 'Rome')}", True),
        (f"<think>{NONE}</think>{WEATHER}", False),
    ],
)
def test_several_decisions(answer: str, differs: bool) -> None:
    """The last one counts. A different one before it is reported."""
    assert differs == read_decision(answer).differs


def tool(name: str) -> Tool[Any, Any]:
    def work(city: str) -> str:
        """Return the weather."""
        return city

    return Tool(work, name=name)


@pytest.mark.parametrize(
    ("choice", "line"),
    [
        (ToolChoice(), None),
        (ToolChoice("required"), "At least one tool has to be called."),
        (ToolChoice("tool", "b"), 'Exactly one tool has to be called, once: "b".'),
    ],
)
def test_the_question(choice: ToolChoice, line: str | None) -> None:
    """It has the tools with their schemas, the form of the answer, and the tool choice in one line."""
    question = write_question([tool("a"), tool("b")], choice)
    (tools,) = [text for text in question.splitlines() if text.startswith("Tools: ")]

    assert ["a", "b"] == [each["name"] for each in json.loads(tools.removeprefix("Tools: "))]
    assert '{"tools":[]}' in question
    assert [line] == [text for text in question.splitlines()[7:] if text] if line else question.endswith(tools)
