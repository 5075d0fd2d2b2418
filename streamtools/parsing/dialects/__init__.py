"""The ways in which models write calls, as a table.

Each module names the source of its form: where it is defined. Few templates were at hand when this was written, so what
holds is what the tests say; where a model's template differs, the template is right.

The table knows its ids; a dialect is made, and its module imported, when it is asked for. Each has
patterns to be compiled, and most programs need the two that are armed by default.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib import import_module
from operator import attrgetter
from typing import TypeAlias

from streamtools.parsing.dialects.base import Dialect, NearMiss, Opener, Tag
from streamtools.parsing.dialects.hash_marker import hash_marker
from streamtools.parsing.dialects.tilde_fence import tilde_fence

__all__ = [
    "DEFAULT_DIALECTS",
    "DIALECTS",
    "Dialect",
    "Dialects",
    "NearMiss",
    "Opener",
    "Tag",
    "choose_dialects",
    "hash_marker",
    "tilde_fence",
]

_HOMES = {
    "hash_marker": "hash_marker",
    "tilde_fence": "tilde_fence",
    "hermes_json": "hermes",
    "qwen3_coder_xml": "qwen",
    "harmony": "harmony",
    "kimi_k3_xtml": "kimi_k3",
    "cohere_action_json": "cohere",
    "llama3_json": "markerless",
    "llama31_function_tag": "qwen",
    "mistral_list": "mistral",
    "mistral_args": "mistral",
    "deepseek_v3": "deepseek",
    "deepseek_v31": "deepseek",
    "deepseek_dsml": "deepseek_dsml",
    "glm_xml": "glm",
    "kimi_k2": "kimi",
    "pythonic": "pythonic",
    "pythonic_llama4": "pythonic",
    "olmo3_pythonic": "pythonic",
    "lfm2_pythonic": "pythonic",
    "gemma4": "gemma",
    "functiongemma": "gemma",
    "minimax_m2_xml": "minimax",
    "minimax_m3_xml": "minimax",
    "seed_oss_xml": "qwen",
    "anthropic_xml": "anthropic",
    "granite_list": "json_tags",
    "granite20b_function_call": "json_tags",
    "internlm2": "json_tags",
    "interns1": "json_tags",
    "tool_calls_list": "json_tags",
    "toolcall_list": "json_tags",
    "functools_list": "json_tags",
    "functionary_v32": "functionary",
    "cohere_legacy_action": "json_tags",
    "hunyuan_a13b_list": "json_tags",
    "hunyuan_xml": "glm",
    "step3_xml": "step",
    "poolside_xml": "glm",
    "minicpm5_xml": "minicpm",
    "morph_xml": "morph",
    "k_exaone2_xml": "qwen",
    "gigachat3": "gigachat",
    "ernie45_json": "json_tags",
    "xlam_json": "json_tags",
    "longcat_json": "json_tags",
    "apertus_list": "json_tags",
    "inkling": "inkling",
    "atem_xml": "atem",
    "json_begin_end": "json_tags",
    "raw_json": "markerless",
    "json_array": "markerless",
}
"""The module of each. It has a function of that name, but for those of `json_tags`, which are made together."""


class _Table(Mapping[str, Dialect]):
    """The dialects by their ids; each is made once."""

    def __init__(self) -> None:
        self._made: dict[str, Dialect] = {}

    def __getitem__(self, id: str) -> Dialect:
        if id not in self._made:
            home = import_module(f"{__name__}.{_HOMES[id]}")
            made = home.json_tag_dialects() if _HOMES[id] == "json_tags" else {id: getattr(home, id)()}
            self._made = {**made, **self._made}  # what another thread has made meanwhile counts
        return self._made[id]

    def __iter__(self) -> Iterator[str]:
        return iter(_HOMES)

    def __len__(self) -> int:
        return len(_HOMES)


DIALECTS: Mapping[str, Dialect] = _Table()
"""Every dialect by its id."""

DEFAULT_DIALECTS = ("hash_marker", "tilde_fence")
"""Those that are armed where nobody chooses."""

Dialects: TypeAlias = "Sequence[str | Dialect] | Dialect | str | None"
"""Ids, `Dialect` objects, `"auto"`, or None for the two that are armed by default; `()` arms none."""


def _for_auto(opener: Opener) -> Opener:
    return opener if opener.auto is True or not opener.auto else replace(opener, where=opener.auto)


def _tag_for_auto(tag: Tag) -> Tag:
    """Return a tag of reasoning as one that counts where `<think>` does; a header of a channel counts anywhere."""
    return replace(tag, where="start") if tag.closings and not tag.before else tag


@cache
def _unmistakable() -> tuple[Dialect, ...]:
    """Return what `"auto"` arms."""
    return tuple(
        replace(
            dialect,
            openers=tuple(map(_for_auto, filter(attrgetter("auto"), dialect.openers))),
            openers_for=None,
            tags=tuple(map(_tag_for_auto, filter(attrgetter("auto"), dialect.tags))),
            in_code="text",
        )
        for dialect in DIALECTS.values()
        if dialect.auto
    )


def choose_dialects(dialects: Dialects) -> tuple[Dialect, ...]:
    """Return the dialects that are meant. Raises ValueError for an id that is not in the table, or comes twice."""
    if dialects is None:
        dialects = DEFAULT_DIALECTS
    elif dialects == "auto":
        return _unmistakable()
    elif isinstance(dialects, str | Dialect):
        dialects = (dialects,)
    chosen: list[Dialect] = []
    for each in dialects:
        dialect = DIALECTS.get(each) if isinstance(each, str) else each
        if not isinstance(dialect, Dialect):
            raise ValueError(f"no dialect {each!r}; there are {', '.join(DIALECTS)}")
        if any(dialect.id == other.id for other in chosen):
            raise ValueError(f"two dialects have the id {dialect.id!r}")
        chosen.append(dialect)
    return tuple(chosen)
