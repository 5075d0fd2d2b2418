"""UI events to the wire: encoders for front ends, sans-IO.

Each function returns an `Encoder` for one response. `outputs.asgi`, which sends them, needs the extra `web` and is
imported by its own name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Literal, TypeAlias

from streamtools.outputs.encoder import Encoder
from streamtools.outputs.native import NativeEncoder

__all__ = ["FORMATS", "Encoder", "Format", "make_encoder", "native"]


def native(*, framing: Literal["sse", "ndjson"] = "sse", exclude: Collection[str] = ()) -> Encoder:
    """Return an encoder of the events themselves, as JSON.

    `framing` is `"sse"`, where each event carries its type as name and its `seq` as id, or `"ndjson"`. `exclude` names
    types of events that the reader does not get. Raises ValueError for a value that is not allowed.
    """
    return NativeEncoder(framing=framing, exclude=exclude)


FORMATS: dict[str, Callable[[], Encoder]] = {"native": native}
"""What makes the encoder of each format, as it is without options."""

Format: TypeAlias = str | Callable[[], Encoder] | Encoder
"""A format by its name, a function that makes an encoder, or an encoder."""


def make_encoder(format: Format) -> Encoder:
    """Return an encoder for one response. Raises ValueError for a name that is none of a format."""
    if isinstance(format, str):
        if format not in FORMATS:
            raise ValueError(f"format is one of {', '.join(FORMATS)}, or makes an encoder, and not {format!r}")
        return FORMATS[format]()
    return format() if callable(format) else format
