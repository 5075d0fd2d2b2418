"""`<|message_model|>get_weather<|content_invoke_tool_json|>{"name": "get_weather", "args": {...}}<|end_message|>`

Each message says what it holds: a call, text, or thoughts. The name stands in the JSON again, and that is what counts.
A token ends the turn, and may do so in the place of the one that ends a message.
Source: what inference servers read; the template of the model was not at hand.
"""

from __future__ import annotations

from typing import Any

from streamtools.json_values import compact
from streamtools.parsing.bodies.json_calls import json_calls
from streamtools.parsing.bodies.named_json import GAP, NAME
from streamtools.parsing.dialects.base import Dialect, Opener, Tag
from streamtools.parsing.dialects.hermes import write_response
from streamtools.parsing.markers import SPACES

_MESSAGE, _END, _STOP = "<|message_model|>", "<|end_message|>", "<|content_model_end_sampling|>"
_ENDS = (_END, _STOP)
_CALL, _TEXT, _THOUGHTS = "<|content_invoke_tool_json|>", "<|content_text|>", "<|content_thinking|>"


def inkling() -> Dialect:
    """Return the dialect."""
    call = json_calls(_END, ends=(_STOP, _MESSAGE))
    begins = ((_MESSAGE, GAP, NAME, GAP, _CALL), (_MESSAGE, GAP, _CALL), (_CALL,))
    return Dialect(
        id="inkling",
        openers=tuple(Opener((*begin, SPACES), call, ahead=("{",)) for begin in begins),
        write_call=_write_call,
        write_result=write_response,
        reserved=("<|message_", "<|content_", _END),
        tags=(
            Tag((_MESSAGE, _TEXT)),
            Tag((_TEXT,)),
            *(Tag((*begin, _THOUGHTS), closings=_ENDS, before=(_MESSAGE,)) for begin in ((_MESSAGE,), ())),
            *(Tag((end,)) for end in _ENDS),
        ),
        models=("inkling",),
    )


def _write_call(name: str, arguments: dict[str, Any]) -> str:
    return f"{_MESSAGE}{name}{_CALL}{compact({'name': name, 'args': arguments})}{_END}"
