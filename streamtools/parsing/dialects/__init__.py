"""The ways in which models write calls, as a table."""

from __future__ import annotations

from streamtools.parsing.dialects.base import Dialect
from streamtools.parsing.dialects.hash_marker import hash_marker
from streamtools.parsing.dialects.tilde_fence import tilde_fence

__all__ = ["DEFAULT_DIALECTS", "DIALECTS", "Dialect", "hash_marker", "tilde_fence"]

DIALECTS: dict[str, Dialect] = {dialect.id: dialect for dialect in (hash_marker(), tilde_fence())}
"""Every dialect by its id."""

DEFAULT_DIALECTS = ("hash_marker", "tilde_fence")
"""Those that are armed where nobody chooses."""
