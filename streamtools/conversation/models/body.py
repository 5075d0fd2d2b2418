"""What the bodies of all requests have in common: options that are merged into them, and the tools with the choice.

Options are a provider's own, spelled as it spells them. The few that every provider has are also understood in
OpenAI's spelling, and put where the provider looks for them.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Literal

from streamtools.conversation.models.base import Ask
from streamtools.tools import ToolRegistry

Body = dict[str, Any]


def definitions(ask: Ask, format: Literal["openai", "responses", "anthropic", "gemini", "ollama"]) -> list[Body]:
    """Return the tools of a request in a provider's form."""
    return ToolRegistry(*ask.tools).definitions(format)


def merge(body: Body, *options: Mapping[str, Any]) -> Body:
    """Return `body` with `options`, of which the later count: objects are merged, tools added, None takes a member out.

    >>> merge({"stream": True, "stream_options": {"include_usage": True}}, {"stream_options": None, "seed": 1})
    {'stream': True, 'seed': 1}
    """
    merged = dict(body)
    for each in options:
        for key, value in each.items():
            present = merged.get(key)
            if value is None:
                merged.pop(key, None)
            elif isinstance(value, Mapping):
                merged[key] = merge(present if isinstance(present, dict) else {}, value)
            elif key == "tools" and isinstance(present, list):
                merged[key] = [*present, *copy.deepcopy(value)]
            else:
                merged[key] = copy.deepcopy(value)
    return merged


def place(options: Mapping[str, Any], inside: str, names: Mapping[str, str]) -> Body:
    """Return `options` with those that `names` lists under their names of this provider, in the object `inside`.

    Without `inside` they stay where they are. None stays None, so that it takes out what is merged before it.

    >>> place({"max_tokens": 9, "think": True}, "options", {"max_tokens": "num_predict"})
    {'options': {'num_predict': 9}, 'think': True}
    """
    placed: Body = {}
    for key, value in options.items():
        if inside and key in names:
            placed[inside] = {**(placed.get(inside) or {}), names[key]: value}
        elif inside and key == inside and isinstance(value, Mapping):
            placed[inside] = {**(placed.get(inside) or {}), **value}
        else:
            placed[names.get(key, key)] = value
    return placed


def complete(body: Body, *options: Mapping[str, Any], inside: str = "", names: Mapping[str, str]) -> Body:
    """Return `body` with `options`, each in its place; one stop word becomes a list, where OpenAI takes either.

    >>> complete({"model": "m"}, {"stop": "END", "seed": 1}, {"seed": None}, names={"stop": "stop_sequences"})
    {'model': 'm', 'stop_sequences': ['END']}
    """
    merged = merge(body, *(place(each, inside, names) for each in options))
    home = merged.get(inside, {}) if inside else merged
    stop = names.get("stop", "")
    if isinstance(home.get(stop), str):
        home[stop] = [home[stop]]
    if inside in merged and not home:
        del merged[inside]
    return merged
