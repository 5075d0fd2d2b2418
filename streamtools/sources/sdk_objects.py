"""Objects of a provider's SDK into the frames that they were decoded from. Sans-IO.

So each format has one reader, and objects give the same events as the bytes, unknown fields of the SDK included.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from streamtools.errors import UnreadableSource
from streamtools.json_values import as_dict, whole
from streamtools.sources.frames import Frame

_ENVELOPE = {"event", "data", "id", "retry"}


def as_frame(item: object) -> Frame | None:
    """Return the frame of an event or an SDK object, or None for any other object.

    Data that nests too deep to be written as JSON becomes a frame that cannot be decoded. Raises `UnreadableSource` for
    an object with parts that are no JSON values: no provider sent it.
    """
    data, event = getattr(item, "data", None), getattr(item, "event", None)
    if isinstance(data, str) and isinstance(event, str):  # a ServerSentEvent of httpx-sse or httpx2
        return Frame(whole(data).encode(), event or "message")
    try:
        value = as_dict(item)
        if value is None:
            return None
        event, data = value.get("event"), value.get("data")
        if (
            isinstance(event, str) and isinstance(data, str | dict) and _ENVELOPE.issuperset(value)
        ):  # an event as a dict
            return Frame(whole(data).encode() if isinstance(data, str) else _write(data), event or "message")
        return Frame(_write(value))
    except (ValueError, RecursionError):
        return Frame(f"{type(item)!r} that cannot be written as JSON".encode())
    except Exception as error:
        raise UnreadableSource(f"{type(item)!r} cannot be written as JSON: {error}") from error


def _write(value: dict[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(value, enc_hook=_inner)
    except UnicodeEncodeError:  # half of a surrogate pair; the next object may have the other half
        return json.dumps(msgspec.to_builtins(value, enc_hook=_inner)).encode()


def _inner(value: object) -> dict[str, Any]:
    """Return the plain data of an object inside a dict."""
    plain = as_dict(value)
    if plain is None:
        raise TypeError(f"{type(value)!r} is no value of JSON")
    return plain
