"""Which dialects a parser reads: chosen by the caller, by the name of the model, or `"auto"`.

`"auto"` means all dialects with an unmistakable marker. A model that makes native calls must not obey a call in text
that it quotes. So if the caller names no dialect, none is enabled for such a model. Text that looks like a call stays
text, and a near miss is reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from operator import attrgetter
from typing import TypeAlias

from streamtools.errors import did_you_mean
from streamtools.parsing.dialects.base import Dialect, NearMiss, Opener, Tag, pieces
from streamtools.parsing.dialects.model_names import dialects_for, families_for
from streamtools.parsing.dialects.table import DIALECTS

Dialects: TypeAlias = "Sequence[str | Dialect] | Dialect | str | None"
"""Ids and `Dialect` objects, one or several. `"auto"` among them adds all others of `"auto"`.

None means `"auto"` until a native call arrives. `()` means no dialect.
"""

_NATIVE = "no dialect is enabled for a model with native calls"
_NOT_NAMED = "the dialect is not enabled"


def choose_dialects(dialects: Dialects) -> tuple[Dialect, ...]:
    """Return the chosen dialects. Raises ValueError for an unknown id, and if an id occurs twice."""
    if dialects is None or dialects == "auto":
        return _auto()
    if isinstance(dialects, ByName):
        return tuple(dialects)
    if isinstance(dialects, str | Dialect):
        dialects = (dialects,)
    chosen: dict[str, Dialect] = {}
    for choice in dialects:
        if choice == "auto":
            continue
        dialect = DIALECTS.get(choice) if isinstance(choice, str) else choice
        if not isinstance(dialect, Dialect):
            raise ValueError(f"no dialect {choice!r}{_suggestion(choice)}")
        if dialect.id in chosen:
            raise ValueError(f"two dialects have the id {dialect.id!r}")
        chosen[dialect.id] = dialect
    others = [dialect for dialect in _auto() if dialect.id not in chosen] if "auto" in dialects else []
    return (*chosen.values(), *(_beside(dialect, chosen.values()) for dialect in others))


def _suggestion(choice: object) -> str:
    if not isinstance(choice, str):
        return "; dialects are ids and `Dialect` objects"
    similar = [f"'{id}'" for id in DIALECTS if choice and choice.lower() in id]
    suggestion = f"; did you mean {' or '.join(similar[:3])}?" if similar else did_you_mean(choice, DIALECTS)
    return suggestion or f"; there are {', '.join(DIALECTS)}"


@cache
def _auto() -> tuple[Dialect, ...]:
    """Return the dialects of `"auto"`, each without its calls that have no unmistakable marker."""
    return tuple(
        replace(
            dialect,
            openers=tuple(map(_opener_for_auto, filter(attrgetter("auto"), dialect.openers))),
            openers_for=None,
            unmarked=() if dialect.auto == "marked" else dialect.unmarked,
            tags=tuple(map(_tag_for_auto, filter(attrgetter("auto"), dialect.tags))),
            in_code="text",
        )
        for dialect in DIALECTS.values()
        if dialect.auto
    )


def _opener_for_auto(opener: Opener) -> Opener:
    return opener if isinstance(opener.auto, bool) else replace(opener, where=opener.auto)


def _tag_for_auto(tag: Tag) -> Tag:
    """Let a tag of reasoning count only where `<think>` does. The header of a channel counts anywhere."""
    return replace(tag, where="start") if tag.closings and not tag.before else tag


def _beside(dialect: Dialect, named: Iterable[Dialect]) -> Dialect:
    """Return a dialect of `"auto"` without the tags with which an opener of a `named` dialect begins."""
    openers = [pieces(opener.parts + opener.ahead) for each in named for opener in each.openers]

    def begins_opener(tag: Tag) -> bool:
        parts = pieces(tag.parts)
        return any(parts == opener[: len(parts)] for opener in openers)

    if not any(map(begins_opener, dialect.tags)):
        return dialect
    return replace(dialect, tags=tuple(tag for tag in dialect.tags if not begins_opener(tag)))


class ByName(tuple[Dialect, ...]):
    """Dialects chosen by the name of a model, not by the caller. Like None, they count only without native calls."""

    taught: Dialect | None = None
    """The first dialect of the model that has a marker and that a prompt can teach."""


def for_model(model_name: str, native_tool_calls: bool | None = None) -> ByName | None:
    """Return the dialects that models of this name write, and after them the others of `"auto"`.

    A prompt may teach one of the others. Returns no dialects for a model whose calls are always native, unless
    `native_tool_calls` is False. Returns None if the name is unknown.
    """
    families = families_for(model_name)
    if families and families[0].native and native_tool_calls is not False:
        return ByName()
    known = choose_dialects(dialects_for(model_name))
    if not known:
        return None
    ids = {dialect.id for dialect in known}
    chosen = ByName((*known, *(dialect for dialect in _auto() if dialect.id not in ids)))
    chosen.taught = next((dialect for dialect in known if dialect.auto is True and dialect.teachable), None)
    return chosen


def unnamed(dialects: Dialects) -> bool:
    """Whether the caller has named no dialect."""
    return dialects is None or isinstance(dialects, ByName)


def enabled_dialects(dialects: Dialects, native_tool_calls: bool | None) -> tuple[Dialect, ...]:
    """Return the dialects in which calls are read. Raises as `choose_dialects` does."""
    return () if native_tool_calls and unnamed(dialects) else choose_dialects(dialects)


@cache
def auto_as_near_misses(*, tags: bool = False, says: str = _NATIVE) -> tuple[Dialect, ...]:
    """Return the dialects of `"auto"` with every opener turned into a near miss that `says` why it is no call.

    With `tags`, their tags still count, as they did before the model made its first native call.
    """
    return tuple(
        replace(
            dialect,
            openers=(),
            tags=dialect.tags if tags else (),
            near=tuple(
                NearMiss(opener.parts + opener.ahead, says, opener.where, opener.not_after)
                for opener in dialect.openers
                if opener.kind == "call" and opener.where != "start"
            ),
        )
        for dialect in _auto()
    )


def others_as_near_misses(dialects: Sequence[Dialect]) -> list[Dialect]:
    """Return the other dialects of `"auto"` as near misses. Returns none if no dialect is enabled."""
    ids = {dialect.id for dialect in dialects}
    return [dialect for dialect in auto_as_near_misses(says=_NOT_NAMED) if dialect.id not in ids] if ids else []
