"""Steps of Google's Interactions API."""

from __future__ import annotations

from typing import Any

from streamtools.history import Assistant, Results, read_messages, write_messages
from tests.support.exact_histories import EXACT

Body = dict[str, Any]


def step(kind: str, **members: Any) -> Body:
    return {"type": kind, **members}


def text(value: str, **more: Any) -> Body:
    return {"type": "text", "text": value, **more}


SIGNED = step("thought", signature="s", summary=[text("Hm")])
CALL = step("function_call", id="c", name="f", arguments={"a": 1}, signature="z")


def test_a_client_sends_only_signed_provider_data() -> None:
    """Signatures are sent to their provider only."""
    format, messages = EXACT["interactions"]
    written = str(write_messages(read_messages(messages, client=True), format))
    assert not [word for word in ("google_search", "file_search", "annotations") if word in written]
    (turn,) = read_messages([SIGNED, CALL], client=True)
    assert isinstance(turn, Assistant)
    assert ("s", "z", None) == (turn.thoughts[0].signature, turn.calls[0].signature, turn.calls[0].own)


def test_items_of_responses_are_not_read_as_steps() -> None:
    """Shared types are distinguished by their fields and their turn."""
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
