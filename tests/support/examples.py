"""How many examples a property gets that needs more than others, or takes longer."""

from __future__ import annotations

from hypothesis import settings


def examples(share: float) -> settings:
    """Return the settings for so many times as many examples as the profile has."""
    return settings(max_examples=max(1, round(share * settings().max_examples)))
