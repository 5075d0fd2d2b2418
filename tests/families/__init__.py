"""What the property tests have to know of each dialect: one module for each family of dialects.

`MARKUP`, `MARKERS` and the other tables below are put together of the `FAMILY` of every module of this package, so that
a new dialect is one more entry in one file.
"""

from __future__ import annotations

import importlib
import pkgutil

from tests.families.base import CLOSED_AGAIN, Family, Marker, Tag, ends_of_turn

_FAMILIES: list[Family] = [
    importlib.import_module(f"{__name__}.{module.name}").FAMILY
    for module in pkgutil.iter_modules(__path__)
    if module.name != "base"
]

MARKUP: dict[str, tuple[str, ...]] = {key: each for family in _FAMILIES for key, each in family.markup.items()}
"""What the markers of each dialect are made of, and what looks like them, by the dialect's id."""

MARKERS: dict[str, tuple[Marker, ...]] = {key: each for family in _FAMILIES for key, each in family.markers.items()}
"""The markers of each dialect, by its id."""

TEMPLATE_TAGS: dict[str, tuple[Tag, ...]] = {
    key: (*ends_of_turn(*CLOSED_AGAIN.get(key, ())), *family.tags.get(key, ()))
    for family in _FAMILIES
    for key in family.markers
}
"""The tags of its template that are no calls, for a dialect that has some."""

ENVELOPES: frozenset[str] = frozenset().union(*(family.envelopes for family in _FAMILIES))
"""Dialects in which a call is a JSON object that names the tool and its arguments."""

PLAIN: frozenset[str] = frozenset().union(*(family.plain for family in _FAMILIES))
"""Dialects in which names and keys have to be plain words."""
