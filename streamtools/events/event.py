"""Defines the base class of events and the token usage, and estimates the size of events in memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
from pydantic_core import CoreSchema, core_schema

from streamtools.json_values import writable

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler

EMPTY_EVENT = 64
"""The approximate size in bytes of an event without its content."""
LARGE = 4096
"""The text length, in characters, above which `stream/collector.py` processes an event without waiting for others."""
BATCH_BYTES = 256 * 1024
"""The maximum size in bytes of a batch of events that a reader receives. A batch may be larger if it is one event."""
_UNKNOWN_SIZE = 4096  # the assumed size in bytes of an event that cannot be serialized

_encode = msgspec.json.Encoder().encode


class Event(msgspec.Struct, frozen=True, gc=False, tag_field="type", omit_defaults=True):
    """The base class of all events. An event has a `type` and can be serialized as JSON."""

    type: ClassVar[str]

    def to_json(self) -> str:
        """Return the event as one line of JSON. Lone surrogates become U+FFFD, because UTF-8 cannot encode them."""
        try:
            return _encode(self).decode()
        except UnicodeEncodeError:
            return _encode(writable(msgspec.to_builtins(self))).decode()

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        def validate(value: Any) -> Any:
            if isinstance(value, cls):
                return value
            try:
                return msgspec.convert(value, type=cls)
            except msgspec.ValidationError as error:
                raise ValueError(str(error)) from None

        return core_schema.no_info_plain_validator_function(
            validate, serialization=core_schema.plain_serializer_function_ser_schema(msgspec.to_builtins)
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return schema_of(cls)


class RuledEvent(Event, frozen=True, gc=True, dict=True):
    """An event whose content may have been changed by text rules. It can store the original content."""

    @property
    def written(self) -> Any:
        """The original content from the model, for the history. For a `ValidPartial`, its validated value.

        None if no rule has changed the content, or if the event was deserialized.
        """
        return self.__dict__.get("written")

    def set_written(self, written: Any) -> None:
        """Store the value of `written`. It is never serialized."""
        self.__dict__["written"] = written


class Usage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Token counts of one provider turn or of a run. A value is None if the provider does not report it.

    `input` includes tokens read from a cache. `output` includes reasoning. `cost` is the price in the currency of the
    provider. OpenRouter, for example, reports it in US dollars.
    """

    input: int | None = None
    output: int | None = None
    total: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None
    reasoning: int | None = None
    cost: float | None = None

    def __add__(self, other: Usage) -> Usage:
        pairs = ((name, getattr(self, name), getattr(other, name)) for name in self.__struct_fields__)
        sums: dict[str, Any] = {name: a if b is None else b if a is None else a + b for name, a, b in pairs}
        return Usage(**sums)


def weigh(event: Event) -> int:
    """Return the approximate size of an event in bytes, from its text, or from its JSON if it has no text."""
    text = getattr(event, "text", None)
    try:
        size = size_of(text if type(text) is str else event.to_json())
    except Exception:  # it contains data of a tool or an SDK that cannot be serialized
        return _UNKNOWN_SIZE
    return EMPTY_EVENT + size + len(getattr(event, "signature", None) or "")


def size_of(text: str) -> int:
    """Return the size of a text in memory, in bytes. ASCII needs one byte per character, other text up to four."""
    return len(text) if text.isascii() else text.__sizeof__()


def batch_length(events: Iterable[Event]) -> int:
    """Return how many of the first events fit into one batch. At least one event always fits."""
    count, remaining = 0, BATCH_BYTES
    for event in events:
        remaining -= weigh(event)
        if remaining < 0 and count:
            break
        count += 1
    return count


def schema_of(types: Any) -> dict[str, Any]:
    """Return the JSON schema (2020-12) of an event type or a union of event types. It contains no references."""
    (schema,), definitions = msgspec.json.schema_components([types], ref_template="#/{name}")

    def inline(node: Any) -> Any:
        if isinstance(node, dict):
            if "$ref" in node:
                return inline(definitions[node["$ref"].removeprefix("#/")])
            return {key: inline(value) for key, value in node.items() if key != "discriminator"}
        return [inline(item) for item in node] if isinstance(node, list) else node

    inlined: dict[str, Any] = inline(schema)
    return inlined
