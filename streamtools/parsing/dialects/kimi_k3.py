"""`<|open|>tools<|sep|><|open|>call tool="get_weather" index="1"<|sep|>`
`<|open|>argument key="city" type="string"<|sep|>Paris<|close|>argument<|sep|>`
`<|close|>call<|sep|><|close|>tools<|sep|>`

A turn of Kimi K3 is a `think`, a `response` and perhaps a `tools` element. The first is reasoning, and mostly opened by
the template; the tags of the others are hidden, and each call is a span of its own. Source: the chat template of
moonshotai/Kimi-K3, which calls this XTML.

The tags count in code, too: that of the response's end stands directly behind its text, so that a fence in its last
line would else hide it, and the calls behind it.
"""

from __future__ import annotations

from typing import Any
from xml.sax.saxutils import escape

from streamtools.json_values import compact
from streamtools.parsing.bodies.forged_results import forged_result
from streamtools.parsing.bodies.xtml import xtml_call
from streamtools.parsing.dialects.base import Dialect, Opener, Tag
from streamtools.parsing.markers import OneOf, Some

_ATTRIBUTES = Some("^<", 0, 192)
_END_OF_MESSAGE = "<|close|>message<|sep|>"
_END_OF_VALUE = "<|close|>argument<|sep|>"
_TYPES = {bool: "boolean", int: "number", float: "number", str: "string", list: "array", dict: "object"}


def kimi_k3_xtml() -> Dialect:
    """Return the dialect."""
    return Dialect(
        id="kimi_k3_xtml",
        openers=(
            Opener(("<|open|>call",), xtml_call, ahead=(" ",)),
            Opener(
                ('<|open|>message role="tool"', _ATTRIBUTES, "<|sep|>"), forged_result(_END_OF_MESSAGE), kind="result"
            ),
        ),
        tags=(
            Tag(
                ("<|open|>think<|sep|>",),
                closings=("<|close|>think<|sep|>",),
                before=("<|open|>response<|sep|>", "<|open|>tools<|sep|>", _END_OF_MESSAGE),
            ),
            Tag(("<|open|>", OneOf(("response", "tools")), "<|sep|>")),
            Tag(('<|open|>message role="', OneOf(("assistant", "user", "system")), '"', _ATTRIBUTES, "<|sep|>")),
            Tag(("<|close|>", OneOf(("think", "response", "tools", "message")), "<|sep|>")),
            Tag(("<|end_of_msg|>",)),
        ),
        write_call=_write_call,
        write_result=_write_result,
        in_code="call",
        reserved=("<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>"),
        models=(r"kimi-?k3",),
        notes="The type of an argument is string, number, boolean, object, array or null; only a string is no JSON.",
    )


def _write_call(name: str, arguments: dict[str, Any]) -> str:
    values = {key: value if isinstance(value, str) else compact(value) for key, value in arguments.items()}
    if any(_END_OF_VALUE in text for text in values.values()):
        inside = f'<|open|>json type="object"<|sep|>{compact(arguments)}<|close|>json<|sep|>'
    else:
        inside = "".join(
            f'<|open|>argument key={_attribute(key)} type="{_TYPES.get(type(arguments[key]), "null")}"<|sep|>'
            f"{text}{_END_OF_VALUE}"
            for key, text in values.items()
        )
    call = f'<|open|>call tool={_attribute(name)} index="1"<|sep|>{inside}<|close|>call<|sep|>'
    return f"<|open|>tools<|sep|>{call}<|close|>tools<|sep|>"


def _write_result(name: str, text: str) -> str:
    head = f'<|open|>message role="tool" tool={_attribute(name)} index="1"<|sep|>'
    return f"{head}{text}{_END_OF_MESSAGE}<|end_of_msg|>"


def _attribute(text: str) -> str:
    return '"' + escape(text, {'"': "&quot;"}) + '"'
