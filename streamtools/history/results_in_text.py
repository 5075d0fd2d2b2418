"""Results of calls in text, which have no place of their own in a request: they are words of the user's.

`tell_in_text` writes them so, and `answered_by_user` finds those that a caller has written so himself.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any

from streamtools.calls import NATIVE, ToolCall
from streamtools.history.formats.turns import fit
from streamtools.history.messages import Assistant, CallResult, Message, Results, System, User
from streamtools.json_values import compact
from streamtools.parsing.dialects import Dialect
from streamtools.parsing.dialects.base import neutralise


def tell_in_text(history: Iterable[Message], dialects: Sequence[Dialect]) -> list[Message]:
    """Return the history with the answers to calls in text as a user's message, one block each in its dialect's form.

    They are data: what looks like structure in them is disarmed, unless their tool says otherwise. What the user says
    next stands in the same message, because templates of many models want user and assistant to alternate.
    """
    told: list[Message] = []
    text = ""  # of the answers, if the last message is one of those
    for message in history:
        if isinstance(message, User) and text:
            told[-1] = User(_join(text, message.content))
            text = ""
        elif isinstance(message, Results):
            native = tuple(result for result in message.results if result.dialect == NATIVE)
            text = "\n".join(_block(result, dialects) for result in message.results if result.dialect != NATIVE)
            told += [Results(native)] if native else []
            told += [User(text)] if text else []
        else:
            told += [] if message == System("") else [message]
            text = ""
    return told


def answered_by_user(history: Iterable[Message], dialects: Sequence[Dialect]) -> list[Message]:
    """Return the history without the calls in text that a user's message behind them answers: they are not open.

    It answers a call if it holds the opening of a result of that tool's as the call's dialect writes it, once for each
    call. Whatever else the user says answers none.
    """
    checked: list[Message] = []
    turn: tuple[int, Assistant] | None = None  # the last that has calls in text, and where it stands
    answered: set[str] = set()
    for message in history:
        if isinstance(message, Assistant):
            turn, answered = ((len(checked), message) if message.in_text else None), set()
        elif isinstance(message, Results):
            answered.update(result.call_id for result in message.results)
        elif isinstance(message, User) and turn is not None:
            place, said = turn
            told = _told(message.content, [call for call in said.in_text if call.id not in answered], dialects)
            said = replace(said, in_text=tuple(call for call in said.in_text if call.id not in told))
            checked[place], turn = said, (place, said)
        checked.append(message)
    return checked


def _told(content: str | list[dict[str, Any]], calls: list[ToolCall], dialects: Sequence[Dialect]) -> set[str]:
    """Return the ids of the calls whose results a user's message holds."""
    text = content if isinstance(content, str) else "\n".join(str(part.get("text", "")) for part in content)
    told: set[str] = set()
    used: Counter[str] = Counter()
    for call in calls:
        dialect = next((each for each in dialects if each.id == call.dialect), None)
        if dialect is not None:
            opening = _opening(dialect, fit(call.name))
            used[opening] += 1
            if len(re.findall(opening, text)) >= used[opening]:
                told.add(call.id)
    return told


def _opening(dialect: Dialect, name: str) -> str:
    """Return the pattern of what stands before the text of a result, however its white space is written."""
    written = (dialect.write_result(name, text) for text in ("a", "1", "{}", "[]"))
    shared = takewhile(lambda each: len(set(each)) == 1, zip(*written, strict=False))
    opening = "".join(each[0] for each in shared).strip()
    end = r"(?![\w-])" if re.search(r"[\w-]$", opening) else ""  # no other tool's, whose name begins like this one's
    return r"\s+".join(map(re.escape, opening.split())) + end


def _join(text: str, content: str | list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    if isinstance(content, str):
        return f"{text}\n\n{content}" if content else text
    return [{"type": "text", "text": text}, *content]


def _block(result: CallResult, dialects: Sequence[Dialect]) -> str:
    name = fit(result.name)
    text = neutralise(_unescape(result.text), dialects) if result.neutralise else result.text
    dialect = next((each for each in dialects if each.id == result.dialect), None)
    return f"{name}: {text}" if dialect is None else dialect.write_result(name, text)


def _unescape(text: str) -> str:
    """Return JSON text without escapes that are not needed, so that nothing is hidden in them; other text as it is."""
    if "\\" not in text:
        return text
    try:
        return compact(json.loads(text))
    except (ValueError, RecursionError):
        return text
