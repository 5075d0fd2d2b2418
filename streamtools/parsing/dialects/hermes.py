"""`<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}</tool_call>`

The form of Hermes and Qwen 2.5 and 3, and of most models that are taught by a prompt. The tag is that of other
dialects, too: what follows it tells them apart, here a brace or a bracket. Source: the chat templates of
NousResearch/Hermes-3 and Qwen/Qwen3.
"""

from __future__ import annotations

from typing import Any

from streamtools.json_values import compact
from streamtools.parsing.bodies.json_calls import json_calls
from streamtools.parsing.dialects.base import Dialect, Opener, ends_of_turn
from streamtools.parsing.markers import SPACES
from streamtools.parsing.span import Body

ENDS = ("<|im_end|>", "<|eot_id|>", "<|end_of_text|>", "</s>")
"""What ends a message in the templates of models that write so."""


def hermes_json() -> Dialect:
    """Return the dialect."""
    return Dialect(
        id="hermes_json",
        openers=hermes_openers(),
        write_call=write_call,
        write_result=write_response,
        reserved=("<tool_call", "</tool_call", "<tool_response", "</tool_response"),
        tags=ends_of_turn(*ENDS),
        models=("hermes", r"qwen-?2\.5", "qwen-?3", "qwq", "granite-?4", "mimo-vl", "reka", "smollm-?3", "exaone-?4"),
    )


def hermes_openers(*, auto: bool = True) -> tuple[Opener, ...]:
    """Return its openers; `auto=False` for another dialect that has them too."""
    body: Body = json_calls("</tool_call>", ends=ENDS)
    return tuple(Opener(("<tool_call>", SPACES), body, ahead=(first,), line_feeds=1, auto=auto) for first in "{[")


def write_call(name: str, arguments: dict[str, Any]) -> str:
    """Return a call as the templates write it into the history."""
    return f"<tool_call>\n{compact({'name': name, 'arguments': arguments})}\n</tool_call>"


def write_response(name: str, text: str) -> str:
    """Return a result in the form of the templates, which do not name the tool."""
    return f"<tool_response>\n{text}\n</tool_response>"
