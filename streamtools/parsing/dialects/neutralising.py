"""Text that could be taken for structure, kept from it by a word joiner (U+2060), which nobody sees.

The joiner stands behind the first character of whatever the dialects reserve and of each token of a chat template.
These may overlap, and one may hold another: `<|[INST]|>` is two of them. So what is looked for is where one begins, and
nothing is passed over: none is left whole. A joiner goes again if, without any joiner, something begins in its place.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

_JOINER = "\u2060"

_TOKENS = (
    ("<", r"[|\uff5c][^<>\n]{1,256}[|\uff5c]>"),  # ChatML, Llama 3, DeepSeek, Phi, Kimi, Cohere and their kin
    ("<", r"[|\uff5c][\w:.-]{1,64}>|/?[\w:.-]{1,64}[|\uff5c]>"),  # Gemma 4
    ("<", r"/?[|\uff5c]DSML[|\uff5c]"),  # DeepSeek V3.2
    ("<", r"/?(?:start_of_turn|end_of_turn|s|bos|eos|unk|pad|sop|eop|seed:[be]os)>|</?SYS>>"),  # Gemma, Llama 2, GLM
    ("<", r"(?:(?:BOS|EOS|EOP|PAD|UNK|MASK)_TOKEN|CLS|SEP|(?:extra_id|SPECIAL)_\d{1,4})>"),  # Cohere, Nemotron
    (
        r"\[",
        r"/?(?:INST|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT|AVAILABLE_TOOLS|SYSTEM_PROMPT|MODEL_SETTINGS)\]",
    ),  # Mistral
    (
        r"\[",
        r"(?:[gs]MASK|BOS|EOS|EOT|(?:start|end)_header_id|\|[^\[\]\n]{1,64}\|)\]|e~\[",
    ),  # GLM, Kimi, EXAONE, MiniMax
    (r"\]", r"~!?b[\[\]]"),  # MiniMax
)
"""Tokens of chat templates: the first character of each, and the rest."""


def structure(words: Iterable[str] = ()) -> re.Pattern[str]:
    """Return what finds the first character of each of `words`, and of each token of a chat template."""
    begun = [(re.escape(word[0]), re.escape(word[1:])) for word in words]
    return re.compile("|".join(f"{first}(?={rest})" for first, rest in (*begun, *_TOKENS)))


def put_joiners(text: str, found: re.Pattern[str]) -> str:
    """Return `text` with a joiner behind each first character that is found."""
    return found.sub(rf"\g<0>{_JOINER}", text)


def holds_joiner(value: Any) -> bool:
    """Return whether a joiner stands anywhere in a text, or in JSON that holds texts."""
    if isinstance(value, str):
        return _JOINER in value
    if isinstance(value, dict):
        return any(map(holds_joiner, value)) or any(map(holds_joiner, value.values()))
    return isinstance(value, list) and any(map(holds_joiner, value))


def take_joiners(value: Any, found: re.Pattern[str]) -> Any:
    """Return a text, or JSON that holds texts, without the joiners that `put_joiners` puts."""
    if isinstance(value, str):
        return _without(value, found) if _JOINER in value else value
    if isinstance(value, dict):
        keys = [take_joiners(key, found) for key in value]
        keys = keys if len(set(keys)) == len(keys) else list(value)  # two must not become one
        return {key: take_joiners(each, found) for key, each in zip(keys, value.values(), strict=True)}
    return [take_joiners(each, found) for each in value] if isinstance(value, list) else value


def _without(text: str, found: re.Pattern[str]) -> str:
    first, *rest = text.split(_JOINER)
    ends = {each.end() for each in found.finditer(first + "".join(rest))}
    pieces, at = [first], len(first)
    for piece in rest:
        pieces.append(piece if at in ends else _JOINER + piece)
        at += len(piece)
    return "".join(pieces)
