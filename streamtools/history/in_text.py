"""Calls in text, whose results have no place of their own in a request: they are words of the user's.

Here native calls become such calls, for a request that declares no tools; results become a user's message; a user's
message may answer a call; and what looks like a call, and was none, is made to be none for the next model either.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any

import msgspec

from streamtools.calls import NATIVE, ToolCall
from streamtools.history.messages import fit
from streamtools.history.parts import Assistant, CallResult, Message, Part, Results, System, TextPart, Thought, User
from streamtools.json_values import compact, count_values
from streamtools.limits import DEFAULT_LIMITS
from streamtools.parsing.dialects import Dialect
from streamtools.parsing.dialects.neutralising import neutralise, neutralise_all


def calls_as_text(
    history: Iterable[Message], dialect: Dialect | None = None, *, reserved: Sequence[Dialect] = ()
) -> list[Message]:
    """Return the history with native calls written into the text, for a request that declares no tools.

    They are written as `dialect` writes them, as if the model had, and answered in the same form; without one, as a
    line that no dialect takes for a call, in which nothing begins that the `reserved` ones read.
    """
    written: list[Message] = []
    for message in history:
        if isinstance(message, Assistant) and message.calls:
            in_text = list(message.in_text)
            parts: list[Part] = []
            texts: list[str] = []
            for part in message.parts:
                if isinstance(part, TextPart):
                    texts.append(part.text)
                elif isinstance(part, ToolCall):
                    texts.append(_as_text(part, dialect, reserved))
                    if dialect is not None:
                        in_text.append(msgspec.structs.replace(part, dialect=dialect.id, raw=texts[-1]))
                else:
                    parts.append(part)
            said = (*parts, TextPart("\n".join(filter(None, texts))))
            message = replace(message, parts=said, in_text=tuple(in_text), response_id=None)
        elif isinstance(message, Results):
            kind = dialect.id if dialect else None
            moved = (each._replace(dialect=kind) if each.dialect == NATIVE else each for each in message.results)
            message = Results(tuple(moved))
        written.append(message)
    return written


def _as_text(call: ToolCall, dialect: Dialect | None, reserved: Sequence[Dialect]) -> str:
    if dialect is None:
        return neutralise(f"(called {call.name} with {compact(call.arguments)})", reserved)
    return dialect.write_call(fit(call.name), neutralise_all(call.arguments, (dialect, *reserved)))


def tell_in_text(history: Iterable[Message], dialects: Sequence[Dialect]) -> list[Message]:
    """Return the history with the answers to calls in text as a user's message, one block each in its dialect's form.

    They are data: what looks like structure in them is neutralised, unless their tool says otherwise, and so it is in
    native calls and the answers to them where there are `dialects`: a model that quotes one must not call thereby. What
    the user says next stands in the same message, because templates of many models want user and assistant to
    alternate.
    """
    written: list[Message] = []
    text = ""  # of the answers, if the last message is one of those
    for message in history:
        if isinstance(message, User) and text:
            given = message.content
            if isinstance(given, str):
                written[-1] = replace(message, content=f"{text}\n\n{given}" if given else text)
            else:
                written[-1] = replace(message, content=[{"type": "text", "text": text}, *given])
            text = ""
        elif isinstance(message, Results):
            native = tuple(each for each in message.results if each.dialect == NATIVE)
            if dialects:
                native = tuple(_neutralised(each, dialects) for each in native)
            text = "\n".join(_block(result, dialects) for result in message.results if result.dialect != NATIVE)
            written += [Results(native)] if native else []
            written += [User(text)] if text else []
        else:
            if isinstance(message, Assistant) and message.calls and dialects:
                message = replace(message, parts=tuple(_plain(each, dialects) for each in message.parts))
            written += [] if message == System("") else [message]
            text = ""
    return written


def _plain(part: Part, dialects: Sequence[Dialect]) -> Part:
    """Return a native call without structure in what it was restored to for its tool, nor in what a client names it."""
    if not isinstance(part, ToolCall):
        return part
    raw, name, id = (neutralise(text, dialects) for text in (part.raw, part.name, part.id))
    return msgspec.structs.replace(part, raw=raw, arguments=neutralise_all(part.arguments, dialects), name=name, id=id)


def plain_quotations(history: Sequence[Message], dialects: Sequence[Dialect]) -> Sequence[Message]:
    """Return a history that holds native calls without structure in what the model said: there it quoted something.

    So the next model, in whose text these dialects are read, calls nothing when it repeats that. A turn with calls in
    its text stays as it is: one of which they are known, or whose results the user's message behind it begins with.
    """
    if not dialects or not any(isinstance(each, Assistant) and each.calls for each in history):
        return history
    plain = list(history)
    for place, message in enumerate(history):
        if isinstance(message, Assistant) and not message.in_text:
            said = plain_said(message, dialects)
            if said != message and not _begins_with_result(history[place + 1 : place + 2], dialects):
                plain[place] = said
    return plain


def _begins_with_result(behind: Sequence[Message], dialects: Sequence[Dialect]) -> bool:
    if not behind or not isinstance(said := behind[0], User):
        return False
    content, name = said.content, "NAME"
    text = content if isinstance(content, str) else str(content[0].get("text", "")) if content else ""
    openings = (_opening(each, name).replace(name, r"[\w-]{1,64}") for each in dialects)
    return any(re.match(each, text) for each in openings)


def plain_said(message: Assistant, dialects: Sequence[Dialect]) -> Assistant:
    """Return what the model said without structure in its texts, and in thoughts that are not signed."""
    return replace(message, parts=tuple(_plain_said(each, dialects) for each in message.parts))


def plain_between(parts: Iterable[Part], calls: Iterable[ToolCall], dialects: Sequence[Dialect]) -> list[Part]:
    """Return parts of a turn without structure in their texts, but for these calls, which stand there in order."""
    left = [call.raw for call in reversed([*calls])]
    plain: list[Part] = []
    for part in parts:
        if isinstance(part, TextPart):
            at, written = 0, list[str]()
            while left and (found := part.text.find(left[-1], at)) >= 0:
                written += neutralise(part.text[at:found], dialects), left[-1]
                at = found + len(left.pop())
            part = part._replace(text="".join([*written, neutralise(part.text[at:], dialects)]))
        plain.append(part)
    return plain


def _plain_said(part: Part, dialects: Sequence[Dialect]) -> Part:
    if isinstance(part, TextPart):
        return part._replace(text=neutralise(part.text, dialects))
    if not isinstance(part, Thought) or part.signature is not None or part.redacted:
        return part
    own = part.own
    if own is not None:  # the field in which it came
        data = {key: neutralise(each, dialects) if isinstance(each, str) else each for key, each in own.data.items()}
        own = own._replace(data=data)
    return part._replace(text=neutralise(part.text, dialects), own=own)


def answered_by_user(history: Iterable[Message], dialects: Sequence[Dialect]) -> list[Message]:
    """Return the history without the calls in text that a user's message behind them answers: they are not open.

    It answers a call if it holds the opening of a result of that tool's as the call's dialect writes it, once for each
    call. Whatever else the user says answers none.
    """
    checked: list[Message] = []
    turn: int | None = None  # the place of the last that has calls in text
    answered: set[str] = set()
    for message in history:
        if isinstance(message, Assistant):
            turn, answered = (len(checked) if message.in_text else None), set()
        elif isinstance(message, Results):
            answered.update(result.call_id for result in message.results)
        elif isinstance(message, User) and turn is not None and isinstance(said := checked[turn], Assistant):
            left = [call for call in said.in_text if call.id not in answered]
            found = _answered_in(message.content, left, dialects)
            checked[turn] = replace(said, in_text=tuple(call for call in said.in_text if call.id not in found))
        checked.append(message)
    return checked


def _answered_in(content: str | list[dict[str, Any]], calls: list[ToolCall], dialects: Sequence[Dialect]) -> set[str]:
    """Return the ids of the calls whose results a user's message holds."""
    text = content if isinstance(content, str) else "\n".join(str(part.get("text", "")) for part in content)
    found: set[str] = set()
    used: Counter[str] = Counter()
    for call in calls:
        dialect = next((each for each in dialects if each.id == call.dialect), None)
        if dialect is not None:
            opening = _opening(dialect, fit(call.name))
            used[opening] += 1
            if len(re.findall(opening, text)) >= used[opening]:
                found.add(call.id)
    return found


def _opening(dialect: Dialect, name: str) -> str:
    """Return the pattern of what stands before the text of a result, however its white space is written."""
    written = (dialect.write_result(name, text) for text in ("a", "1", "{}", "[]"))
    shared = takewhile(lambda each: len(set(each)) == 1, zip(*written, strict=False))
    opening = "".join(each[0] for each in shared).strip()
    end = r"(?![\w-])" if re.search(r"[\w-]$", opening) else ""  # no other tool's, whose name begins like this one's
    return r"\s+".join(map(re.escape, opening.split())) + end


def _block(result: CallResult, dialects: Sequence[Dialect]) -> str:
    name, text = fit(result.name), _neutralise(result, dialects)
    dialect = next((each for each in dialects if each.id == result.dialect), None)
    return f"{name}: {text}" if dialect is None else dialect.write_result(name, text)


def _neutralised(result: CallResult, dialects: Sequence[Dialect]) -> CallResult:
    """Return a result without structure; of one that held some beside its names, nothing but the text is left."""
    text, named = _neutralise(result, dialects), neutralise_all([result.name, result.call_id], dialects)
    result = result._replace(name=named[0], call_id=named[1])
    beside = [list(result.parts), result.own.data if result.own else None]
    if text == result.text and (not result.neutralise or neutralise_all(beside, dialects) == beside):
        return result
    return result._replace(text=text, parts=(), own=None)


def _neutralise(result: CallResult, dialects: Sequence[Dialect]) -> str:
    """Return the text of a result without what a model that repeats it would call."""
    text = result.text
    if not result.neutralise:
        return text
    if "\\" in text and count_values(text.encode(errors="surrogatepass")) > DEFAULT_LIMITS.values:
        text = text.replace("\\u", "\\\u2060u")  # too many to be read, so that its escapes say nothing
    elif "\\" in text:  # structure may be hidden in escapes of JSON, which then goes without those that are not needed
        with contextlib.suppress(ValueError, RecursionError):
            value = json.loads(text)
            neutralised = neutralise(compact(neutralise_all(value, dialects)), dialects)
            if neutralised != compact(value):
                return neutralised
    return neutralise(text, dialects)
