"""Neutralizes data, so that neither a parser nor a model reads markers or tokens in it as structure.

A tool result is data. If a model repeats the result, it must not thereby call a tool or begin a turn. `neutralize`
finds each text that a dialect reserves, and each token of a chat template. It inserts a word joiner (U+2060), which is
invisible, after the first character of each match. `restore` removes these joiners from text that the model repeats.
This makes attacks harder, but it is not a security boundary.

The texts may overlap. For example, `<|[INST]|>` contains two tokens. So the search finds the first character of each
text, even inside another text. `restore` removes a joiner only if `neutralize` would insert one at its position.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from itertools import takewhile
from typing import Any, Protocol

from streamtools.json_values import compact, with_texts

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
"""The tokens of chat templates, such as `<|im_end|>`, `<end_of_turn>`, `[INST]`, `[gMASK]` and `]~b]`.

Each item has a pattern of the first character, and a pattern of the rest.
"""

_BLOCK = 64 * 1024  # the number of characters that one call of `re` searches
_OVERLAP = 4 * 1024  # number of characters after a block that are also searched, for a token that begins in the block


class Reserving(Protocol):
    """The fields of a `Dialect` that this module reads."""

    @property
    def reserved(self) -> tuple[str, ...]: ...

    @property
    def reserved_patterns(self) -> tuple[tuple[str, str], ...]: ...


def neutralize(text: str, dialects: Iterable[Reserving]) -> str:
    """Return `text` with a word joiner in each text that one of `dialects` or a chat template reserves."""
    return _insert_joiners(text, structure_pattern(dialects))


def neutralize_all(value: Any, dialects: Iterable[Reserving]) -> Any:
    """Return a JSON value with all its strings and keys neutralized."""
    structure = structure_pattern(dialects)
    return with_texts(value, lambda text: _insert_joiners(text, structure))


def restore(value: Any, dialects: Iterable[Reserving]) -> Any:
    """Undo `neutralize` in a string, or `neutralize_all` in a JSON value."""
    return _restore(value, structure_pattern(dialects)) if JOINER in compact(value) else value


def structure_pattern(dialects: Iterable[Reserving]) -> re.Pattern[str]:
    """Return a pattern that matches the first character of each reserved text and of each chat template token."""
    known = tuple(dialects)
    words = frozenset(word for dialect in known for word in dialect.reserved)
    return _compile(words, tuple(pair for dialect in known for pair in dialect.reserved_patterns))


@lru_cache(maxsize=64)
def _compile(reserved: frozenset[str], reserved_patterns: tuple[tuple[str, str], ...]) -> re.Pattern[str]:
    rests: dict[str, list[str]] = {}  # maps the pattern of a first character to the patterns of the texts after it
    for first in sorted({re.escape(word[0]) for word in reserved}):
        rests[first] = [_any_of({word[1:] for word in reserved if re.escape(word[0]) == first})]
    for first, rest in (*reserved_patterns, *_TEMPLATE_TOKENS):
        rests.setdefault(first, []).append(rest)
    return re.compile("|".join(f"{first}(?={'|'.join(patterns)})" for first, patterns in rests.items()))


def _any_of(words: set[str]) -> str:
    """Return a pattern that matches one of `words`. The pattern reads each character only once."""
    firsts = sorted({word[:1] for word in words})  # "" if a word ends here
    ways = [re.escape(first) + _any_of({word[1:] for word in words if word[:1] == first}) for first in firsts if first]
    return "" if "" in firsts else ways[0] if len(ways) == 1 else f"(?:{'|'.join(ways)})"


def _insert_joiners(text: str, structure: re.Pattern[str]) -> str:
    if len(text) <= _BLOCK:
        return structure.sub(rf"\g<0>{JOINER}", text)
    starts = [0]  # the indexes at which the pieces between the joiners start
    for begin in range(0, len(text), _BLOCK):  # other threads can run between two blocks
        ends = (match.end() for match in structure.finditer(text, begin, begin + _BLOCK + _OVERLAP))
        starts += takewhile((begin + _BLOCK).__ge__, ends)
    return JOINER.join(text[start:end] for start, end in zip(starts, (*starts[1:], None), strict=True))


def _restore(value: Any, structure: re.Pattern[str]) -> Any:
    if isinstance(value, str):
        return _remove_joiners(value, structure) if JOINER in value else value
    if isinstance(value, dict):
        keys = [_restore(key, structure) for key in value]
        keys = keys if len(set(keys)) == len(keys) else list(value)  # two keys must not become equal
        return {key: _restore(member, structure) for key, member in zip(keys, value.values(), strict=True)}
    return [_restore(item, structure) for item in value] if isinstance(value, list) else value


def _remove_joiners(text: str, structure: re.Pattern[str]) -> str:
    first, *rest = text.split(JOINER)
    positions = {match.end() for match in structure.finditer(first + "".join(rest))}
    pieces, position = [first], len(first)
    for piece in rest:
        pieces.append(piece if position in positions else JOINER + piece)
        position += len(piece)
    return "".join(pieces)
