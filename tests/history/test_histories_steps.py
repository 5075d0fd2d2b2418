"""Steps of Google's Interactions."""

from __future__ import annotations

from typing import Any

from streamtools.history import Assistant, Message, Origin, Results, Thought, read_messages, write_messages

Body = dict[str, Any]


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


def test_reasoning_is_sent_back_to_its_provider_only() -> None:
    """With its signature, in the provider's format."""
    for format, expected in {"interactions": [SIGNED, step("model_output", content=[text("Hi")])]}.items():
        said = Assistant(parts=(Thought("Hm", "s"), "Hi"), origin=Origin(format))
        assert expected == write_messages([said], format)
        other: Message = Assistant(parts=(Thought("Hm", "s"), "Hi"), origin=Origin("anthropic"))
        assert "Hm" not in str(write_messages([other], format))


def test_a_client_sends_only_signed_provider_data() -> None:
    """Signatures stay, for their provider only."""
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


def test_items_of_responses_are_no_steps() -> None:
    """Types that both formats have are told apart by their members and their turn."""
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
