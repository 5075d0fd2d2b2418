"""Word joiners that keep data from being read as structure.

A tool result is data. A model that repeats it must not thereby call a tool or begin a turn. So a word joiner (U+2060)
goes into each text that a dialect reserves, and into each token of a chat template. It is invisible and stands after
the first character. `restore` removes the joiners from text that the model repeats. This is defence in depth, not a
boundary.

Such texts may overlap and contain one another: `<|[INST]|>` holds two tokens. So the search looks for the place where
one begins, and passes over nothing. A joiner is removed if, without any joiners, structure would begin in its place.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from itertools import takewhile
from typing import Any, Protocol

from streamtools.json_values import with_texts

JOINER = "\u2060"

_TEMPLATE_TOKENS = (
    ("<", r"[|\uff5c][^<>\n]{1,256}[|\uff5c]>"),  # ChatML, Llama 3, DeepSeek, Phi, Kimi, Cohere and related models
    ("<", r"[|\uff5c][\w:.-]{1,64}>|/?[\w:.-]{1,64}[|\uff5c]>"),  # Gemma 4
    ("<", r"/?[|\uff5c]DSML[|\uff5c]"),  # DeepSeek V3.2
    ("<", r"/?(?:start_of_turn|end_of_turn|s|bos|eos|unk|pad|sop|eop|seed:[be]os)>|</?SYS>>"),  # Gemma, Llama 2, GLM
    ("<", r"(?:(?:BOS|EOS|EOP|PAD|UNK|MASK)_TOKEN|CLS|SEP|(?:extra_id|SPECIAL)_\d{1,4})>"),  # Cohere, Nemotron
    # Mistral
    (r"\[", r"/?(?:INST|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT|AVAILABLE_TOOLS|SYSTEM_PROMPT|MODEL_SETTINGS)\]"),
    # GLM, Kimi, EXAONE, MiniMax
    (r"\[", r"(?:[gs]MASK|BOS|EOS|EOT|(?:start|end)_header_id|\|[^\[\]\n]{1,64}\|)\]|e~\["),
    (r"\]", r"~!?b[\[\]]"),  # MiniMax
)
"""Tokens of chat templates: for each a pattern of the first character, and one of the rest."""

_BLOCK = 64 * 1024  # characters searched in one call of `re`
_OVERLAP = 4 * 1024  # characters after a block in which a token that begins in the block may end


class Reserving(Protocol):
    """The part of a `Dialect` that matters here."""

    @property
    def reserved(self) -> tuple[str, ...]: ...

    @property
    def unmarked(self) -> tuple[tuple[str, str], ...]: ...


def neutralise(text: str, dialects: Iterable[Reserving]) -> str:
    """Return `text` with word joiners wherever these dialects or a chat template would find structure."""
    return _insert_joiners(text, finds_structure(dialects))


def neutralise_all(value: Any, dialects: Iterable[Reserving]) -> Any:
    """Return a JSON value with all its texts neutralised, member names included."""
    structure = finds_structure(dialects)
    return with_texts(value, lambda text: _insert_joiners(text, structure))


def restore(value: Any, dialects: Iterable[Reserving]) -> Any:
    """Undo `neutralise` in a text, or in all texts of a JSON value."""
    return _restore(value, finds_structure(dialects)) if _holds_joiner(value) else value


def finds_structure(dialects: Iterable[Reserving]) -> re.Pattern[str]:
    """Return a pattern that matches the first character of everything that could be read as structure."""
    known = tuple(dialects)
    words = frozenset(word for dialect in known for word in dialect.reserved)
    return _compile(words, tuple(pair for dialect in known for pair in dialect.unmarked))


@lru_cache(maxsize=64)
def _compile(reserved: frozenset[str], unmarked: tuple[tuple[str, str], ...]) -> re.Pattern[str]:
    rests: dict[str, list[str]] = {}  # by first character, so that one search serves all
    for first in sorted({re.escape(word[0]) for word in reserved}):
        rests[first] = [_any_of({word[1:] for word in reserved if re.escape(word[0]) == first})]
    for first, rest in (*unmarked, *_TEMPLATE_TOKENS):
        rests.setdefault(first, []).append(rest)
    return re.compile("|".join(f"{first}(?={'|'.join(patterns)})" for first, patterns in rests.items()))


def _any_of(words: set[str]) -> str:
    """Return a pattern for texts that begin with one of `words`. It looks at each character once."""
    firsts = sorted({word[:1] for word in words})  # "" means that a word ends here, so nothing has to follow
    ways = [re.escape(first) + _any_of({word[1:] for word in words if word[:1] == first}) for first in firsts if first]
    return "" if "" in firsts else ways[0] if len(ways) == 1 else f"(?:{'|'.join(ways)})"


def _insert_joiners(text: str, structure: re.Pattern[str]) -> str:
    if len(text) <= _BLOCK:
        return structure.sub(rf"\g<0>{JOINER}", text)
    places = [0]
    for begin in range(0, len(text), _BLOCK):  # in blocks, so that other threads get the interpreter in between
        ends = (match.end() for match in structure.finditer(text, begin, begin + _BLOCK + _OVERLAP))
        places += takewhile((begin + _BLOCK).__ge__, ends)
    return JOINER.join(text[at:end] for at, end in zip(places, (*places[1:], None), strict=True))


def _holds_joiner(value: Any) -> bool:
    if isinstance(value, str):
        return JOINER in value
    if isinstance(value, dict):
        return any(map(_holds_joiner, value)) or any(map(_holds_joiner, value.values()))
    return isinstance(value, list) and any(map(_holds_joiner, value))


def _restore(value: Any, structure: re.Pattern[str]) -> Any:
    if isinstance(value, str):
        return _remove_joiners(value, structure) if JOINER in value else value
    if isinstance(value, dict):
        keys = [_restore(key, structure) for key in value]
        keys = keys if len(set(keys)) == len(keys) else list(value)  # two keys must not become one
        return {key: _restore(member, structure) for key, member in zip(keys, value.values(), strict=True)}
    return [_restore(item, structure) for item in value] if isinstance(value, list) else value


def _remove_joiners(text: str, structure: re.Pattern[str]) -> str:
    first, *rest = text.split(JOINER)
    places = {match.end() for match in structure.finditer(first + "".join(rest))}
    pieces, at = [first], len(first)
    for piece in rest:
        pieces.append(piece if at in places else JOINER + piece)
        at += len(piece)
    return "".join(pieces)
