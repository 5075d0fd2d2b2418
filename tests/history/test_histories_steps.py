"""Steps of Interactions: written again as they were, and read in any case."""

from __future__ import annotations

import json
from typing import Any

import pytest

from streamtools.history import (
    Assistant,
    Message,
    Origin,
    Results,
    TextPart,
    Thought,
    User,
    read_messages,
    write_messages,
)

Body = dict[str, Any]
PICTURE = "data:image/png;base64,aGk="


def step(kind: str, **members: Any) -> Body:
    return {"type": kind, **members}


def text(value: str, **more: Any) -> Body:
    return {"type": "text", "text": value, **more}


SIGNED = step("thought", signature="s", summary=[text("Hm")])
ASKED = step("user_input", content=[text("?")])
CALL = step("function_call", id="c", name="f", arguments={"a": 1}, signature="z")
HISTORIES: dict[str, tuple[str, list[Body]]] = {
    "a thought, a call and its result": (
        "interactions",
        [
            ASKED,
            SIGNED,
            step("model_output", content=[text("I look.")]),
            CALL,
            step("function_call", id="d", name="g", arguments={}),
            step("function_result", call_id="c", name="f", result="1"),
            step("function_result", call_id="d", name="g", result=[text("x")], is_error=True),
            step("thought", signature="t"),
            step("model_output", content=[text("It is one.", annotations=[{"type": "url_citation", "url": "u"}])]),
        ],
    ),
    "what Google's tools have done, and images": (
        "interactions",
        [
            step("user_input", content=[text("?"), {"type": "image", "data": "aGk=", "mime_type": "image/png"}]),
            step("google_search_call", id="s", arguments={"queries": ["x"]}, signature="z"),
            step("google_search_result", call_id="s", result=[{"search_suggestions": "<p>"}], is_error=False),
            step("file_search_call", id="fs", signature="z"),
            step("tool_search_call", id="ts", arguments={"query": "q"}),
            step("model_output", content=[text("a"), {"type": "image", "uri": "u"}, text("b")]),
            step("model_output", content=[{"type": "image", "uri": "u", "mime_type": "image/png"}]),
            step("model_output", content=[text("c")]),
            step("user_input", content=[{"type": "document", "data": "aGk=", "mime_type": "application/pdf"}]),
            step("thought", summary=[text("unsigned")]),
            step("model_output", content=[text("d")]),
        ],
    ),
    "a result that is an object, or images": (
        "interactions",
        [
            ASKED,
            CALL,
            CALL | {"id": "d"},
            step("function_result", call_id="c", name="f", result={"sky": "grey"}),
            step("function_result", call_id="d", name="f", result=[{"type": "image", "uri": "u"}]),
        ],
    ),
}


@pytest.mark.parametrize(("format", "messages"), HISTORIES.values(), ids=HISTORIES)
def test_read_and_written_again(format: str, messages: list[Body]) -> None:
    """It is the same JSON, each message shares nothing with what was read, and nobody else gets what is one's own."""
    history = read_messages(json.loads(json.dumps(messages)))
    assert messages == write_messages(history, format)
    for other in {"openai", "responses", "anthropic", "gemini", "interactions"} - {format}:
        written = json.dumps(write_messages(history, other))
        for word in ("signature", "annotations", "google_search"):
            assert word not in written, (other, word)
        for part in (part for each in history if isinstance(each, Assistant) for part in each.parts):
            if isinstance(part, TextPart):
                assert json.dumps(part.text)[1:-1] in written


def test_what_was_thought_goes_back_to_who_thought_it() -> None:
    """With its signature, as its format has it; from another it is not told."""
    for format, expected in {
        "interactions": [SIGNED, step("model_output", content=[text("Hi")])],
    }.items():
        said = Assistant(parts=(Thought("Hm", "s"), "Hi"), origin=Origin(format))
        assert expected == write_messages([said], format)
        other: Message = Assistant(parts=(Thought("Hm", "s"), "Hi"), origin=Origin("anthropic"))
        assert "Hm" not in str(write_messages([other], format))


def test_contents_for_another_provider() -> None:
    """Images and files of the user's are in the form of each, and so are those of results where there is a place."""
    image = {"type": "image_url", "image_url": {"url": PICTURE}}
    file = {"type": "file", "file": {"file_data": "data:application/pdf;base64,aGk=", "filename": "a.pdf"}}
    history = read_messages([{"role": "user", "content": [image, file]}])
    assert [
        {"type": "image", "data": "aGk=", "mime_type": "image/png"},
        {"type": "document", "data": "aGk=", "mime_type": "application/pdf"},
    ] == write_messages(history, "interactions")[0]["content"]
    given = [{"type": "image", "uri": "u"}, {"type": "document", "data": "aGk=", "mime_type": "text/csv"}]
    read = read_messages([step("user_input", content=given)])
    assert given == write_messages(read, "interactions")[0]["content"]
    assert {"type": "image_url", "image_url": {"url": "u"}} == write_messages(read, "openai")[0]["content"][0]


ODD: list[Body] = [
    step("user_input"),
    step("user_input", content="Hi"),
    step("user_input", content=text("Hi")),
    step("model_output", content=None),
    step("model_output", content=text("Hi")),
    step("model_output", content=[5, text("Hi"), {"type": "text", "text": 5}]),
    step("thought", summary=5, signature=5),
    step("function_call", id=5, name=None, arguments="x", signature=""),
    step("google_search_call", id={}),
]


def test_content_is_never_refused() -> None:
    """What cannot be interpreted is kept, or counts as not sent; the history can be written for everybody."""
    for message in ODD:
        history = [User("?"), *read_messages([message]), User("!")]
        for format in ("openai", "responses", "anthropic", "gemini", "interactions"):
            assert write_messages(history, format), (message, format)


def test_a_client_sends_no_more_than_others() -> None:
    """Steps and entries lose what is not signed; signatures stay, for their provider alone."""
    for format, messages in HISTORIES.values():
        history = read_messages(messages, client=True)
        written = str(write_messages(history, format))
        for word in ("google_search", "file_search", "annotations"):
            assert word not in written
        signed = [part.signature for each in history if isinstance(each, Assistant) for part in each.thoughts]
        assert all(f"'{each}'" in written for each in signed if each)
    (turn,) = read_messages([SIGNED, CALL], client=True)
    assert isinstance(turn, Assistant)
    assert ("s", "z", None) == (turn.thoughts[0].signature, turn.calls[0].signature, turn.calls[0].own)


def test_items_of_responses_are_none_of_googles() -> None:
    """Types that both have are told apart by what stands in them, and by the turn that they are in."""
    items: list[Body] = [
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "file_search_call", "id": "fs", "status": "completed", "queries": []},
    ]
    (turn,) = read_messages(items)
    assert isinstance(turn, Assistant)
    assert "responses" == turn.origin.format
    (turn, results) = read_messages([CALL, step("function_result", call_id="c", result=None)])
    assert isinstance(turn, Assistant)
    assert isinstance(results, Results)
    assert ("interactions", "") == (turn.origin.format, results.results[0].text)
