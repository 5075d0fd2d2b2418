"""Compares a request with recorded requests, and explains how it differs from the most similar one.

Requests are compared in their recorded form, without credentials. JSON bodies are compared by value.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from streamtools.recording.files import RecordedExchange
from streamtools.recording.format import RecordedRequest

FIELDS = ("method", "url", "body")
Match: TypeAlias = Collection[str] | Callable[[RecordedRequest, RecordedRequest], bool]
"""The fields that must be equal, or a function that compares the sent request with a recorded one."""

_EXCERPT_LENGTH = 60
_MAX_LISTED = 5  # the number of differences that an error message lists
_MAX_COUNTED = 1000  # differences to count per request when searching for the most similar one
_MISSING = object()  # stands for a value that only one of the two requests has


class SentRequest(NamedTuple):
    """A sent request in two recorded forms: with its body, and with only the body's size."""

    with_body: RecordedRequest
    with_size: RecordedRequest

    def in_form_of(self, recorded: RecordedRequest) -> RecordedRequest:
        """Return the form to compare with `recorded`: size only, if the recording left out the body."""
        return self.with_size if recorded.left_out else self.with_body


def make_matcher(match: Match) -> Callable[[RecordedRequest, RecordedRequest], bool]:
    """Return a function that compares a sent request with a recorded one. Raises ValueError for unknown fields."""
    if callable(match):
        return match
    if unknown := [match] if isinstance(match, str) else [field for field in match if field not in FIELDS]:
        raise ValueError(
            f"`match` must be a list of field names from {', '.join(FIELDS)}, or a function, got {unknown[0]!r}."
        )
    fields = tuple(match)
    return lambda sent, recorded: next(differences(sent, recorded, fields), None) is None


def describe(request: RecordedRequest | None) -> str:
    """Return the method and URL of a request, for use in messages."""
    return "any request" if request is None else f"{request.method} {request.url}"


def differences(sent: RecordedRequest, recorded: RecordedRequest, fields: Sequence[str] = FIELDS) -> Iterator[str]:
    """Yield one line of text for each difference in `fields`."""
    if "method" in fields and sent.method.upper() != recorded.method.upper():
        yield _describe_difference("method", sent.method, recorded.method)
    if "url" in fields and sent.url != recorded.url:
        yield _describe_difference("url", *_excerpts(sent.url, recorded.url))
    if "body" in fields:
        yield from _compare_values("body", _body(sent), _body(recorded))


def explain(
    sent: SentRequest, unplayed: Iterable[RecordedExchange], played: Collection[RecordedExchange]
) -> str | None:
    """Return the end of an error message: how `sent` differs from the most similar recorded request.

    Returns None if no request was recorded.
    """
    by_exchange = {
        exchange: list(itertools.islice(differences(sent.in_form_of(exchange.request), exchange.request), _MAX_COUNTED))
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


def _body(request: RecordedRequest) -> Any:
    """Return the body for a comparison. Other bytes, or only a size, are returned in a dict."""
    if request.body is None and (form := request.body_base64 or request.left_out):
        return {"left_out" if request.left_out else "base64": form}
    return request.body


def _describe_difference(path: str, sent: str, recorded: str) -> str:
    return f"{path}: {sent} was sent, {recorded} is recorded"


def _compare_values(path: str, sent: Any, recorded: Any) -> Iterator[str]:
    if isinstance(sent, dict) and isinstance(recorded, dict):
        for key in [*sent, *(key for key in recorded if key not in sent)]:
            key_path = f"{path}.{key}" if key.isidentifier() else f"{path}[{json.dumps(key, ensure_ascii=False)}]"
            yield from _compare_values(key_path, sent.get(key, _MISSING), recorded.get(key, _MISSING))
    elif isinstance(sent, list) and isinstance(recorded, list):
        for index, (left, right) in enumerate(itertools.zip_longest(sent, recorded, fillvalue=_MISSING)):
            yield from _compare_values(f"{path}[{index}]", left, right)
    elif isinstance(sent, str) and isinstance(recorded, str):
        if sent != recorded:
            yield _describe_difference(path, *_excerpts(sent, recorded))
    elif sent != recorded or isinstance(sent, bool) is not isinstance(recorded, bool):  # because 1 == True in Python
        yield _describe_difference(path, _shown(sent), _shown(recorded))


def common_prefix_length(first: str, second: str) -> int:
    """Return the length of the longest common prefix of two strings."""
    different = (index for index, pair in enumerate(zip(first, second, strict=False)) if pair[0] != pair[1])
    return next(different, min(len(first), len(second)))


def _excerpts(first: str, second: str) -> tuple[str, str]:
    """Return an excerpt of each string as JSON. Both start shortly before the first difference."""
    start = max(0, common_prefix_length(first, second) - _EXCERPT_LENGTH // 3)
    return _excerpt(first, start), _excerpt(second, start)


def _excerpt(text: str, start: int = 0) -> str:
    start = 0 if len(text) <= _EXCERPT_LENGTH else start
    cut = text[start : start + _EXCERPT_LENGTH]
    begin, end = "…" if start else "", "…" if start + _EXCERPT_LENGTH < len(text) else ""
    return begin + json.dumps(cut, ensure_ascii=False) + end


def _shown(value: Any) -> str:
    if value is _MISSING:
        return "nothing"
    if isinstance(value, str):
        return _excerpt(value)
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _EXCERPT_LENGTH else text[:_EXCERPT_LENGTH] + "…"
