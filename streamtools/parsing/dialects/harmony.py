"""`<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "Paris"}<|call|>`

A stream of messages, each with a header that names its channel: `analysis` is reasoning, `final` and every other one is
visible, and a message of any channel that is addressed to somebody is a call. `functions.` before the name is the
namespace of the caller's tools; the built-in ones (`python`, `browser.search`) go without. Source: the harmony response
format of openai/gpt-oss, and its chat template.

The tokens count in code, too. They follow the text of a message without a line end, so that a fence, a code span or a
quote in its last line would else hide where it ends, and the call behind it; and the model that writes them writes
tokens, which are structure wherever they stand.
"""

from __future__ import annotations

from typing import Any

from streamtools.json_values import compact
from streamtools.parsing.bodies.messages import AddressedCall
from streamtools.parsing.dialects.base import Dialect, Opener, Tag
from streamtools.parsing.markers import OneOf, Part, Some

_ENDS = ("<|call|>", "<|end|>", "<|return|>")
_BEGINS = ("<|start|>", "<|channel|>")

_GAP = Some(r" \t", 0, 4)
_FORMAT: tuple[Part, ...] = (_GAP, OneOf(("<|constrain|>", "")), Some(r"A-Za-z0-9_.+/ \t-", 0, 24), "<|message|>")
"""The end of a header: what the content is, like `json`, and the token behind which it begins."""
_CHANNEL: tuple[Part, ...] = ("<|channel|>", Some("A-Za-z_-", 1, 16))
_TO: tuple[Part, ...] = (Some(r" \t", 1, 4), "to=")
_TOOL: tuple[Part, ...] = (*_TO, Some(r"^ \t\r\n<>|", 1, 96))
_READER: tuple[Part, ...] = (*_TO, OneOf(("assistant", "user")))
_STARTS: tuple[tuple[Part, ...], ...] = ((), ("<|start|>assistant",))


def harmony() -> Dialect:
    """Return the dialect."""
    message = AddressedCall(r"to=(?:functions\.)?([^ \t\r\n<>|]+)", ends=_ENDS, begins=_BEGINS)
    return Dialect(
        id="harmony",
        openers=(
            *(Opener(header, message) for header in _headers(_TOOL)),
            Opener(("<|start|>assistant", *_TOOL, *_FORMAT), message),
            Opener((*_TOOL[1:], _GAP, *_CHANNEL, *_FORMAT), message, where="start"),  # the prompt has begun the header
            Opener(
                ("<|start|>functions.", Some(r"^ \t\r\n<>|", 1, 96), *_TO, "assistant", _GAP, *_CHANNEL, *_FORMAT),
                message.result,
                kind="result",
            ),
        ),
        tags=(
            *(Tag((*start, "<|channel|>analysis", *_FORMAT), closings=_ENDS, before=_BEGINS) for start in _STARTS),
            *(Tag((*start, *_CHANNEL, *_FORMAT)) for start in _STARTS),
            *(Tag(header) for header in _headers(_READER)),
            Tag(("<|start|>", OneOf(("assistant", "user", "system", "developer")), "<|message|>")),
            *(Tag((end,)) for end in _ENDS),
        ),
        write_call=_write_call,
        write_result=_write_result,
        in_code="call",
        reserved=(*_ENDS, *_BEGINS, "<|message|>", "<|constrain|>"),
        models=("gpt-?oss",),
        notes="Address a message of the commentary channel to the tool; its content is one JSON object.",
    )


def _headers(recipient: tuple[Part, ...]) -> tuple[tuple[Part, ...], ...]:
    """Return the headers of a message to a recipient, who stands behind the channel or, in the role, before it.

    Models also name the channel twice, on both sides.
    """
    behind = [(*start, *_CHANNEL, *recipient) for start in _STARTS]
    between = [(*header, _GAP, *_CHANNEL) for header in (*behind, ("<|start|>assistant", *recipient))]
    return tuple((*header, *_FORMAT) for header in (*behind, *between))


def _write_call(name: str, arguments: dict[str, Any]) -> str:
    return f"<|start|>assistant to=functions.{name}<|channel|>commentary json<|message|>{compact(arguments)}<|call|>"


def _write_result(name: str, text: str) -> str:
    return f"<|start|>functions.{name} to=assistant<|channel|>commentary<|message|>{text}<|end|>"
