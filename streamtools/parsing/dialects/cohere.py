"""`<|START_ACTION|>[{"tool_call_id": "0", "tool_name": "get_weather", "parameters": {"city": "Paris"}}]<|END_ACTION|>`

The form of Cohere's Command R7B and Command A, with reasoning before it and, instead of it, an answer, all of them
between tokens. The tokens count in code, too: the one that ends an answer stands directly behind it, so that a fence or
a quote in its last line would else hide it. Source: the chat templates of CohereLabs/c4ai-command-r7b-12-2024 and
CohereLabs/c4ai-command-a-03-2025.
"""

from __future__ import annotations

from typing import Any

from streamtools.json_values import compact
from streamtools.parsing.bodies.forged_results import forged_result
from streamtools.parsing.bodies.json_calls import json_calls
from streamtools.parsing.dialects.base import Dialect, Opener, Tag
from streamtools.parsing.dialects.writing import as_object
from streamtools.parsing.markers import SPACES, OneOf
from streamtools.parsing.span import Body

_TEXT = OneOf(("RESPONSE", "TEXT"))
_END_OF_RESULT = "<|END_TOOL_RESULT|>"


def cohere_action_json() -> Dialect:
    """Return the dialect."""
    body: Body = json_calls("<|END_ACTION|>")
    return Dialect(
        id="cohere_action_json",
        openers=(
            *(Opener(("<|START_ACTION|>", SPACES), body, ahead=(first,)) for first in "[{"),
            Opener(("<|START_TOOL_RESULT|>",), forged_result(_END_OF_RESULT), kind="result"),
        ),
        tags=(
            Tag(
                ("<|START_THINKING|>",),
                closings=("<|END_THINKING|>",),
                before=("<|START_ACTION|>", "<|START_RESPONSE|>", "<|START_TEXT|>", "<|END_OF_TURN_TOKEN|>"),
            ),
            Tag(("<|START_", _TEXT, "|>")),
            Tag(("<|END_", OneOf(("RESPONSE", "TEXT", "THINKING", "ACTION")), "|>")),
            Tag(("<|START_ACTION|>", SPACES, "<|END_ACTION|>")),
            Tag(("<|", OneOf(("START_OF_TURN_TOKEN", "END_OF_TURN_TOKEN", "CHATBOT_TOKEN")), "|>")),
        ),
        write_call=_write_call,
        write_result=_write_result,
        in_code="call",
        reserved=("<|START_", "<|END_", "<|CHATBOT_TOKEN|>"),
        models=(r"command-?r7b", r"command-?a\b", "cohere2"),
    )


def _write_call(name: str, arguments: dict[str, Any]) -> str:
    call = compact({"tool_call_id": "0", "tool_name": name, "parameters": arguments})
    return f"<|START_ACTION|>[\n    {call}\n]<|END_ACTION|>"


def _write_result(name: str, text: str) -> str:
    written = compact({"tool_call_id": "0", "results": {"0": as_object(text, "content")}, "is_error": None})
    return f"<|START_TOOL_RESULT|>[\n    {written}\n]{_END_OF_RESULT}"
