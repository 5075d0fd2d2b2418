"""What the providers' SDKs make of a stream, objects and exceptions, made into what was on the wire again. Sans-IO.

No SDK is imported; an object is known by what it can do. So there is one reader for each format, and the objects of an
SDK give the same events as the bytes that they were made of, fields that the SDK does not know included. What a field
was not sent as is left out, because in some formats null says something else than nothing.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import Any

import msgspec

from streamtools.errors import UnreadableSource
from streamtools.events import SourceError
from streamtools.sources.frames import Frame
from streamtools.sources.words import bounded, read_fault, read_status
from streamtools.surrogates import whole

_ENVELOPE = {"event", "data", "id", "retry"}
_BODIES = ("body", "error", "details")  # of OpenAI and Anthropic and what is made after them, of Ollama, of Google


def as_frame(item: object) -> Frame | None:
    """Return the frame that `item` was, or None for what is neither an event of a decoder nor an object of an SDK.

    What a provider sent and cannot be written as JSON again, because it nests too deep, is a frame that nobody can
    decode. Raises `UnreadableSource` for an object whose parts are no values of JSON: no provider sent that.
    """
    data, event = getattr(item, "data", None), getattr(item, "event", None)
    if isinstance(data, str) and isinstance(event, str):  # a ServerSentEvent of httpx-sse or httpx2
        return Frame(whole(data).encode(), event or "message")
    try:
        value = _plain(item)
        if value is None:
            return None
        event, data = value.get("event"), value.get("data")
        if isinstance(event, str) and isinstance(data, str | dict) and _ENVELOPE.issuperset(value):  # such an event
            return Frame(whole(data).encode() if isinstance(data, str) else _write(data), event or "message")
        return Frame(_write(value))
    except (ValueError, RecursionError):
        return Frame(f"{type(item)!r} that cannot be written as JSON".encode())
    except Exception as error:
        raise UnreadableSource(f"{type(item)!r} cannot be written as JSON: {error}") from error


def raised_error(error: Exception) -> SourceError | None:
    """Return what the provider says through an exception of its SDK, or None if that tells of the transport alone."""
    body = next((each for name in _BODIES if isinstance(each := _get(error, name), dict | list | str) and each), None)
    status = read_status(_get(error, "status_code")) or read_status(_get(error, "code"))
    if body is None and status is None:
        return None
    if isinstance(body, str):
        with contextlib.suppress(ValueError, RecursionError):
            body = json.loads(body)
    fault = read_fault(body)
    message = fault.message or _get(error, "message")
    return fault._replace(
        message=bounded(message) if isinstance(message, str) else "",
        kind=fault.kind or ("" if fault.message else name_of(error)),
        status=status or fault.status,
    ).event()


def name_of(error: Exception) -> str:
    """Return the type of an exception, for the log; its text may hold an address with a key, or what a user wrote."""
    module = type(error).__module__
    return type(error).__qualname__ if module == "builtins" else f"{module}.{type(error).__qualname__}"


def _get(error: Exception, name: str) -> object:
    with contextlib.suppress(Exception):  # it may be a property that fails
        return getattr(error, name, None)
    return None


def _plain(item: object) -> dict[str, Any] | None:
    """Return the dict that `item` is or was made of."""
    value: object = None
    if isinstance(item, Mapping):
        value = dict(item)
    elif callable(dump := getattr(item, "model_dump", None)):  # pydantic: nearly all SDKs
        value = dump(mode="json", by_alias=True, exclude_unset=True, warnings=False)
    elif callable(dump := getattr(item, "to_dict", None)):
        value = dump()
    return value if isinstance(value, dict) else None


def _write(value: dict[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(value, enc_hook=_inner)
    except UnicodeEncodeError:  # half of a surrogate pair, whose other half may come with the next object
        return json.dumps(msgspec.to_builtins(value, enc_hook=_inner)).encode()


def _inner(value: object) -> dict[str, Any]:
    """Return what an object inside of a dict was made of."""
    plain = _plain(value)
    if plain is None:
        raise TypeError(f"{type(value)!r} is no value of JSON")
    return plain
