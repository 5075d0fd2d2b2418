"""Read the body of a request, so that it can be looked through, and leave out what cannot be read.

A body is unpacked (gzip and deflate, declared or not), and then is JSON, the parts of a form with files
(`multipart/form-data`), or text. Of a part is written what it is called, and what it holds: `{"name", "filename",
"type", "value"}`, without the boundary, which is another each time. What is none of these, such as an image, a sound,
an archive, and what is packed in another way or grows larger than `LARGEST`, is left out by `leave_out`, which says so.
"""

from __future__ import annotations

import base64
import contextlib
import re
import zlib
from collections.abc import Callable, Iterable
from email.message import Message
from email.parser import BytesParser
from email.policy import compat32
from email.utils import collapse_rfc2231_value
from typing import Any

import msgspec

from streamtools.recording.credentials import read_json
from streamtools.recording.format import Request

LARGEST = 16 * 1024 * 1024
"""Bytes of a body that is unpacked, and of one whose parts are read. Providers take up to 20 MB, packed by nobody."""

_LONG = re.compile(rb"(?:\A|[\r\n])content-[a-z-]{1,40}+:(?:[^\r\n]|\r?\n[ \t]|\r[ \t]){1024}", re.IGNORECASE)
"""A header of a part that is too long to be real; `email` takes quadratic time for the parameters of one."""

_BOM = b"\xef\xbb\xbf"
_FORM = "application/x-www-form-urlencoded"
_PACKED = {"gzip": [31], "x-gzip": [31], "deflate": [15, -15]}  # with zlib's head or without: servers take either

Headers = Iterable[tuple[str, str]]


def is_form(headers: Headers) -> bool:
    """Tell whether a body is declared to be a form, written like the query of a URL."""
    several = _values(headers, "content-type")  # where headers of one name have been joined
    return any(each.partition(";")[0].strip().lower() == _FORM for each in several)


def body_fields(headers: Headers, content: bytes) -> dict[str, Any]:
    """Return the field of a request that holds this body, as it is: `body` if it can be read, or `body_base64`."""
    if not content:
        return {}
    fields = list(headers)
    plain = _unpack(content, [each.strip().lower() for each in _values(fields, "content-encoding")])
    if plain is not None:
        with contextlib.suppress(ValueError):
            return {"body": read_json(plain.removeprefix(_BOM))}
        with contextlib.suppress(ValueError):
            return {"body": split_parts(fields, plain) if is_multipart(fields) else plain.decode()}
    return {"body_base64": base64.b64encode(content if plain is None else plain).decode()}


def is_multipart(headers: Headers) -> bool:
    return any(each.strip().lower().startswith("multipart/") for each in _values(headers, "content-type"))


def split_parts(headers: Headers, content: bytes) -> list[dict[str, Any]]:
    """Return the parts of a body that has some; raise ValueError for one that is not what its headers say."""
    declared = " ".join([value for name, value in headers if name.lower() == "content-type"][-1].split())
    head = b"Content-Type: %b\r\n\r\n" % declared.encode("latin-1", "replace")
    if len(content) > LARGEST or _LONG.search(head + content):
        raise ValueError("the body is too large, or the head of a part")
    try:
        return _parts(BytesParser(policy=compat32).parsebytes(head + content))
    except RecursionError:
        raise ValueError("the parts are too deep") from None


def leave_out(request: Request) -> Request:
    """Return a request without the parts of its body that cannot be read; `left_out` names them."""
    if request.body_base64:
        size = len(base64.b64decode(request.body_base64))
        kind = request.headers.get("content-type", "no declared type").partition(";")[0]
        return msgspec.structs.replace(
            request, body_base64="", left_out=f"{size} bytes of {kind}, which cannot be looked through"
        )
    names: list[str] = []

    def without(part: dict[str, Any]) -> dict[str, Any]:
        names.append(str(part.get("name", "")))
        size = len(base64.b64decode(part["base64"]))
        return {name: value for name, value in part.items() if name != "base64"} | {"left_out": f"{size} bytes"}

    body = change_unread(request, without)
    if not names:
        return request
    left_out = f"{len(names)} of its parts, which cannot be looked through: {', '.join(names)}"
    return msgspec.structs.replace(request, body=body, left_out=left_out)


def change_unread(request: Request, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    """Return the body of a request, with each of its parts changed that could not be read."""

    def walk(value: Any) -> Any:
        if not isinstance(value, list):
            return value
        parts = [
            each | {"value": walk(each["value"])} if isinstance(each, dict) and "value" in each else each
            for each in value
        ]
        return [
            change(each) if isinstance(each, dict) and isinstance(each.get("base64"), str) else each for each in parts
        ]

    return walk(request.body) if is_multipart(request.headers.items()) else request.body


def _values(headers: Headers, wanted: str) -> list[str]:
    """Return the values of the last header of this name, which may be several that have been joined."""
    values = [value for name, value in headers if name.lower() == wanted]
    return values[-1].split(",") if values else []


def _unpack(content: bytes, codings: list[str]) -> bytes | None:
    """Return what is packed, None if it cannot be unpacked; what is not declared to be packed may be it."""
    declared = [each for each in codings if each not in ("", "identity")]
    if not declared:
        return next(filter(None, (_inflate(content, [31]), _inflate(content, [15]))), content)
    plain: bytes | None = content
    for coding in reversed(declared):
        plain = None if plain is None else _inflate(plain, _PACKED.get(coding, []))
    return plain


def _inflate(content: bytes, ways: list[int]) -> bytes | None:
    for way in ways:
        stream = zlib.decompressobj(way)
        with contextlib.suppress(zlib.error):
            plain = stream.decompress(content, LARGEST)
            if stream.eof and not stream.unused_data:
                return plain
    return None


def _parts(message: Message) -> list[dict[str, Any]]:
    if not message.is_multipart() or message.defects:
        raise ValueError("the body has no parts")
    return [_part(each) for each in message.get_payload() if isinstance(each, Message)]


def _part(message: Message) -> dict[str, Any]:
    fields = {
        "name": message.get_param("name", header="content-disposition"),
        "filename": message.get_param("filename", header="content-disposition"),
        "type": message.get_content_type() if "content-type" in message else None,
    }
    part: dict[str, Any] = {key: collapse_rfc2231_value(value) for key, value in fields.items() if value is not None}
    if message.is_multipart():
        return part | {"value": _parts(message)}
    payload = message.get_payload(decode=True)
    assert isinstance(payload, bytes)
    read = body_fields([(name, str(value)) for name, value in message.items()], payload)
    if "body_base64" in read:
        return part | {"base64": read["body_base64"]}
    return part | {"value": read.get("body", "")}
