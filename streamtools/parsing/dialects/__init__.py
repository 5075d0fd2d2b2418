"""The ways in which models write calls, as a table.

Each function that makes a dialect names the source of its form: where it is defined. Few templates were at hand when
this was written, so what holds is what the tests say; where a model's template differs, the template is right.

The table knows its ids; a dialect is made, and its module imported, when it is asked for: each has patterns to be
compiled.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib import import_module
from operator import attrgetter
from typing import TypeAlias

from streamtools.errors import did_you_mean
from streamtools.parsing.dialects.base import Dialect, NearMiss, Opener, Tag, pieces
from streamtools.parsing.dialects.hash_and_tilde import hash_marker, tilde_fence
from streamtools.parsing.dialects.model_names import MODELS, ModelFamily, dialects_for, families_for

__all__ = [
    "DIALECTS",
    "MODELS",
    "TAUGHT_DIALECTS",
    "Dialect",
    "Dialects",
    "ModelFamily",
    "NearMiss",
    "Opener",
    "Tag",
    "choose_dialects",
    "dialects_for",
    "enabled_dialects",
    "families_for",
    "for_model",
    "hash_marker",
    "not_named",
    "tilde_fence",
    "unnamed",
    "watched",
]  # fmt: skip

_HOMES = {
    "hash_marker": "hash_and_tilde",
    "tilde_fence": "hash_and_tilde",
    "hermes_json": "json_with_name",
    "qwen3_coder_xml": "parameter_xml",
    "harmony": "message_headers",
    "kimi_k3_xtml": "attribute_xml",
    "cohere_action_json": "json_with_name",
    "llama3_json": "json_with_name",
    "llama31_function_tag": "parameter_xml",
    "mistral_list": "json_after_name",
    "mistral_args": "json_after_name",
    "deepseek_v3": "json_after_name",
    "deepseek_v31": "json_after_name",
    "deepseek_dsml": "attribute_xml",
    "glm_xml": "parameter_xml",
    "kimi_k2": "json_after_name",
    "pythonic": "pythonic",
    "pythonic_llama4": "pythonic",
    "olmo3_pythonic": "pythonic",
    "lfm2_pythonic": "pythonic",
    "gemma4": "pythonic",
    "functiongemma": "pythonic",
    "minimax_m2_xml": "attribute_xml",
    "minimax_m3_xml": "attribute_xml",
    "seed_oss_xml": "parameter_xml",
    "anthropic_xml": "attribute_xml",
    "granite_list": "json_with_name",
    "granite20b_function_call": "json_with_name",
    "internlm2": "json_with_name",
    "interns1": "json_with_name",
    "tool_calls_list": "json_with_name",
    "toolcall_list": "json_with_name",
    "functools_list": "json_with_name",
    "functionary_v32": "message_headers",
    "cohere_legacy_action": "json_with_name",
    "hunyuan_a13b_list": "json_with_name",
    "hunyuan_xml": "parameter_xml",
    "step3_xml": "attribute_xml",
    "poolside_xml": "parameter_xml",
    "minicpm5_xml": "attribute_xml",
    "morph_xml": "attribute_xml",
    "k_exaone2_xml": "parameter_xml",
    "gigachat3": "json_after_name",
    "ernie45_json": "json_with_name",
    "xlam_json": "json_with_name",
    "longcat_json": "json_with_name",
    "apertus_list": "json_after_name",
    "inkling": "message_headers",
    "atem_xml": "attribute_xml",
    "json_begin_end": "json_with_name",
    "raw_json": "json_with_name",
    "json_array": "json_with_name",
    "gigachat35": "attribute_xml",
    "dots_xml": "attribute_xml",
    "iquest_q1": "parameter_xml",
    "k2_horizon": "parameter_xml",
    "solar_open": "json_after_name",
    "solar_open2": "parameter_xml",
    "plamo3": "json_after_name",
    "hyperclovax_think": "json_with_name",
    "minicpm4_python": "pythonic",
    "tool_code": "pythonic",
    "granite_lines": "pythonic",
    "cwm_tool": "parameter_xml",
    "lm_studio": "json_with_name",
}
"""The module of each dialect, which has a function of that name."""


class _Table(Mapping[str, Dialect]):
    """The dialects by their ids; each is made once."""

    def __init__(self) -> None:
        self._made: dict[str, Dialect] = {}

    def __getitem__(self, id: str) -> Dialect:
        if id not in self._made:
            make = getattr(import_module(f"{__name__}.{_HOMES[id]}"), id)
            self._made.setdefault(id, make())  # what another thread has made meanwhile counts
        return self._made[id]

    def __iter__(self) -> Iterator[str]:
        return iter(_HOMES)

    def __len__(self) -> int:
        return len(_HOMES)


DIALECTS: Mapping[str, Dialect] = _Table()
"""Every dialect by its id."""

TAUGHT_DIALECTS = ("hash_marker", "tilde_fence")
"""Those that a prompt teaches where nobody chooses; no template knows them."""

Dialects: TypeAlias = "Sequence[str | Dialect] | Dialect | str | None"
"""Ids, `Dialect` objects, and `"auto"`, alone or for all others; None is `"auto"` as long as no native call is known;
`()` is none.
"""


class ByName(tuple[Dialect, ...]):
    """The dialects for a model of some name, where nobody has named any: like None, they are for text alone."""

    taught: Dialect | None = None
    """The first that models of its name write and a prompt can teach, if it has a marker."""


def for_model(model_name: str, native_tool_calls: bool | None = None) -> ByName | None:
    """Return the dialects for a model where nobody has named any: what models of its name write, and then `"auto"`,
    since a prompt may teach one of those.

    None if the name says nothing. No dialect for a model whose calls are always native, unless they are declared not to
    be.
    """
    families = families_for(model_name)
    if families and families[0].native and native_tool_calls is not False:
        return ByName()
    known = choose_dialects(dialects_for(model_name))
    if not known:
        return None
    ids = {each.id for each in known}
    chosen = ByName((*known, *(each for each in _unmistakable() if each.id not in ids)))
    chosen.taught = next((each for each in known if each.auto is True and each.teachable), None)
    return chosen


# A model that makes native calls must not be made to obey a text that it quotes: where nobody has named a dialect,
# none is enabled for it. What would have been a call is text, and a near miss that says so.

_NATIVE = "no dialect is enabled for a model with native calls"
_NOT_NAMED = "the dialect is not enabled"


def unnamed(dialects: Dialects) -> bool:
    """Whether nobody has named them."""
    return dialects is None or isinstance(dialects, ByName)


def enabled_dialects(dialects: Dialects, native_tool_calls: bool | None) -> tuple[Dialect, ...]:
    """Return the dialects in which a model's calls are read. Raises as `choose_dialects` does."""
    return () if native_tool_calls and unnamed(dialects) else choose_dialects(dialects)


@cache
def watched(*, tags: bool = False, says: str = _NATIVE) -> tuple[Dialect, ...]:
    """Return the dialects of `"auto"` as ones in which nothing is a call, and all that begins one is a near miss, which
    `says` why.

    Their `tags` still count where they did before a model turned out to make native calls.
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
        for dialect in _unmistakable()
    )


def not_named(dialects: Sequence[Dialect]) -> list[Dialect]:
    """Return the others of `"auto"`, in which nothing is a call; none where no dialect is enabled at all."""
    ids = {each.id for each in dialects}
    return [each for each in watched(says=_NOT_NAMED) if each.id not in ids] if ids else []


def _for_auto(opener: Opener) -> Opener:
    return opener if opener.auto is True or not opener.auto else replace(opener, where=opener.auto)


def _tag_for_auto(tag: Tag) -> Tag:
    """Return a tag of reasoning as one that counts where `<think>` does; a header of a channel counts anywhere."""
    return replace(tag, where="start") if tag.closings and not tag.before else tag


@cache
def _unmistakable() -> tuple[Dialect, ...]:
    """Return what `"auto"` means: what has a marker, and of each dialect not what has none."""
    return tuple(
        replace(
            dialect,
            openers=tuple(map(_for_auto, filter(attrgetter("auto"), dialect.openers))),
            openers_for=None,
            unmarked=() if dialect.auto == "marked" else dialect.unmarked,
            tags=tuple(map(_tag_for_auto, filter(attrgetter("auto"), dialect.tags))),
            in_code="text",
        )
        for dialect in DIALECTS.values()
        if dialect.auto
    )


def _nearest(given: object) -> str:
    if not isinstance(given, str):
        return "; dialects are ids and `Dialect` objects"
    part = [f"'{each}'" for each in DIALECTS if given and given.lower() in each]
    like = f"; did you mean {' or '.join(part[:3])}?" if part else did_you_mean(given, DIALECTS)
    return like or f"; there are {', '.join(DIALECTS)}"


def choose_dialects(dialects: Dialects) -> tuple[Dialect, ...]:
    """Return the dialects that are meant. Raises ValueError for an id that is not in the table, or comes twice."""
    if dialects is None or dialects == "auto":
        return _unmistakable()
    if isinstance(dialects, ByName):
        return tuple(dialects)
    if isinstance(dialects, str | Dialect):
        dialects = (dialects,)
    chosen: dict[str, Dialect] = {}
    for each in dialects:
        if each == "auto":
            continue
        dialect = DIALECTS.get(each) if isinstance(each, str) else each
        if not isinstance(dialect, Dialect):
            raise ValueError(f"no dialect {each!r}{_nearest(each)}")
        if dialect.id in chosen:
            raise ValueError(f"two dialects have the id {dialect.id!r}")
        chosen[dialect.id] = dialect
    others = [each for each in _unmistakable() if each.id not in chosen] if "auto" in dialects else []
    return (*chosen.values(), *(_beside(each, chosen.values()) for each in others))


def _beside(dialect: Dialect, named: Iterable[Dialect]) -> Dialect:
    """Return a dialect of `"auto"` without its tags with which an opener of those that are `named` begins."""
    openers = [pieces(opener.parts + opener.ahead) for each in named for opener in each.openers]

    def begins(tag: Tag) -> bool:
        own = pieces(tag.parts)
        return any(own == each[: len(own)] for each in openers)

    if not any(map(begins, dialect.tags)):
        return dialect
    return replace(dialect, tags=tuple(tag for tag in dialect.tags if not begins(tag)))
