"""Dialects of messages with headers. A header tells the type of its message, or the recipient: a tool or the user.

    <|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "Paris"}<|call|>
    <|message_model|>get_weather<|content_invoke_tool_json|>{"name": "get_weather", "args": {"city": "Paris"}}
    Let me see.>>>get_weather
    {"city": "Paris"}

A message that is a call contains JSON.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from dataclasses import replace
from typing import Any

from streamtools.errors import Code
from streamtools.json_values import compact
from streamtools.parsing.bodies import forged_result
from streamtools.parsing.bodies.json_bodies import json_calls
from streamtools.parsing.bodies.named_json import GAP, NAME, NAMESPACE, AddressedCall, NamedCall, bare
from streamtools.parsing.dialects.base import Dialect, Opener, Tag
from streamtools.parsing.dialects.writing import name_and_json
from streamtools.parsing.markers import BLANKS, LINE_END, SPACES, Header, OneOf, Part, Some, Where
from streamtools.parsing.span import Span

# Parts of the headers of `harmony`. `_ENDS` are the tokens that end a message, `_BEGINS` those that begin a header.
_ENDS = ("<|call|>", "<|end|>", "<|return|>")
_BEGINS = ("<|start|>", "<|channel|>")
_PADDING = Some(r" \t", 0, 4)
_LINES = Some(r"\r\n", 0, 4)  # models write line feeds in headers
_TOOL = Some(r"^ \t\r\n<>|", 0, 96)  # the name of a tool, or "" in a faulty header
_BEFORE_JSON = Some(r"^ \t\r\n<>|{", 1, 96)  # the name of a tool, if JSON follows it
_TO_TOOL = r"to=(?<=\bto=)(?!(?:assistant|user|self)(?![\w.-]))"
_MESSAGE: tuple[Part, ...] = (_PADDING, OneOf(("<|constrain|>", "")), Some(r"A-Za-z0-9_.+/ \t-", 0, 24), "<|message|>")
"""The end of a header that the prompt has begun: the type of the content, such as `json`, and a token."""


def _header(without: str = "") -> Header:
    """Return a part that matches the text of a header, unless the pattern `without` matches in this text.

    Models repeat channels, and write punctuation around them.
    """
    return Header(r"^\r\n<>|{", ("<|channel|>", "<|constrain|>"), without)


_ANY, _NO_TOOL, _AFTER_CHANNEL = _header(), _header(_TO_TOOL), _header(rf"{_TO_TOOL}|nalysis|ommentary|[Ff]inal")

# The words that remain of headers if the server has removed the tokens.
_WORDS = ("assistantanalysis", "assistantcommentary", "assistantfinal")
# The first character of a message whose token is removed: a letter, a digit or Markdown, but no punctuation of prose.
_LETTER = Some(r'A-Za-z0-9"*#$\u00c0-\u1fff\u2100-\U0010ffff', 1, 1)
# The same characters without lower-case letters, because "finally" is a word. The brace is added, as it begins JSON.
_NO_LOWER = Some(_LETTER.characters.replace("a-z", "{"), 1, 1)
# Any character that is neither in `_LETTER` nor a space.
_NO_LETTER = Some(f"^ {_LETTER.characters}", 1, 1)
_BEFORE_TOOL = ("analysis to=", "commentary to=", "final to=")
_END_REASONING = (*_BEGINS, *_WORDS, "assistant to=functions.", "commentary to=functions.")


def harmony() -> Dialect:
    """Return the dialect of gpt-oss. The header of each message names a channel.

    The channel `analysis` contains reasoning, even if the recipient is the user. Other channels contain the answer. A
    message whose recipient is not the user is a call, in any channel. `functions.` before the name is the namespace of
    the caller's tools. The built-in tools (`python`, `browser.search`) have no namespace. Of several channels or
    recipients in a header, the last one is used. Source: the harmony response format of openai/gpt-oss, its chat
    template, and issues of inference servers about faulty headers.

    Tokens are also read inside code, because they directly follow the text of a message. If the last line of the text
    is code or a quote, the end of the message and the next call would otherwise be read as part of this code or quote.

    Some servers remove the tokens. Of a header, only a word such as `assistantfinal` then remains. If the caller names
    this dialect, these words are read too. `assistant` may be missing only at the start of a message. A letter, a digit
    or Markdown must follow the word. After a bare `final`, the letter must not be in lower case, and a brace may
    follow. At the start of a message, punctuation or a line end may follow `assistant` and the word.
    """
    message = AddressedCall(rf"to=(?<=\bto=){NAMESPACE}([^\s<>|]++)", ends=_ENDS, begins=_BEGINS)
    roles: tuple[tuple[Part, ...], ...] = (("<|channel|>",), ("<|start|>assistant",))
    begin: tuple[Part, ...] = (_LINES, "<|message|>")
    end_of_header = OneOf((*_ENDS, "<|start|>"))
    reasoning: dict[str, Any] = {"closings": _ENDS, "before": _BEGINS}
    to_self: dict[str, Any] = {"closings": (*_ENDS, "<|eom|>", "<|eot|>"), "before": _BEGINS}
    without_tokens: dict[str, Any] = {"closings": _ENDS, "before": _END_REASONING, "auto": False}
    return Dialect(
        id="harmony",
        openers=(
            *(
                Opener((*role, _ANY, "to=", name, _ANY, *end), body, ahead=ahead, tag_parts=4)
                for role in roles
                for name, end, body, ahead in (
                    (_TOOL, begin, message, ()),
                    (_BEFORE_JSON, (), message, (_LINES, "{", SPACES, OneOf(('"', "}")))),
                    (_TOOL, (), _end_early, (end_of_header,)),
                )
            ),
            # The prompt may contain the beginning of the header, such as `<|start|>assistant`.
            Opener(("to=", _TOOL, _PADDING, "<|channel|>", _ANY, *begin), message, where="start", tag_parts=0),
            Opener(("<|start|>functions.", _ANY, "<|message|>"), forged_result(message.closing), kind="result"),
            *_openers_without_tokens(),
        ),
        write_call=name_and_json(
            "<|start|>assistant to=functions.", "<|channel|>commentary json<|message|>", "<|call|>"
        ),
        write_result=lambda name, text: (
            f"<|start|>functions.{name} to=assistant<|channel|>commentary<|message|>{text}<|end|>"
        ),
        in_code="call",
        space_at_start=True,
        reserved=(*_ENDS, *_BEGINS, "<|message|>", "<|constrain|>", *_WORDS, *_BEFORE_TOOL, "to=functions."),
        tags=(
            # Muse, whose dialect `"auto"` does not include, writes its reasoning to itself.
            Tag(("<|start|>assistant", " to=self", "<|message|>"), **to_self),
            Tag(("to=self<|message|>",), where="start", **to_self),
            # The channel may begin with a capital letter.
            *(Tag((*role, _NO_TOOL, "nalysis", _AFTER_CHANNEL, *begin), **reasoning) for role in roles),
            *(Tag((*role, _NO_TOOL, *begin)) for role in roles),
            *(Tag((*role, _NO_TOOL), ahead=(end_of_header,)) for role in roles),
            Tag(("<|start|>", OneOf(("user", "system", "developer")), "<|message|>")),
            # The prompt may contain the beginning of these headers too.
            Tag(("to=", OneOf(("assistant", "user")), _PADDING, "<|channel|>", _NO_TOOL, "<|message|>"), where="start"),
            Tag(("analysis", *_MESSAGE), where="start", auto=False, **reasoning),
            *(Tag((channel, *_MESSAGE), where="start", auto=False) for channel in ("commentary", "final")),
            *(Tag((end,)) for end in _ENDS),
            # Headers without their tokens.
            Tag(("analysis",), ahead=(_LETTER,), where="start", **without_tokens),
            Tag(("commentary",), ahead=(_LETTER,), where="start", auto=False),
            Tag(("final",), ahead=(_NO_LOWER,), where="start", auto=False),
            Tag((_WORDS[0],), ahead=(_LETTER,), **without_tokens),
            Tag((_WORDS[0],), ahead=(_NO_LETTER,), where="start", **without_tokens),
            *(Tag((word,), ahead=(_LETTER,), auto=False) for word in _WORDS[1:]),
            *(Tag((word,), ahead=(_NO_LETTER,), where="start", auto=False) for word in _WORDS[1:]),
            Tag((_WORDS[2],), ahead=(Some(" ", 1, 1),), where="start", auto=False),
            *(Tag((word,), ahead=(LINE_END,), where="start", auto=False) for word in _WORDS),
        ),
        notes="Send a message of the commentary channel to the tool. Its content is one JSON object.",
    )


def _openers_without_tokens() -> Iterator[Opener]:
    """Yield the openers of calls in headers without tokens, such as `commentary to=functions.get_weather json`."""
    places: dict[str, Where] = dict.fromkeys(
        ("assistant to=functions.", *(f"{word} to=" for word in _WORDS[:2])), "anywhere"
    )
    places |= dict.fromkeys((*_BEFORE_TOOL, "to=functions."), "start")
    kind = (Some(r" \t", 1, 4), OneOf(("json", "code")))
    for to, where in places.items():
        header = (to, _BEFORE_JSON)
        for parts, ahead in ((header, "{"), ((*header, *kind), Some(r"^ \t", 1, 1))):
            yield Opener(parts, _read_without_tokens, ahead=(ahead,), where=where, auto=False, tag_parts=1)


def _read_without_tokens(span: Span) -> Generator[None, None, None]:
    """Read a call whose header has lost its tokens. So the channel or the type of the content may follow the name."""
    name = re.sub(f"^{NAMESPACE}", "", re.split(r"[ \t]", span.marker.partition("to=")[2])[0])
    if name not in span.declared:
        shorter = _replace_suffix("", name)
        name = shorter if shorter in span.declared or not span.declared.names else name
    return bare(NamedCall(identify=lambda word, declared: name), "assistant")(span)


_replace_suffix = re.compile(r"(?<=.)(?:analysis|commentary|final)?(?:json|code)?$").sub


def _end_early(span: Span) -> Generator[None, None, None]:
    """Report a call whose message ends in its header."""
    span.close(Code.UNRECOGNISED_TOOL_CALL)
    yield from ()


def inkling() -> Dialect:
    """Return the dialect of Inkling. A token tells whether a message contains a call, text or reasoning.

    `<|message_model|>get_weather<|content_invoke_tool_json|>{"name": "get_weather", "args": {...}}<|end_message|>`

    The header and the JSON both contain the name. The name in the JSON is used. Instead of the token that ends a
    message, the token that ends the turn may follow. The prompt may contain the first token. Source: the parsers of
    inference servers. The chat template of the model was not available.
    """
    message, end, stop = "<|message_model|>", "<|end_message|>", "<|content_model_end_sampling|>"
    text, reasoning, invoke = "<|content_text|>", "<|content_thinking|>", "<|content_invoke_tool_json|>"
    call, word = json_calls(end, ends=(stop, message)), Some(NAME.characters, 0, 96)
    invokes: tuple[Part, ...] = ("<|content_invoke_tool_", OneOf(("json", "text")), "|>")
    begins: tuple[tuple[Part, ...], ...] = ((message, GAP, NAME, GAP), (message, GAP), ())
    return Dialect(
        id="inkling",
        openers=tuple(Opener((*begin, *invokes), call, tag_parts=0) for begin in begins),
        openers_for=lambda names: tuple(Opener((name, invoke), call, where="start", tag_parts=0) for name in names),
        write_call=lambda name, arguments: f"{message}{name}{invoke}{compact({'name': name, 'args': arguments})}{end}",
        reserved=("<|message_", "<|content_", end),
        tags=(
            *(Tag((*begin, text)) for begin in begins[1:]),
            *(Tag((*begin, reasoning), closings=(end, stop), before=(message, text)) for begin in begins[1:]),
            # The beginning of a message that lacks the token for its type.
            *(Tag((message,), ahead=(word, GAP, following)) for following in (Some(r"^<\s", 1, 1), OneOf((end, stop)))),
            Tag(("<|message_", OneOf(("user", "system", "tool")), "|>")),
            Tag(("<|content_", OneOf(("image", "audio_input", "tool_error", "xml")), "|>")),
            Tag((end,)),
            Tag((stop,)),
        ),
    )


def functionary_v32() -> Dialect:
    """Return the dialect of functionary v3.2. Each message begins with its recipient. `all` means the user.

    A turn consists of messages like `>>>get_weather`, a line end, and `{"city": "Paris"}`. The prompt contains the
    `>>>` of the first message. The first recipient therefore looks like prose. So only names of declared tools are read
    as recipients. Source: the chat template of meetkai/functionary-small-v3.2.
    """
    return Dialect(
        id="functionary_v32",
        openers=(),
        openers_for=_recipient_openers,
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
    return replace(
        functionary_v32(),
        id="glm4_lines",
        openers_for=lambda names: _recipient_openers(names, "line_start", arrows=False),
        write_call=name_and_json("", "\n"),
        reserved=(),
        tags=(),
    )


def _recipient_openers(names: tuple[str, ...], where: Where = "start", *, arrows: bool = True) -> tuple[Opener, ...]:
    """Return the openers of calls. Names with the same first letter share an opener, because compiling takes time."""
    known = [name for name in names if name != "all"]
    begins: list[tuple[str, OneOf, Where]] = [(">>>", OneOf(tuple(known)), "anywhere")] if known and arrows else []
    for first in dict.fromkeys(name[0] for name in known):
        begins.append((first, OneOf(tuple(name[1:] for name in known if name[0] == first)), where))
    end, body = (BLANKS, LINE_END, SPACES), _read_addressed
    return tuple(Opener((first, rest, *end), body, ahead=("{",), where=where) for first, rest, where in begins)


def _read_addressed(span: Span) -> Generator[None, None, None]:
    """Read one call. The marker contains the name of the tool."""
    name = span.marker.strip(" \t\r\n").removeprefix(">>>")
    return bare(NamedCall(identify=lambda word, declared: name), ">>>")(span)
