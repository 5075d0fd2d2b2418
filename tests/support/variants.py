"""Variants of dialects with options that change their markers, as dialects with ids, so that the laws check them."""

from __future__ import annotations

from dataclasses import replace

from streamtools.parsing.dialects import DIALECTS, Dialect, hash_marker, tilde_fence

VARIANTS: dict[str, Dialect] = {
    "hash_marker_k7": replace(hash_marker(nonce="k7"), id="hash_marker_k7"),
    "tilde_fence_k7": replace(tilde_fence(nonce="k7"), id="tilde_fence_k7"),
}
"""Variants with a nonce."""

KNOWN = {**DIALECTS, **VARIANTS}
"""All dialects and variants that the laws are checked for."""
