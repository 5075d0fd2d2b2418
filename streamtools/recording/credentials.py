"""What in a request is a credential, by the name of its header or key.

Whatever is one is not written down where it stands. It is looked for in all the rest, too: a server that refuses a key
repeats it, and a key of a server of one's own has no format by which it could be known.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import unquote, unquote_plus, urlsplit

import msgspec

from streamtools.recording.key_formats import LONGEST

LEAST = 16
"""Characters of a credential that is looked for elsewhere. Shorter ones are often words, where no key is needed."""

MOST = 8192
"""Characters of a credential that are looked for elsewhere; servers take no longer headers."""

DEEPEST = 100
"""Levels of JSON that are looked at, and written down: no request has a tenth of them, and more use up the stack."""

_FORM = "application/x-www-form-urlencoded"

_SECRET = re.compile(
    r"(?:.*[_-])?(?:(?:api|app|access|account|auth|client|private|secret|subscription)[_-]?key"
    r"|[a-z]*(?:token|secret)|passwd|password|authorization|credentials?)",
    re.IGNORECASE,
)
_SECRET_IN_URL = re.compile(r"(?:x-[a-z]+-)?(?:key|sig|signature|auth|code)", re.IGNORECASE)


def is_secret(key: str) -> bool:
    """Tell whether a key is named like one that holds a credential: `api_key`, `X-Auth-Token`, `clientSecret`."""
    return _SECRET.fullmatch(key) is not None


def is_secret_in_url(key: str) -> bool:
    """Tell whether a key of a URL's query, or of a form, escaped or not, is named like one that holds a credential."""
    name = unquote_plus(key)
    return is_secret(name) or _SECRET_IN_URL.fullmatch(name) is not None


def is_form(headers: Iterable[tuple[str, str]]) -> bool:
    """Tell whether a body is declared to be a form, written like the query of a URL."""
    types = [value for name, value in headers if name.lower() == "content-type"]
    several = types[-1].split(",") if types else []  # where headers of one name have been joined
    return any(each.partition(";")[0].strip().lower() == _FORM for each in several)


def read_json(content: bytes) -> Any:
    """Return the JSON value that `content` is; raise ValueError for what is none, or too deep."""
    try:
        return msgspec.json.decode(content)
    except RecursionError:
        raise ValueError("the JSON is too deep") from None


def find_credentials(
    url: str, headers: Iterable[tuple[str, str]], content: bytes = b"", *, body: Any = None
) -> list[str]:
    """Return what a request sends as credentials, if it is long enough to be known for one.

    Its body is `content`, or `body` if that is JSON which has been read. What is too long to be looked for as a whole
    is returned in pieces, up to `MOST` characters.
    """
    fields = list(headers)
    found = [each for name, value in fields if is_secret(name) for each in _in_header(value)]
    parts = urlsplit(url)
    name, _, password = parts.netloc.rpartition("@")[0].partition(":")
    found += [unquote(name), unquote(password), *_in_pairs(parts.query)]
    if is_form(fields):
        found += _in_pairs(content.decode("latin-1"))
    elif content:
        with contextlib.suppress(ValueError):
            found += _in_json(read_json(content))
    found += _in_json(body)
    return list(dict.fromkeys(piece for each in found for piece in _pieces(each) if len(piece) >= LEAST))


def _pieces(text: str) -> list[str]:
    """Return what can be looked for of a text, however it is written."""
    if len(json.dumps(json.dumps(text))) <= LONGEST:
        return [text]
    most = LONGEST // 14  # bytes that one character may have in JSON inside JSON
    return [text[start : start + most] for start in range(0, min(len(text), MOST), most)]


def _in_header(value: str) -> Iterator[str]:
    scheme, _, token = value.partition(" ")
    yield token.strip() or scheme
    if scheme.lower() == "basic":
        try:
            name, _, password = base64.b64decode(token, validate=True).decode("latin-1").partition(":")
        except binascii.Error:
            return
        yield from (name, password)


def _in_pairs(text: str) -> list[str]:
    pairs = (pair.partition("=") for pair in text.split("&"))
    return [unquote_plus(value) for key, _, value in pairs if is_secret_in_url(key)]


def _in_json(value: Any, level: int = 0) -> Iterator[str]:
    if level == DEEPEST:
        return
    if isinstance(value, dict):
        for key, each in value.items():
            if isinstance(each, str):
                if is_secret(key):
                    yield each
            else:
                yield from _in_json(each, level + 1)
    elif isinstance(value, list):
        for each in value:
            yield from _in_json(each, level + 1)
