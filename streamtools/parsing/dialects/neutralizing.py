"""Neutralizes data, so that neither a parser nor a model reads markers or tokens in it as structure.

A tool result is data. If a model repeats the result, it must not thereby call a tool or begin a turn. `neutralize`
finds each text that a dialect reserves, and each token of a chat template. It inserts a word joiner (U+2060), which is
invisible, after the first character of each match. `restore` removes these joiners from text that the model repeats.
This makes attacks harder, but it is not a security boundary.

The texts may overlap. For example, `<|[INST]|>` contains two tokens. So the search finds the first character of each
text, even inside another text. `restore` removes a joiner only if `neutralize` would insert one at its position.

A model that repeats a text may decode its escapes. So the search also finds a reserved text that is written with the
escapes of JSON, Python or HTML, such as `\\u003ctool_call>`. Escapes may be nested, as in a JSON string that contains
JSON.
"""

from __future__ import annotations

import html
import re
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, takewhile
from typing import Any, NamedTuple, Protocol

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
_OVERLAP = 4 * 1024  # this many characters after a block are also searched: a token of the block may end there
_ESCAPE = re.compile(
    r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|[\"'\\/nrt])"  # JSON and Python
    r"|&(?:#\d{1,7}|#x[0-9a-fA-F]{1,6}|[a-zA-Z]{2,8});"  # HTML
)
_ESCAPE_LEVELS = 5  # how often escapes are decoded: JSON in JSON in JSON has three levels
_CONTROL = {"n": "\n", "r": "\r", "t": "\t"}


class Reserving(Protocol):
    """The fields of a `Dialect` that this module reads."""

    @property
    def reserved(self) -> tuple[str, ...]: ...

    @property
    def reserved_patterns(self) -> tuple[tuple[str, str], ...]: ...


class Structure(NamedTuple):
    """The patterns of one set of dialects."""

    first: re.Pattern[str]
    """Matches the first character of each reserved text and of each chat template token."""
    first_or_escape: re.Pattern[str]
    """Also matches any escape. A text without a match is not changed, and most texts have none: a fast path."""


def neutralize(text: str, dialects: Collection[Reserving]) -> str:
    """Return `text` with a word joiner in each text that one of `dialects` or a chat template reserves."""
    return _join_at(text, joiner_positions(text, dialects))


def neutralize_in_order(texts: Sequence[str], dialects: Collection[Reserving]) -> list[str]:
    """Return the texts neutralized. A chat template may join these texts, directly or with a line feed.

    So this function also finds a reserved text that begins in one of the texts and continues in the following ones.
    """
    found: list[set[int]] = [set() for _ in texts]
    for separator in ("", "\n")[: len(texts)]:
        starts = list(accumulate((len(text) + len(separator) for text in texts), initial=0))
        joined = separator.join(texts)
        in_joined = _first_characters(joined, dialects) if separator else joiner_positions(joined, dialects)
        for end in in_joined:
            index = bisect_left(starts, end) - 1
            if end - starts[index] <= len(texts[index]):  # otherwise the separator begins the reserved text
                found[index].add(end - starts[index])
    return [_join_at(text, sorted(positions)) for text, positions in zip(texts, found, strict=True)]


def neutralize_all(value: Any, dialects: Collection[Reserving]) -> Any:
    """Return a JSON value with all its strings and keys neutralized."""
    return with_texts(value, lambda text: neutralize(text, dialects))


def restore(value: Any, dialects: Collection[Reserving]) -> Any:
    """Undo `neutralize` in a string, or `neutralize_all` in a JSON value.

    If two keys of an object would become equal, its keys keep their joiners.
    """
    return _restore(value, dialects) if JOINER in compact(value) else value


@lru_cache(maxsize=64)
def structure_of(dialects: tuple[Reserving, ...]) -> Structure:
    """Return the patterns that find the texts which `dialects` and chat templates reserve."""
    words = frozenset(word for dialect in dialects for word in dialect.reserved)
    return _compile(words, tuple(pair for dialect in dialects for pair in dialect.reserved_patterns))


@lru_cache(maxsize=64)  # the dialects of two requests may be different objects with the same reserved texts
def _compile(reserved: frozenset[str], reserved_patterns: tuple[tuple[str, str], ...]) -> Structure:
    rests: dict[str, list[str]] = {}  # maps the pattern of a first character to the patterns of the texts after it
    for first in sorted({re.escape(word[0]) for word in reserved}):
        rests[first] = [_any_of({word[1:] for word in reserved if re.escape(word[0]) == first})]
    for first, rest in (*reserved_patterns, *_TEMPLATE_TOKENS):
        rests.setdefault(first, []).append(rest)
    ways = "|".join(f"{first}(?!{JOINER})(?={'|'.join(patterns)})" for first, patterns in rests.items())
    return Structure(re.compile(ways), re.compile(f"{ways}|{_ESCAPE.pattern}"))


def _any_of(words: set[str]) -> str:
    """Return a pattern that matches one of `words`. The pattern reads each character only once."""
    firsts = sorted({word[:1] for word in words})  # "" if a word ends here
    ways = [re.escape(first) + _any_of({word[1:] for word in words if word[:1] == first}) for first in firsts if first]
    return "" if "" in firsts else ways[0] if len(ways) == 1 else f"(?:{'|'.join(ways)})"


def _join_at(text: str, positions: Sequence[int]) -> str:
    """Return `text` with a joiner at each of the positions."""
    if not positions:
        return text
    return JOINER.join(text[start:end] for start, end in zip((0, *positions), (*positions, None), strict=True))


def joiner_positions(text: str, dialects: Collection[Reserving]) -> list[int]:
    """Return the index after the first character of each reserved text, even if the text is written with escapes."""
    if len(text) <= _BLOCK and not structure_of(tuple(dialects)).first_or_escape.search(text):
        return []
    levels = [text]
    while len(levels) <= _ESCAPE_LEVELS and (decoded := _ESCAPE.sub(_decode_escape, levels[-1])) != levels[-1]:
        levels.append(decoded)
    positions: set[int] = set()
    for level in reversed(levels):
        positions = {*_before_decoding(positions, level), *_first_characters(level, dialects)}
    return sorted(positions)


def _before_decoding(positions: Collection[int], text: str) -> Iterator[int]:
    """Map `positions` in the text with decoded escapes to positions in `text`."""
    decoded_ends, ends = [0], [0]  # the ends of the escapes
    for match in _ESCAPE.finditer(text) if positions else ():
        decoded_ends.append(decoded_ends[-1] + match.start() - ends[-1] + len(_decode_escape(match)))
        ends.append(match.end())
    for position in positions:
        index = bisect_right(decoded_ends, position) - 1
        yield position + ends[index] - decoded_ends[index]


def _first_characters(text: str, dialects: Collection[Reserving]) -> Iterator[int]:
    """Yield the end of each match. Other threads can run between two blocks of a long text."""
    first = structure_of(tuple(dialects)).first
    for begin in range(0, len(text), _BLOCK):
        ends = (match.end() for match in first.finditer(text, begin, begin + _BLOCK + _OVERLAP))
        yield from takewhile((begin + _BLOCK).__ge__, ends)


def _decode_escape(match: re.Match[str]) -> str:
    code = match[1] or match[2]
    if code:
        return chr(int(code, 16))
    return html.unescape(match[0]) if match[0][0] == "&" else _CONTROL.get(match[0][1], match[0][1])


def _restore(value: Any, dialects: Collection[Reserving]) -> Any:
    if isinstance(value, str):
        return _remove_joiners(value, dialects) if JOINER in value else value
    if isinstance(value, dict):
        keys = [_restore(key, dialects) for key in value]
        keys = keys if len(set(keys)) == len(keys) else list(value)  # two keys must not become equal
        return {key: _restore(member, dialects) for key, member in zip(keys, value.values(), strict=True)}
    return [_restore(item, dialects) for item in value] if isinstance(value, list) else value


def _remove_joiners(text: str, dialects: Collection[Reserving]) -> str:
    first, *rest = text.split(JOINER)
    positions = set(joiner_positions(first + "".join(rest), dialects))
    pieces, position = [first], len(first)
    for piece in rest:
        pieces.append(piece if position in positions else JOINER + piece)
        position += len(piece)
    return "".join(pieces)
