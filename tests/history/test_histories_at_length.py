"""Long lists of a client: many items are one turn, in linear time."""

from __future__ import annotations

from typing import Any

from streamtools.calls import ToolCall
from streamtools.history import Assistant, Results, TextPart, Thought, read_messages

MANY = 2_000


def item(number: int) -> dict[str, Any]:
    return {"type": "function_call", "call_id": f"c{number}", "name": f"f{number}", "arguments": "{}"}


def test_many_items_are_one_turn_in_linear_time() -> None:
    """Calls, thoughts and texts become one turn, and the results one message, in order."""
    thought = {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "s"}
    said = {"role": "assistant", "content": [{"type": "output_text", "text": "a"}]}
    items = [each for number in range(MANY) for each in (thought, item(number), said)]
    results = [{"role": "tool", "tool_name": f"f{number}", "content": str(number)} for number in reversed(range(MANY))]

    turn, answers = read_messages([*items, *results])

    assert isinstance(turn, Assistant)
    assert [f"c{number}" for number in range(MANY)] == [call.id for call in turn.calls]
    assert [Thought, ToolCall, TextPart] * MANY == [type(each) for each in turn.parts]
    assert "\n".join("a" * MANY) == turn.text
    assert isinstance(answers, Results)
    assert [(f"c{number}", str(number)) for number in reversed(range(MANY))] == [
        (each.call_id, each.text) for each in answers.results
    ]


def test_a_result_without_a_name_answers_the_first_open_call() -> None:
    results = [{"role": "tool", "content": str(number)} for number in range(MANY)]
    _, answers = read_messages([*map(item, range(MANY)), *results])
    assert isinstance(answers, Results)
    assert [f"c{number}" for number in range(MANY)] == [each.call_id for each in answers.results]


def test_calls_with_the_same_id_get_unique_ids() -> None:
    """Their results are assigned in order."""
    ids = ["d_2", "d_4", "d", "d", "d", "d_3"]
    calls = [{"type": "function_call", "call_id": id, "name": "f", "arguments": "{}"} for id in ids]
    results = [{"type": "function_call_output", "call_id": id, "output": str(at)} for at, id in enumerate(ids)]
    turn, answers = read_messages([*calls, *results])
    assert isinstance(turn, Assistant)
    assert isinstance(answers, Results)
    made = [call.id for call in turn.calls]
    assert ["d_2", "d_4", "d", "d_3", "d_5", "d_3_6"] == made
    assert {made[at]: str(at) for at in range(5)}.items() <= {
        each.call_id: each.text for each in answers.results
    }.items()
