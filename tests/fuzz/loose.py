"""Reads any text as JSON. Most mutations of JSON are invalid, and would only test the decoder."""

from __future__ import annotations

import json
import re
from typing import Any

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"?|[{}\[\]]|[^\s{}\[\]",:]+', re.DOTALL)
_DEEPEST = 200


def read(text: str) -> Any:
    """Return a value for any text. Several values become a list."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    whole: list[Any] = []
    open_: list[list[Any]] = [whole]
    kinds = ["["]
    for token in _TOKEN.findall(text):
        if token in "{[":
            if len(open_) < _DEEPEST:
                open_.append([])
                kinds.append(token)
        elif token in "}]":
            if len(open_) > 1:
                _close(open_, kinds)
        else:
            open_[-1].append(_scalar(token))
    while len(open_) > 1:
        _close(open_, kinds)
    return whole[0] if len(whole) == 1 else whole


def _close(open_: list[list[Any]], kinds: list[str]) -> None:
    members = open_.pop()
    pairs = zip(members[::2], members[1::2], strict=False)
    open_[-1].append({str(key): value for key, value in pairs} if kinds.pop() == "{" else members)


def _scalar(token: str) -> Any:
    try:
        return json.loads(token)
    except (ValueError, RecursionError):
        return token.strip('"')
