"""Compares a request with recorded requests, and explains how it differs from the most similar one.

Requests are compared in their recorded form, without credentials. JSON bodies are compared by value. `compare` also
compares the events of a test in `streamtools.testing`.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

from streamtools.recording.files import RecordedExchange
from streamtools.recording.format import RecordedRequest

FIELDS = ("method", "url", "body")
Match: TypeAlias = Collection[str] | Callable[[RecordedRequest, RecordedRequest], bool]
"""The fields that must be equal, or a function that compares the sent request with a recorded one."""

_json = json.JSONEncoder(ensure_ascii=False).encode
_EXCERPT_LENGTH = 60
_MAX_LISTED = 5  # the number of differences that an error message lists
_MAX_COUNTED = 1000  # up to this many differences of a request are counted, to find the most similar one

MISSING = object()
"""Stands for a value that exists on only one of the compared sides."""


class Difference(NamedTuple):
    """A difference between two values: its path, and the part of each value at this path. One may be `MISSING`."""

    path: str
    expected: Any
    actual: Any


def compare(
    expected: Any, actual: Any, path: str = "", *, read: Callable[[Any, Any], tuple[Any, Any]] | None = None
) -> Iterator[Difference]:
    """Yield the differences between two values. The members of mappings and the items of lists are compared separately.

    If `read` is given, it is first applied to the two values, and to each pair of inner values. It returns the values
    to compare instead. `True` differs from 1, although they are equal in Python. A missing value differs from every
    value, even from an object that is equal to all others.
    """
    if read is not None:
        expected, actual = read(expected, actual)
    if isinstance(expected, Mapping) and isinstance(actual, Mapping):
        for key in {**expected, **actual}:
            inner = f"{path}.{key}".lstrip(".") if str(key).isidentifier() else f"{path}[{_json(key)}]"
            yield from compare(expected.get(key, MISSING), actual.get(key, MISSING), inner, read=read)
    elif isinstance(expected, list | tuple) and isinstance(actual, list | tuple):
        for index, (one, other) in enumerate(itertools.zip_longest(expected, actual, fillvalue=MISSING)):
            yield from compare(one, other, f"{path}[{index}]", read=read)
    else:
        differ = expected is MISSING or actual is MISSING or expected != actual
        if differ or isinstance(expected, bool) is not isinstance(actual, bool):
            yield Difference(path, expected, actual)


def make_matcher(match: Match) -> Callable[[RecordedRequest, RecordedRequest], bool]:
    """Return a function that compares a sent request with a recorded one. Raises ValueError for unknown fields."""
    if callable(match):
        return match
    if unknown := [match] if isinstance(match, str) else [field for field in match if field not in FIELDS]:
        raise ValueError(
            f"`match` must be a list of field names from {', '.join(FIELDS)}, or a function, got {unknown[0]!r}."
        )
    fields = frozenset(match)
    return lambda sent, recorded: next(differences(sent, recorded, fields), None) is None


def describe(request: RecordedRequest | None) -> str:
    """Return the method and URL of a request, for use in messages."""
    return "any request" if request is None else f"{request.method} {request.url}"


def differences(sent: RecordedRequest, recorded: RecordedRequest, fields: Collection[str] = FIELDS) -> Iterator[str]:
    """Yield one line of text for each difference in `fields`.

    If the body was not recorded, its size is compared. `sent` has both the body and its size (`left_out`).
    """
    by_size = bool(recorded.left_out)
    for path, one, other in compare(_compared(sent, fields, by_size), _compared(recorded, fields, by_size)):
        texts = ["nothing" if value is MISSING else _json(value) for value in (one, other)]
        start = max(0, common_prefix_length(*texts) - _EXCERPT_LENGTH // 3)
        yield "{}: {} was sent, {} is recorded".format(path, *(_excerpt(text, start) for text in texts))


def explain(
    sent: RecordedRequest, unplayed: Iterable[RecordedExchange], played: Collection[RecordedExchange]
) -> str | None:
    """Return the end of an error message: how `sent` differs from the most similar recorded request.

    Returns None if no request was recorded.
    """
    by_exchange = {
        exchange: list(itertools.islice(differences(sent, exchange.request), _MAX_COUNTED))
        for exchange in (*unplayed, *played)
        if exchange.request is not None
    }
    if not by_exchange:
        return None

    def distance(exchange: RecordedExchange) -> tuple[bool, int]:
        # An exchange that differs only in the body is nearer than one with another method or URL.
        listed = by_exchange[exchange]
        return bool(listed) and not listed[0].startswith("body"), len(listed)

    nearest = min(by_exchange, key=distance)
    name = f"{nearest} (already played)" if nearest in played else str(nearest)
    if not by_exchange[nearest]:
        why = "which was already played" if nearest in played else "but `match` rejected it"
        return f"; it equals {nearest}, {why}"
    lines = [f"    {difference}" for difference in by_exchange[nearest][:_MAX_LISTED]]
    if len(by_exchange[nearest]) > _MAX_LISTED:
        lines.append(f"    and {len(by_exchange[nearest]) - _MAX_LISTED} more")
    return "\n".join([f"; the nearest is {name}:", *lines])


def _compared(request: RecordedRequest, fields: Collection[str], by_size: bool) -> dict[str, Any]:
    """Return the values to compare. Bytes are in a dict with the key `base64`, a size in one with `left_out`."""
    body = {"left_out": request.left_out} if by_size else request.body
    if not by_size and request.body_base64:
        body = {"base64": request.body_base64}
    values = {"method": request.method.upper(), "url": request.url, "body": body}
    return {name: value for name, value in values.items() if name in fields}


def common_prefix_length(one: str, other: str) -> int:
    """Return the length of the longest common prefix of two strings."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _excerpt(text: str, start: int) -> str:
    """Return a part of `text`. A long text is cut at `start`, shortly before the first difference."""
    start = 0 if len(text) <= _EXCERPT_LENGTH else start
    end = start + _EXCERPT_LENGTH
    return ("…" if start else "") + text[start:end] + ("…" if end < len(text) else "")
