"""Messages whose headers say what they hold, or to whom they go: to a tool, or to the user.

    <|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "Paris"}<|call|>
    <|message_model|>get_weather<|content_invoke_tool_json|>{"name": "get_weather", "args": {"city": "Paris"}}
    Let me see.>>>get_weather
    {"city": "Paris"}

The content of one that is a call is JSON.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

from streamtools.json_values import compact
from streamtools.parsing.bodies.json_bodies import json_calls
from streamtools.parsing.bodies.named_json import GAP, NAME, AddressedCall, Identity, NamedCall, bare
from streamtools.parsing.dialects.base import Dialect, Opener, Tag, ends_of_turn
from streamtools.parsing.markers import BLANKS, LINE_END, SPACES, OneOf, Part, Some, Where
from streamtools.parsing.span import Span

_ENDS = ("<|call|>", "<|end|>", "<|return|>")
_BEGINS = ("<|start|>", "<|channel|>")
_BLANKS = Some(r" \t", 0, 4)
_KIND = (OneOf(("<|constrain|>", "")), Some(r"A-Za-z0-9_.+/ \t-", 0, 24))
_FORMAT: tuple[Part, ...] = (_BLANKS, *_KIND, "<|message|>")
"""The end of a header: what the content is, like `json`, and the token behind which it begins."""
_CHANNEL: tuple[Part, ...] = ("<|channel|>", Some("A-Za-z_-", 1, 16))
_ANALYSIS, _USER = "<|channel|>analysis", OneOf(("assistant", "user"))
_TO: tuple[Part, ...] = (Some(r" \t", 1, 4), "to=")
_ADDRESS = Some(r"^ \t\r\n<>|", 1, 96)
_STARTS: tuple[tuple[Part, ...], ...] = ((), ("<|start|>assistant",))


def harmony() -> Dialect:
    """Return the dialect of gpt-oss: messages, each with a header that names its channel.

    `analysis` is reasoning, also if it is addressed to the user, `final` and every other channel is visible, and a
    message of any channel that is addressed to somebody else is a call. `functions.` before the name is the namespace
    of the caller's tools; the built-in ones (`python`, `browser.search`) go without. Source: the harmony response
    format of openai/gpt-oss, and its template.

    The tokens count in code, too. They follow the text of a message without a line end, so that a fence, a code span or
    a quote in its last line would else hide where it ends, and the call behind it; and the model that writes them
    writes tokens, which are structure wherever they stand.
    """
    message = AddressedCall(r"to=(?:functions\.)?([^ \t\r\n<>|]+)", ends=_ENDS, begins=_BEGINS)
    answer: tuple[Part, ...] = ("<|start|>functions.", _ADDRESS, *_TO, "assistant", _BLANKS, *_CHANNEL, *_FORMAT)
    return Dialect(
        id="harmony",
        openers=(
            *(Opener(header, message, tag=header.index(_ADDRESS) + 1) for header in _headers(_ADDRESS)),
            Opener(("<|start|>assistant", *_TO, _ADDRESS, *_FORMAT), message, tag=4),
            # the prompt has begun the header
            Opener((*_TO[1:], _ADDRESS, _BLANKS, *_CHANNEL, *_FORMAT), message, where="start", tag=0),
            Opener(answer, message.result, kind="result"),
        ),
        write_call=lambda name, arguments: (
            f"<|start|>assistant to=functions.{name}<|channel|>commentary json<|message|>{compact(arguments)}<|call|>"
        ),
        write_result=lambda name, text: (
            f"<|start|>functions.{name} to=assistant<|channel|>commentary<|message|>{text}<|end|>"
        ),
        in_code="call",
        space_at_start=True,
        reserved=(*_ENDS, *_BEGINS, "<|message|>", "<|constrain|>"),
        tags=(
            *(Tag(header, closings=_ENDS, before=_BEGINS) for header in _thoughts()),
            *(Tag((*start, *_CHANNEL, *more, *_FORMAT)) for start in _STARTS for more in ((), (_BLANKS, *_CHANNEL))),
            *(Tag(header) for header in _headers(_USER)),
            # the prompt has begun the header
            Tag((*_TO[1:], _USER, _BLANKS, *_CHANNEL, *_FORMAT), where="start"),
            *(
                Tag((word, *_FORMAT), closings=_ENDS * thinks, before=_BEGINS * thinks, where="start", auto=False)
                for word, thinks in (("analysis", True), ("commentary", False), ("final", False))
            ),
            Tag(("<|start|>", OneOf(("assistant", "user", "system", "developer")), "<|message|>")),
            *(Tag((end,)) for end in _ENDS),
        ),
        notes="Address a message of the commentary channel to the tool; its content is one JSON object.",
    )


def _thoughts() -> Iterator[tuple[Part, ...]]:
    """Yield the headers of reasoning: of two channels the last one counts, and it may be addressed to the user."""
    for start in _STARTS:
        yield (*start, _ANALYSIS, *_FORMAT)
        yield (*start, *_CHANNEL, _BLANKS, _ANALYSIS, *_FORMAT)
        yield (*start, _ANALYSIS, *_TO, _USER, *_FORMAT)
    yield ("<|start|>assistant", *_TO, _USER, _BLANKS, _ANALYSIS, *_FORMAT)


def _headers(recipient: Part) -> tuple[tuple[Part, ...], ...]:
    """Return the headers of a message to a recipient, who stands behind the channel or, in the role, before it.

    Models also name the channel twice, on both sides.
    """
    behind = [(*start, *_CHANNEL, *_TO, recipient) for start in _STARTS]
    between = [(*header, _BLANKS, *_CHANNEL) for header in (*behind, ("<|start|>assistant", *_TO, recipient))]
    return tuple((*header, *_FORMAT) for header in (*behind, *between))


def inkling() -> Dialect:
    """Return the dialect of Inkling, whose messages say what they hold: a call, text, or thoughts.

    `<|message_model|>get_weather<|content_invoke_tool_json|>{"name": "get_weather", "args": {...}}<|end_message|>`

    The name stands in the JSON again, and that is what counts. A token ends the turn, and may do so in the place of the
    one that ends a message. Source: what inference servers read; the template of the model was not at hand.
    """
    message, end, stop = "<|message_model|>", "<|end_message|>", "<|content_model_end_sampling|>"
    invoke, text, thoughts = "<|content_invoke_tool_json|>", "<|content_text|>", "<|content_thinking|>"
    call = json_calls(end, ends=(stop, message))
    begins: tuple[tuple[Part, ...], ...] = ((message, GAP, NAME, GAP), (message, GAP), ())
    return Dialect(
        id="inkling",
        openers=tuple(Opener((*begin, invoke), call, tag=0) for begin in begins),
        write_call=lambda name, arguments: f"{message}{name}{invoke}{compact({'name': name, 'args': arguments})}{end}",
        reserved=("<|message_", "<|content_", end),
        tags=(
            Tag((message, text)),
            Tag((text,)),
            *(Tag((*begin, thoughts), closings=(end, stop), before=(message,)) for begin in ((message,), ())),
            Tag((end,)),
            Tag((stop,)),
        ),
    )


def functionary_v32() -> Dialect:
    """Return the dialect of functionary v3.2: a chain of messages to recipients, `all` being the user.

    `all`, a line end, and `Let me see.>>>get_weather`, a line end, and `{"city": "Paris"}`. The first of them lacks its
    `>>>`, because the template has written it. Such a line looks like prose, so only the names of declared tools count.
    Source: the chat template of meetkai/functionary-small-v3.2.
    """
    return Dialect(
        id="functionary_v32",
        openers=(),
        openers_for=_recipients,
        write_call=lambda name, arguments: f">>>{name}\n{compact(arguments)}",
        reserved=(">>>",),
        unmarked=((r"\n", r"[ \t\r\n]{0,32}\{"),),
        tags=(
            Tag((">>>all", LINE_END)),
            Tag(("all", LINE_END), where="start"),
            *ends_of_turn("<|eot_id|>", "<|eom_id|>"),
        ),
        auto=False,
    )


def _recipients(names: tuple[str, ...]) -> tuple[Opener, ...]:
    """Return the openers; names take time to compile, so all that begin alike stand in one."""
    known = [name for name in names if name != "all"]
    begins: list[tuple[str, OneOf, Where]] = [(">>>", OneOf(tuple(known)), "anywhere")] if known else []
    for first in dict.fromkeys(name[0] for name in known):
        begins.append((first, OneOf(tuple(name[1:] for name in known if name[0] == first)), "start"))
    return tuple(
        Opener((first, rest, BLANKS, LINE_END, SPACES), _read_addressed, ahead=("{",), where=where)
        for first, rest, where in begins
    )


def _read_addressed(span: Span) -> Generator[None, None, None]:
    """Read one call; the marker has held the name."""
    name = span.marker.removeprefix(">>>").rstrip(" \t\r\n")
    return bare(NamedCall(identify=lambda word, declared: Identity(name)), ">>>")(span)
