"""Size limits on data from a model. Larger data is refused with a code.

Limits on data from clients are in `serving`.
"""

from __future__ import annotations

import msgspec


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits on the data of one response. Data beyond a limit is reported once and skipped without being stored."""

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
"""Characters of a tool name that OpenAI and Anthropic both accept. Longer names that a model writes are still read (96
characters in markers, 128 in grammars, 256 in JSON), so that it gets a list of the existing tools."""
