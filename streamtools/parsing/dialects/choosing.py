"""Chooses the dialects that a parser reads: by the caller's choice, by the name of the model, or `"auto"`.

`"auto"` enables the dialects whose markers hardly ever occur in ordinary text. If a model makes native calls, a call in
its text may be a quotation, which must not run. So if the caller names no dialect, no dialect is enabled for a model
with native calls. Text that looks like a call is then kept as text, and reported as a near miss.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from typing import TypeAlias

from streamtools.errors import did_you_mean
from streamtools.parsing.dialects.base import Dialect, NearMiss, Tag, pieces
from streamtools.parsing.dialects.model_names import dialects_for, families_for
from streamtools.parsing.dialects.table import DIALECTS

Dialects: TypeAlias = "Sequence[str | Dialect] | Dialect | str | None"
"""An id or a `Dialect`, or a sequence of them. `"auto"` in the sequence adds all other dialects of `"auto"`.

None means `"auto"`, until the model makes a native call. `()` enables no dialect.
"""

# Names of parsers in vLLM and SGLang for which `nearest` finds another dialect, or none. They lack `-` and `_`.
_PARSERS = {
    "cohere_action_json": "coherecommand3 coherecommand4", "deepseek_dsml": "deepseekv32 deepseekv4 deepseekv41",
    "glm_xml": "glm glm45 glm47", "harmony": "openai", "hermes_json": "qwen qwen25 trinity", "llama3_json": "llama3",
    "poolside_xml": "poolsidev1", "qwen3_coder_xml": "qwen3xml qwenxml mimo iquestcoder", "tool_calls_list": "minimax",
}  # fmt: skip

_NATIVE = "no dialect is enabled for a model with native calls"
_NOT_ENABLED = "the dialect is not enabled"


def choose_dialects(dialects: Dialects) -> tuple[Dialect, ...]:
    """Return the dialects for a caller's choice. Raises ValueError for an unknown id, or if an id occurs twice."""
    if dialects is None or dialects == "auto":
        return _auto()
    if isinstance(dialects, ByName):
        return tuple(dialects)
    if isinstance(dialects, str) or not isinstance(dialects, Iterable):
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
    return (*chosen.values(), *(_without_shared_tags(dialect, chosen.values()) for dialect in others))


def _suggestion(choice: object) -> str:
    if not isinstance(choice, str):
        return "; dialects are ids and `Dialect` objects"
    parser = choice.lower().replace("-", "").replace("_", "")
    if read := next((id for id, names in _PARSERS.items() if parser in names.split()), None):
        return f"; did you mean {read!r}?"
    similar = [f"'{id}'" for id in DIALECTS if choice and choice.lower() in id]
    suggestion = f"; did you mean {' or '.join(similar[:3])}?" if similar else did_you_mean(choice, DIALECTS)
    if dialects_for(choice):
        suggestion += (
            f"{'' if suggestion else ';'} for the dialects of a model, write dialects=dialects_for({choice!r})"
        )
    return suggestion or "; pass a dialect of your own as an object; `streamtools replay --help` lists all other ids"


@cache
def _auto() -> tuple[Dialect, ...]:
    """Return the dialects of `"auto"`, with only the openers and tags that `"auto"` includes (`Opener.auto`)."""
    return tuple(
        replace(
            dialect,
            openers=tuple(
                opener if isinstance(opener.auto, bool) else replace(opener, where=opener.auto)
                for opener in dialect.openers
                if opener.auto
            ),
            openers_for=None,
            reserved_patterns=() if dialect.auto == "marked" else dialect.reserved_patterns,
            tags=tuple(_tag_for_auto(tag) for tag in dialect.tags if tag.auto),
            in_code="text",
        )
        for dialect in DIALECTS.values()
        if dialect.auto
    )


def _tag_for_auto(tag: Tag) -> Tag:
    """If a tag opens reasoning, let it match only at the start of the message, as `<think>` does by default.

    Other tags are not changed. A tag with `before` is the header of a message. Such a header may occur anywhere.
    """
    return replace(tag, where="start") if tag.closings and not tag.before else tag


def _without_shared_tags(dialect: Dialect, chosen: Iterable[Dialect]) -> Dialect:
    """Return a dialect of `"auto"` without the tags that begin an opener of a dialect in `chosen`."""
    openers = [pieces(opener.parts + opener.ahead) for each in chosen for opener in each.openers]

    def begins_opener(tag: Tag) -> bool:
        parts = pieces(tag.parts + tag.ahead)
        return any(parts == opener[: len(parts)] for opener in openers)

    tags = tuple(tag for tag in dialect.tags if not begins_opener(tag))
    return dialect if tags == dialect.tags else replace(dialect, tags=tags)


class ByName(tuple[Dialect, ...]):
    """The dialects for the name of a model. As with `dialects=None`, a native call of the model disables them."""

    taught: Dialect | None = None
    """The first dialect of the model that a prompt can teach and that has `auto=True`. None if there is none."""


def for_model(model_name: str, native_tool_calls: bool | None = None) -> ByName | None:
    """Return the dialects that models of this name write, then the other dialects of `"auto"`.

    The others are included because a prompt may teach one of them. If the calls of the model are always native, the
    result is empty, unless `native_tool_calls` is False. Returns None if no dialect of these models is known.
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


def is_default(dialects: Dialects) -> bool:
    """Return True if `dialects` was not chosen by the caller."""
    return dialects is None or isinstance(dialects, ByName)


def enabled_dialects(dialects: Dialects, native_tool_calls: bool | None) -> tuple[Dialect, ...]:
    """Return the dialects in which calls are read.

    If the model makes native calls, these are only dialects that the caller has chosen. Raises the errors of
    `choose_dialects`.
    """
    return () if native_tool_calls and is_default(dialects) else choose_dialects(dialects)


@cache
def auto_as_near_misses(*, tags: bool = False, message: str = _NATIVE) -> tuple[Dialect, ...]:
    """Return the dialects of `"auto"` with near misses in place of openers. `message` is the text of the warning.

    Each opener of a call becomes a near miss, unless it is recognized only at the start of a message. With `tags=True`,
    the tags of the dialects are kept, so that they stay hidden after the first native call.
    """
    return tuple(
        replace(
            dialect,
            openers=(),
            tags=dialect.tags if tags else (),
            near=tuple(
                NearMiss(opener.parts + opener.ahead, message, opener.where, opener.not_after)
                for opener in dialect.openers
                if opener.kind == "call" and opener.where != "start"
            ),
        )
        for dialect in _auto()
    )


def others_as_near_misses(dialects: Sequence[Dialect]) -> list[Dialect]:
    """Return the dialects of `"auto"` that are not in `dialects`, as near misses. Returns [] if `dialects` is empty."""
    ids = {dialect.id for dialect in dialects}
    return [dialect for dialect in auto_as_near_misses(message=_NOT_ENABLED) if dialect.id not in ids] if ids else []
