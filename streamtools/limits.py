"""Size limits on what a model sends: how large a call, a frame or a text may become before it is refused with a code.

Each bound is for one answer. What a client may make a server hold is bounded where it is read (`serving`).
"""

from __future__ import annotations

import msgspec


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds on what one model may make us hold. What goes beyond is reported once and skipped without being stored."""

    call: int = 2 * 1024 * 1024
    """Characters of one call, its markers included."""
    depth: int = 64
    """Nesting of JSON."""
    digits: int = 300
    """Digits of one JSON number."""
    values: int = 100_000
    """Values in one JSON text."""
    calls: int = 32
    """Calls in one turn."""
    frame: int = 16 * 1024 * 1024
    """Bytes of one SSE event or one line of NDJSON. Latitude repeats the whole conversation in each event."""
    text: int = 16 * 1024 * 1024
    """Characters of one turn that are kept for comparison with the provider's completed text."""


DEFAULT_LIMITS = Limits()

TOOL_NAME = 64
"""Characters of a tool's name: as many as OpenAI and Anthropic both accept. Names that a model writes are read beyond
that (96 in markers, 128 in a grammar's own syntax, 256 in JSON): a wrong one is answered by those that there are.
"""
