"""The base class of events, token usage, and the size of events in memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
from pydantic_core import CoreSchema, core_schema

from streamtools.json_values import writable

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler

EMPTY_EVENT = 64
"""Approximate bytes of an event without its content."""
LARGE = 4096
"""Characters from which an event is counted by itself; smaller ones are counted together."""
BATCH_BYTES = 256 * 1024
"""Bytes that a reader takes in one batch, unless a single event is larger."""
_UNKNOWN_SIZE = 4096  # of an event that cannot be serialized

_encode = msgspec.json.Encoder().encode


class Event(msgspec.Struct, frozen=True, gc=False, tag_field="type", omit_defaults=True):
    """The base class of all events: a `type`, and JSON."""

    type: ClassVar[str]

    def to_json(self) -> str:
        """Return the event as one line of JSON. A lone surrogate, which UTF-8 cannot hold, becomes U+FFFD."""
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
    """An event whose content rules may have changed."""

    @property
    def written(self) -> Any:
        """The content as the model wrote it, for the history; None in another process, or if rules changed nothing."""
        return self.__dict__.get("written")

    def set_written(self, written: Any) -> None:
        """Store the content as the model wrote it."""
        self.__dict__["written"] = written


class Usage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Tokens of one provider turn, or of a run. None means that the provider does not report the value.

    `input` includes tokens read from a cache, and `output` includes reasoning. `cost` is the price in the provider's
    currency, if it reports one (OpenRouter: US dollars).
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
    """Return the approximate size of an event in bytes, from its text or else its JSON."""
    text = getattr(event, "text", None)
    try:
        size = size_of(text if type(text) is str else event.to_json())
    except Exception:  # data of a tool or an SDK that JSON cannot hold
        return _UNKNOWN_SIZE
    return EMPTY_EVENT + size + len(getattr(event, "signature", None) or "")


def size_of(text: str) -> int:
    """Return the memory that a text takes, in bytes: one per character for ASCII, up to four for others."""
    return len(text) if text.isascii() else text.__sizeof__()


def batch_length(events: Iterable[Event]) -> int:
    """Return how many of the first events a reader takes in one batch."""
    count, remaining = 0, BATCH_BYTES
    for event in events:
        remaining -= weigh(event)
        if remaining < 0 and count:
            break
        count += 1
    return count


def schema_of(types: Any) -> dict[str, Any]:
    """Return the JSON schema (2020-12) of an event type or a union of them, without references."""
    (schema,), definitions = msgspec.json.schema_components([types], ref_template="#/{name}")

    def inline(node: Any) -> Any:
        if isinstance(node, dict):
            if "$ref" in node:
                return inline(definitions[node["$ref"].removeprefix("#/")])
            return {key: inline(value) for key, value in node.items() if key != "discriminator"}
        return [inline(item) for item in node] if isinstance(node, list) else node

    inlined: dict[str, Any] = inline(schema)
    return inlined
