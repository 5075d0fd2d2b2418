"""Defines `Model`, the interface of all models, and `Ask`, one request to a model.

An `Ask` is independent of the provider, and so are the chat, emulation and failover that create it. The model class of
a provider converts an `Ask` to the body of that provider's request.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

from streamtools.history import Message, Origin
from streamtools.parsing.dialects import Dialect
from streamtools.parsing.dialects.neutralizing import neutralize_all
from streamtools.sources import Source
from streamtools.tools import Tool, ToolChoice, ToolRegistry
from streamtools.tools.definitions import ProviderFormat
from streamtools.typed import OutputType

AUTO = ToolChoice()

Body = dict[str, Any]


@dataclass(frozen=True)
class Ask:
    """One request to a model.

    `tools` are sent as native definitions. If they are empty, no `tool_choice` is sent. `options` are merged into the
    body after the options of the model. An option of None removes the field from the body. `dialects` are the enabled
    dialects, in which results of calls in text are written. If `whole_history` is True, the request contains the whole
    history, even if the provider stores a part of it. `prefill` is the beginning of the answer, which the model
    continues. It is not sent if the model's server does not support prefills. `output` is the type of the answer, for a
    provider that accepts a schema.
    """

    history: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = AUTO
    options: Mapping[str, Any] = field(default_factory=dict)
    dialects: tuple[Dialect, ...] = ()
    whole_history: bool = False
    prefill: str = ""
    output: OutputType | None = None


class Model(Protocol):
    """A model that answers requests. It keeps no state between requests."""

    @property
    def name(self) -> str:
        """The name by which the provider knows the model."""

    @property
    def native_tool_calls(self) -> bool | None:
        """Whether the model makes native calls; None if unknown."""

    def body(self, ask: Ask) -> Body:
        """Return the body of the request. Has no side effects."""

    def stream(self, ask: Ask) -> AbstractAsyncContextManager[Source]:
        """Send the request on entry, and close the response on exit.

        A failure of the provider or the network is an event of the source. An exception means an error of the caller.
        """


def origin_of(model: object) -> Origin:
    """Return the origin of a model's answers. A model without an `origin` gets one with its name."""
    origin = getattr(model, "origin", None)
    return origin if isinstance(origin, Origin) else Origin(model=getattr(model, "name", None))


# Bodies of requests. Options have the provider's names. Common options may also have OpenAI's names: these are renamed,
# and moved to the object in which the provider expects them.


def add_tools(body: Body, ask: Ask, format: ProviderFormat, write_choice: Callable[[ToolChoice], Body]) -> Body:
    """Return `body` with the tools and the tool choice of `ask`. `write_choice` returns the fields of a tool choice."""
    if not ask.tools:
        return body
    choice = write_choice(ask.tool_choice) if ask.tool_choice.mode != "auto" else {}
    return body | {"tools": tool_definitions(ask, format)} | choice


def tool_definitions(ask: Ask, format: ProviderFormat) -> list[Body]:
    """Return the tools of `ask` in the format of a provider.

    Each description is neutralized in the dialects of `ask`, so that a model that repeats it makes no call.
    """
    definitions = ToolRegistry(*ask.tools).accepted_by(format).definitions(format)
    return neutralize_all(definitions, ask.dialects) if ask.dialects else definitions


def add_options(
    body: Body, *options: Mapping[str, Any], inside: str = "", names: Mapping[str, str] = MappingProxyType({})
) -> Body:
    """Return `body` with `options` merged into it, in order, under the provider's names.

    `names` maps accepted names to the provider's names. If `inside` is the name of an object, the options in `names`
    are moved into this object. If `names` contains `stop`, a single stop word becomes a list.

    >>> add_options({"model": "m"}, {"stop": "END", "seed": 1}, {"seed": None}, names={"stop": "stop_sequences"})
    {'model': 'm', 'stop_sequences': ['END']}
    """
    merged = merge(body, *(place_options(each, inside, names) for each in options))
    holder = merged.get(inside, {}) if inside else merged
    stop = names.get("stop", "")
    if isinstance(holder.get(stop), str):
        holder[stop] = [holder[stop]]
    if inside in merged and not holder:
        del merged[inside]
    return merged


def place_options(options: Mapping[str, Any], inside: str, names: Mapping[str, str]) -> Body:
    """Return `options` under the provider's names. `inside` and `names` are the parameters of `add_options`.

    A value of None is kept, so that `merge` removes the field.

    >>> place_options({"max_tokens": 9, "think": True}, "options", {"max_tokens": "num_predict"})
    {'options': {'num_predict': 9}, 'think': True}
    """
    placed: Body = {}
    for key, value in options.items():
        if inside and (key in names or (key == inside and isinstance(value, Mapping))):
            placed[inside] = {**(placed.get(inside) or {}), **({names[key]: value} if key in names else value)}
        else:
            placed[names.get(key, key)] = value
    return placed


def merge(body: Body, *options: Mapping[str, Any]) -> Body:
    """Return `body` with `options`, where later values replace earlier ones.

    Three values are special: an object is merged into an earlier object, `tools` are appended to earlier tools, and
    None removes the field.

    >>> merge({"stream": True, "stream_options": {"include_usage": True}}, {"stream_options": None, "seed": 1})
    {'stream': True, 'seed': 1}
    """
    merged = dict(body)
    for given in options:
        for key, value in given.items():
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
