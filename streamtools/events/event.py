"""What all events share: a `type`, a form as JSON, and the tokens that some of them tell."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
from pydantic_core import CoreSchema, core_schema

from streamtools.json_values import writable

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler

ITSELF = 64
"""Bytes of an event without what it holds, about."""
LARGE = 4096
"""Characters from which one is counted at once; smaller ones are counted together."""
AT_ONCE = 256 * 1024
"""Bytes that a reader takes together, or one event."""
_UNKNOWN = 4096  # of an event that cannot be written

_encode = msgspec.json.Encoder().encode


class Event(msgspec.Struct, frozen=True, gc=False, tag_field="type", omit_defaults=True):
    """What all events share: a `type`, and JSON in both directions."""

    type: ClassVar[str]

    def to_json(self) -> str:
        """Return the event as one line of JSON. Half a surrogate pair, which UTF-8 cannot hold, becomes U+FFFD."""
        try:
            return _encode(self).decode()
        except UnicodeEncodeError:
            return _encode(writable(msgspec.to_builtins(self))).decode()

    def _weigh(self) -> int:
        """Return about how many bytes it holds, if it is no text."""
        try:
            return ITSELF + size_of(self.to_json())
        except Exception:  # of what a tool or an SDK has given us and JSON does not know
            return _UNKNOWN

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


class Kept(Event, frozen=True, gc=True, dict=True):
    """An event of which rules may have changed what it shows of the model's words."""

    @property
    def written(self) -> Any:
        """What the model wrote, for a history that has it as it was written; in this process alone, and else None."""
        return self.__dict__.get("written")

    def keep(self, written: Any) -> None:
        """Keep what the model wrote."""
        self.__dict__["written"] = written


class Usage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Tokens of one provider turn, or of a run. None means that the provider does not tell.

    `input` includes what was read from a cache, `output` includes reasoning. `cost` is what the provider charges, in
    its own currency, where it tells (OpenRouter: US dollars).
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
    """Return about how many bytes an event holds: itself, and its text or else its JSON."""
    text = getattr(event, "text", None)
    if type(text) is str:
        return ITSELF + size_of(text) + len(getattr(event, "signature", None) or "")
    return event._weigh()


def size_of(text: str) -> int:
    """Return how many bytes of memory a text takes: of ASCII its characters, of others up to four times as many."""
    return len(text) if text.isascii() else text.__sizeof__()


def is_large(event: Event) -> bool:
    """Return whether an event is counted at once."""
    text = getattr(event, "text", None)
    return len(text) > LARGE if type(text) is str else event._weigh() > LARGE + ITSELF


def taken_together(events: Iterable[Event]) -> int:
    """Return how many of the first events a reader takes at once."""
    count, room = 0, AT_ONCE
    for event in events:
        room -= weigh(event)
        if room < 0 and count:
            break
        count += 1
    return count


def schema_of(types: Any) -> dict[str, Any]:
    """Return the JSON schema (2020-12) of one event type or of a union of them, with no references to elsewhere."""
    (schema,), definitions = msgspec.json.schema_components([types], ref_template="#/{name}")

    def inline(node: Any) -> Any:
        if isinstance(node, dict):
            if "$ref" in node:
                return inline(definitions[node["$ref"].removeprefix("#/")])
            return {key: inline(value) for key, value in node.items() if key != "discriminator"}
        return [inline(each) for each in node] if isinstance(node, list) else node

    inlined: dict[str, Any] = inline(schema)
    return inlined
