"""Dialects of messages with headers. A header names the content of its message, or the recipient: a tool or the user.

    <|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "Paris"}<|call|>
    <|message_model|>get_weather<|content_invoke_tool_json|>{"name": "get_weather", "args": {"city": "Paris"}}
    Let me see.>>>get_weather
    {"city": "Paris"}

A message that is a call contains JSON.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

from streamtools.json_values import compact
from streamtools.parsing.bodies.json_bodies import json_calls
from streamtools.parsing.bodies.named_json import GAP, NAME, AddressedCall, Identity, NamedCall, bare
from streamtools.parsing.dialects.base import Dialect, Opener, Tag
from streamtools.parsing.dialects.writing import name_and_json
from streamtools.parsing.markers import BLANKS, LINE_END, SPACES, OneOf, Part, Some, Where
from streamtools.parsing.span import Span

# Parts of the headers of `harmony`. `_ENDS` are the tokens that end a message, `_BEGINS` those that begin a header.
_ENDS = ("<|call|>", "<|end|>", "<|return|>")
_BEGINS = ("<|start|>", "<|channel|>")
_PADDING = Some(r" \t", 0, 4)
_CONTENT_TYPE = (OneOf(("<|constrain|>", "")), Some(r"A-Za-z0-9_.+/ \t-", 0, 24))
_MESSAGE: tuple[Part, ...] = (_PADDING, *_CONTENT_TYPE, "<|message|>")
"""The end of a header: the type of the content, such as `json`, and the token before the content."""
_CHANNEL: tuple[Part, ...] = ("<|channel|>", Some("A-Za-z_-", 1, 16))
_ANALYSIS, _USER = "<|channel|>analysis", OneOf(("assistant", "user"))
_TO: tuple[Part, ...] = (Some(r" \t", 1, 4), "to=")
_TOOL = Some(r"^ \t\r\n<>|", 1, 96)  # the name of a tool
_ROLES: tuple[tuple[Part, ...], ...] = ((), ("<|start|>assistant",))
"""The first parts of a header. () because models often omit the role."""


def harmony() -> Dialect:
    """Return the dialect of gpt-oss. The header of each message names a channel.

    The channel `analysis` contains reasoning, even if the recipient is the user. Other channels contain the answer. A
    message whose recipient is not the user is a call, in any channel. `functions.` before the name is the namespace of
    the caller's tools. The built-in tools (`python`, `browser.search`) have no namespace. Source: the harmony response
    format of openai/gpt-oss, and its chat template.

    Tokens are also read inside code, because they directly follow the text of a message. If the last line of the text
    is code or a quote, the end of the message and the next call would otherwise be read as part of this code or quote.
    """
    message = AddressedCall(r"to=(?:functions\.)?([^ \t\r\n<>|]+)", ends=_ENDS, begins=_BEGINS)
    result: tuple[Part, ...] = ("<|start|>functions.", _TOOL, *_TO, "assistant", _PADDING, *_CHANNEL, *_MESSAGE)
    return Dialect(
        id="harmony",
        openers=(
            *(Opener(header, message, tag_parts=header.index(_TOOL) + 1) for header in _headers(_TOOL)),
            Opener(("<|start|>assistant", *_TO, _TOOL, *_MESSAGE), message, tag_parts=4),
            # The prompt may contain the beginning of the header, such as `<|start|>assistant`.
            Opener((*_TO[1:], _TOOL, _PADDING, *_CHANNEL, *_MESSAGE), message, where="start", tag_parts=0),
            Opener(result, message.result, kind="result"),
        ),
        write_call=name_and_json(
            "<|start|>assistant to=functions.", "<|channel|>commentary json<|message|>", "<|call|>"
        ),
        write_result=lambda name, text: (
            f"<|start|>functions.{name} to=assistant<|channel|>commentary<|message|>{text}<|end|>"
        ),
        in_code="call",
        space_at_start=True,
        reserved=(*_ENDS, *_BEGINS, "<|message|>", "<|constrain|>"),
        tags=(
            *(Tag(header, closings=_ENDS, before=_BEGINS) for header in _reasoning_headers()),
            *(Tag((*role, *_CHANNEL, *more, *_MESSAGE)) for role in _ROLES for more in ((), (_PADDING, *_CHANNEL))),
            *(Tag(header) for header in _headers(_USER)),
            # The prompt may contain the beginning of these headers too.
            Tag((*_TO[1:], _USER, _PADDING, *_CHANNEL, *_MESSAGE), where="start"),
            Tag(("analysis", *_MESSAGE), closings=_ENDS, before=_BEGINS, where="start", auto=False),
            *(Tag((channel, *_MESSAGE), where="start", auto=False) for channel in ("commentary", "final")),
            Tag(("<|start|>", OneOf(("assistant", "user", "system", "developer")), "<|message|>")),
            *(Tag((end,)) for end in _ENDS),
        ),
        notes="Send a message of the commentary channel to the tool. Its content is one JSON object.",
    )


def _reasoning_headers() -> Iterator[tuple[Part, ...]]:
    """Yield the headers of reasoning. Of two channels, the last one is used. The recipient may be the user."""
    for role in _ROLES:
        yield (*role, _ANALYSIS, *_MESSAGE)
        yield (*role, *_CHANNEL, _PADDING, _ANALYSIS, *_MESSAGE)
        yield (*role, _ANALYSIS, *_TO, _USER, *_MESSAGE)
    yield ("<|start|>assistant", *_TO, _USER, _PADDING, _ANALYSIS, *_MESSAGE)


def _headers(recipient: Part) -> tuple[tuple[Part, ...], ...]:
    """Return the headers of a message to `recipient`, which follows the channel, or precedes it after the role.

    Models also write the channel twice, before and after the recipient.
    """
    after_channel = [(*role, *_CHANNEL, *_TO, recipient) for role in _ROLES]
    in_role = ("<|start|>assistant", *_TO, recipient)
    before_channel = [(*header, _PADDING, *_CHANNEL) for header in (*after_channel, in_role)]
    return tuple((*header, *_MESSAGE) for header in (*after_channel, *before_channel))


def inkling() -> Dialect:
    """Return the dialect of Inkling. A token tells whether a message contains a call, text or reasoning.

    `<|message_model|>get_weather<|content_invoke_tool_json|>{"name": "get_weather", "args": {...}}<|end_message|>`

    The header and the JSON both contain the name. The name in the JSON is used. Instead of the token that ends a
    message, the token that ends the turn may follow. Source: the parsers of inference servers. The chat template of the
    model was not available.
    """
    message, end, stop = "<|message_model|>", "<|end_message|>", "<|content_model_end_sampling|>"
    invoke, text, reasoning = "<|content_invoke_tool_json|>", "<|content_text|>", "<|content_thinking|>"
    call = json_calls(end, ends=(message,))
    begins: tuple[tuple[Part, ...], ...] = ((message, GAP, NAME, GAP), (message, GAP), ())
    return Dialect(
        id="inkling",
        openers=tuple(Opener((*begin, invoke), call, tag_parts=0) for begin in begins),
        write_call=lambda name, arguments: f"{message}{name}{invoke}{compact({'name': name, 'args': arguments})}{end}",
        reserved=("<|message_", "<|content_", end),
        tags=(
            Tag((message, text)),
            Tag((text,)),
            *(Tag((*begin, reasoning), closings=(end, stop), before=(message,)) for begin in ((message,), ())),
            Tag((end,)),
            Tag((stop,)),
        ),
    )


def functionary_v32() -> Dialect:
    """Return the dialect of functionary v3.2. Each message begins with its recipient. `all` means the user.

    A turn consists of messages like `>>>get_weather`, a line end, and `{"city": "Paris"}`. The prompt contains the
    `>>>` of the first message. The line of its recipient therefore looks like prose. So only names of declared tools
    are read as recipients. Source: the chat template of meetkai/functionary-small-v3.2.
    """
    return Dialect(
        id="functionary_v32",
        openers=(),
        openers_for=lambda names: _addressed(">>>", names) + _named_lines(names, "start"),
        write_call=name_and_json(">>>", "\n"),
        reserved=(">>>",),
        reserved_patterns=((r"\n", r"[ \t\r\n]{0,32}\{"),),
        tags=(Tag((">>>all", LINE_END)), Tag(("all", LINE_END), where="start")),
        auto=False,
    )


def glm4_lines() -> Dialect:
    """Return the dialect of GLM-4-0414, as mlx-swift-lm reads it: the name of a declared tool on a line, and then JSON.

    Nothing else marks a call. So only names of declared tools are read.
    """
    return Dialect(
        id="glm4_lines",
        openers=(),
        openers_for=lambda names: _named_lines(names, "line_start"),
        write_call=name_and_json("", "\n"),
        reserved_patterns=((r"\n", r"[ \t\r\n]{0,32}\{"),),
        auto=False,
    )


def _named_lines(names: tuple[str, ...], where: Where) -> tuple[Opener, ...]:
    """Return the openers of lines with a name. Names with the same first letter share one, to compile fewer markers."""
    known = [name for name in names if name != "all"]
    return tuple(
        opener
        for first in dict.fromkeys(name[0] for name in known)
        for opener in _addressed(first, tuple(name[1:] for name in known if name[0] == first), where)
    )


def _addressed(first: str, rests: tuple[str, ...], where: Where = "anywhere") -> tuple[Opener, ...]:
    """Return the opener of a line that consists of `first` and one of `rests`. Returns () if there are no `rests`."""
    parts = (first, OneOf(rests), BLANKS, LINE_END, SPACES)
    return (Opener(parts, _read_addressed, ahead=("{",), where=where),) if rests else ()


def _read_addressed(span: Span) -> Generator[None, None, None]:
    """Read one call. The marker contains the name of the tool."""
    name = span.marker.strip(" \t\r\n").removeprefix(">>>")
    return bare(NamedCall(identify=lambda word, declared: Identity(name)), ">>>")(span)
