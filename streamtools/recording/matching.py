"""Which recorded request is asked again, and if none is, what the nearest one has that this one has not.

Both are compared as they may be written down: without credentials, bodies of JSON by value and not by spelling.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from streamtools.recording.format import Request

FIELDS = ("method", "url", "body")
Match: TypeAlias = Collection[str] | Callable[[Request, Request], bool]
"""Which of `FIELDS` have to be equal, or a function of what is asked and what was recorded."""

_SHOWN = 60  # characters of a value in a message
_COUNTED = 1000  # differences; behind them a request is as far away as any


class Difference(NamedTuple):
    """Where two requests differ, and what each has there, as it is shown in a message."""

    path: str
    asked: str
    recorded: str

    def __str__(self) -> str:
        return f"{self.path}: {self.asked} was asked, {self.recorded} is recorded"


class Nearest(NamedTuple):
    """Which recorded request, from 0, is the most like the one that is asked, and how they differ."""

    position: int
    differences: list[Difference]


def title(request: Request | None) -> str:
    """Return what a message calls a request."""
    return "any request" if request is None else f"{request.method} {request.url}"


def matcher(match: Match) -> Callable[[Request, Request], bool]:
    """Return what tells whether a recorded request is asked; raise ValueError for fields that do not exist."""
    if callable(match):
        return match
    wrong = [match] if isinstance(match, str) else [each for each in match if each not in FIELDS]
    if wrong:
        raise ValueError(f"match names fields, of {', '.join(FIELDS)}, and not {wrong[0]!r}")
    fields = tuple(match)
    return lambda asked, recorded: next(differences(asked, recorded, fields), None) is None


def differences(asked: Request, recorded: Request, fields: Sequence[str] = FIELDS) -> Iterator[Difference]:
    """Yield what differs in these fields; nothing if the requests match."""
    if "method" in fields and asked.method.upper() != recorded.method.upper():
        yield Difference("method", asked.method, recorded.method)
    if "url" in fields and asked.url != recorded.url:
        yield Difference("url", *_excerpts(asked.url, recorded.url))
    if "body" in fields:
        yield from _differences("body", _body(asked), _body(recorded))


def nearest(asked: Request, recorded: Iterable[Request | None]) -> Nearest | None:
    """Return the request that is the most like `asked`, the first of several, and how it differs."""
    best: tuple[tuple[bool, bool, int], int, list[Difference]] | None = None
    for index, request in enumerate(recorded):
        if request is not None:
            found = list(itertools.islice(differences(asked, request), _COUNTED))
            fields = {each.path for each in found}
            far = ("url" in fields, "method" in fields, len(found))
            if best is None or far < best[0]:
                best = (far, index, found)
    return None if best is None else Nearest(*best[1:])


def _body(request: Request) -> Any:
    return {"base64": request.body_base64} if request.body_base64 else request.body


def _differences(path: str, asked: Any, recorded: Any) -> Iterator[Difference]:
    if isinstance(asked, dict) and isinstance(recorded, dict):
        for key in [*asked, *(key for key in recorded if key not in asked)]:
            where = f"{path}.{key}" if key.isidentifier() else f"{path}[{json.dumps(key, ensure_ascii=False)}]"
            yield from _differences(where, asked.get(key, _MISSING), recorded.get(key, _MISSING))
    elif isinstance(asked, list) and isinstance(recorded, list):
        for index, (one, other) in enumerate(itertools.zip_longest(asked, recorded, fillvalue=_MISSING)):
            yield from _differences(f"{path}[{index}]", one, other)
    elif isinstance(asked, str) and isinstance(recorded, str):
        if asked != recorded:
            yield Difference(path, *_excerpts(asked, recorded))
    elif asked != recorded or isinstance(asked, bool) is not isinstance(recorded, bool):  # 1 == True, but in Python
        yield Difference(path, _shown(asked), _shown(recorded))


_MISSING = object()


def _excerpts(one: str, other: str) -> tuple[str, str]:
    """Return two different strings as JSON, short, from a little before the place where they begin to differ."""
    same = next((at for at, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), None)
    start = max(0, (min(len(one), len(other)) if same is None else same) - _SHOWN // 3)
    return _excerpt(one, start), _excerpt(other, start)


def _excerpt(text: str, start: int = 0) -> str:
    start = 0 if len(text) <= _SHOWN else start
    cut = text[start : start + _SHOWN]
    before, behind = "…" if start else "", "…" if start + _SHOWN < len(text) else ""
    return before + json.dumps(cut, ensure_ascii=False) + behind


def _shown(value: Any) -> str:
    if value is _MISSING:
        return "nothing"
    if isinstance(value, str):
        return _excerpt(value)
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
