"""Messages of `application/vnd.amazon.eventstream`, as AWS writes them."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any
from zlib import crc32


def message(payload: bytes, headers: Mapping[str, str]) -> bytes:
    """Return one message. All headers are strings."""
    written = b""
    for name, value in headers.items():
        key, text = name.encode(), value.encode()
        written += bytes([len(key)]) + key + b"\x07" + struct.pack(">H", len(text)) + text
    prelude = struct.pack(">II", 16 + len(written) + len(payload), len(written))
    body = prelude + struct.pack(">I", crc32(prelude)) + written + payload
    return body + struct.pack(">I", crc32(body))


def event(name: str, value: Any) -> bytes:
    """Return a message with one event."""
    headers = {":event-type": name, ":content-type": "application/json", ":message-type": "event"}
    return message(json.dumps(value).encode(), headers)


def exception(name: str, value: Any) -> bytes:
    """Return a message with an exception."""
    headers = {":exception-type": name, ":content-type": "application/json", ":message-type": "exception"}
    return message(json.dumps(value).encode(), headers)
