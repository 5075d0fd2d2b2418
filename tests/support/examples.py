"""The number of hypothesis examples for slow properties."""

from __future__ import annotations

from hypothesis import settings


def examples(share: float) -> settings:
    """Return settings with this share of the examples of the profile."""
    return settings(max_examples=max(1, round(share * settings().max_examples)))
