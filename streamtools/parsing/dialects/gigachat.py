"""`<|message_sep|>`, two line ends, `function call<|role_sep|>`, and `{"name": "get_weather", "arguments": {...}}`

The form of GigaChat 3; 3.1 writes `<|function_call|>` before the same JSON. There is no closing tag, and where special
tokens do not arrive, `function call` stands alone. Source: what inference servers read of
ai-sage/GigaChat3-10B-A1.8B and its successors; their templates were not at hand.
"""

from __future__ import annotations

from typing import Any

from streamtools.json_values import compact
from streamtools.parsing.bodies.json_calls import json_calls
from streamtools.parsing.dialects.base import Dialect, Opener, ends_of_turn
from streamtools.parsing.dialects.hermes import write_response
from streamtools.parsing.markers import SPACES, Maybe

_ROLE = "<|role_sep|>"
_CALL = "function call" + _ROLE


def gigachat3() -> Dialect:
    """Return the dialect."""
    call = json_calls()
    return Dialect(
        id="gigachat3",
        openers=(
            Opener(("<|message_sep|>", SPACES, "function call", Maybe((_ROLE,)), SPACES), call, ahead=("{",)),
            Opener((_CALL, SPACES), call, ahead=("{",), auto="line_start"),
            Opener(("<|function_call|>", SPACES), call, ahead=("{",)),
            Opener(("function call", SPACES), call, ahead=("{", SPACES, '"'), where="line_start", auto=False),
        ),
        write_call=_write_call,
        write_result=write_response,
        reserved=("<|message_sep|>", "<|role_sep|>", "<|function_call|>"),
        tags=ends_of_turn("</s>"),
        models=("gigachat-?3",),
    )


def _write_call(name: str, arguments: dict[str, Any]) -> str:
    return f"<|message_sep|>\n\n{_CALL}\n{compact({'name': name, 'arguments': arguments})}"
