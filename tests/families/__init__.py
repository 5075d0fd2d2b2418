"""Describes every dialect to the property tests, with one module for each family.

The tables below combine the `FAMILY` of each module. A new dialect is one more entry in one of the modules.
"""

from __future__ import annotations

import importlib
import pkgutil

from tests.families.base import CLOSED_AGAIN, ENDS_OF_TURN, Family, Marker, Tag, after_call

_FAMILIES: list[Family] = [
    importlib.import_module(f"{__name__}.{module.name}").FAMILY
    for module in pkgutil.iter_modules(__path__)
    if module.name != "base"
]

MARKUP: dict[str, tuple[str, ...]] = {id: texts for family in _FAMILIES for id, texts in family.markup.items()}
"""Fragments of the markers of each dialect and texts that look like them, by id."""

MARKERS: dict[str, tuple[Marker, ...]] = {id: markers for family in _FAMILIES for id, markers in family.markers.items()}
"""The markers of each dialect, by its id."""

TEMPLATE_TAGS: dict[str, tuple[Tag, ...]] = {
    key: (*after_call(*ENDS_OF_TURN, *CLOSED_AGAIN.get(key, ())), *family.tags.get(key, ()))
    for family in _FAMILIES
    for key in family.markers
}
"""The tags of the template of each dialect that are no calls."""

ENVELOPES: frozenset[str] = frozenset().union(*(family.envelopes for family in _FAMILIES))
"""Dialects in which a call is a JSON object that names the tool and its arguments."""

PLAIN: frozenset[str] = frozenset().union(*(family.plain for family in _FAMILIES))
"""Dialects in which names and keys have to be plain words."""

WITHOUT_BRACES: frozenset[str] = frozenset().union(*(family.without_braces for family in _FAMILIES))
"""Dialects in which the name of a tool has no brace."""
