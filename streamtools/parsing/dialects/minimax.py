"""`<minimax:tool_call><invoke name="get_weather"><parameter name="city">Paris</parameter></invoke></minimax:tool_call>`

The form of MiniMax M2: values are text, which the tool's JSON schema gives its type. Source: the chat template of
MiniMaxAI/MiniMax-M2 and its tool calling guide.
"""

from __future__ import annotations

from typing import Any

from streamtools.json_values import compact
from streamtools.parsing.bodies.attributes import Invocations
from streamtools.parsing.bodies.tags import attribute
from streamtools.parsing.dialects.attribute_xml import write_invocation
from streamtools.parsing.dialects.base import Dialect, Opener, Tag, ends_of_turn
from streamtools.parsing.dialects.writing import keep_from
from streamtools.parsing.markers import SPACES

_END = "[e~["
"""What ends a message in the templates of both."""


def minimax_m2_xml() -> Dialect:
    """Return the dialect."""
    form = Invocations("minimax:tool_call")
    return Dialect(
        id="minimax_m2_xml",
        openers=(Opener(("<minimax:tool_call>", SPACES), form.wrapped, ahead=("<",), line_feeds=1),),
        tags=(Tag(("</minimax:tool_call>",)), *ends_of_turn(_END)),
        write_call=_write_call,
        write_result=_write_result,
        reserved=(
            "<minimax:", "</minimax:", "<invoke", "</invoke", "<parameter", "</parameter", "<response", "</response",
        ),
        models=("minimax.?m2",),
    )  # fmt: skip


def _write_call(name: str, arguments: dict[str, Any]) -> str:
    return f"<minimax:tool_call>\n{write_invocation(name, arguments)}\n</minimax:tool_call>"


def _write_result(name: str, text: str) -> str:
    return f"<response>{text}</response>"


_NAMESPACE = "]<]minimax[>["


def minimax_m3_xml() -> Dialect:
    """Return the dialect of MiniMax M3, whose tags have a token before them, and the names of parameters in them.

    `]<]minimax[>[<tool_call>]<]minimax[>[<invoke name="f">]<]minimax[>[<a>1]<]minimax[>[</a>]<]minimax[>[</invoke>…`.
    Source: the chat template of MiniMaxAI/MiniMax-M3.
    """
    form = Invocations("tool_call", lead=_NAMESPACE, elements=True)
    return Dialect(
        id="minimax_m3_xml",
        openers=(Opener((f"{_NAMESPACE}<tool_call>", SPACES), form.wrapped, ahead=(_NAMESPACE,)),),
        tags=(
            Tag((f"{_NAMESPACE}</tool_call>",)),
            Tag(("<mm:think>",), closings=("</mm:think>",)),
            *ends_of_turn(_END),
        ),
        write_call=_write_elements,
        write_result=_write_result,
        reserved=(_NAMESPACE, "<response", "</response", "</mm:think"),
        models=("minimax.?m3",),
    )


def _write_elements(name: str, arguments: dict[str, Any]) -> str:
    written = "".join(_write_element(key, value) for key, value in arguments.items())
    invoke = f"{_NAMESPACE}<invoke name={attribute(name)}>{written}{_NAMESPACE}</invoke>"
    return f"{_NAMESPACE}<tool_call>\n{invoke}\n{_NAMESPACE}</tool_call>"


def _write_element(key: str, value: Any) -> str:
    text = keep_from(value if isinstance(value, str) else compact(value), _NAMESPACE)
    return f"{_NAMESPACE}<{key}>{text}{_NAMESPACE}</{key}>"
