"""What all events share: a `type`, a form as JSON, and the tokens that some of them tell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

import msgspec
from pydantic_core import CoreSchema, core_schema

from streamtools.surrogates import whole_strings

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler

FinishReason: TypeAlias = Literal[
    "stop", "tool_calls", "length", "content_filter", "error", "pause", "cancelled", "other"
]
"""Why a provider's turn ended, in one spelling for all providers; the provider's own is kept beside it."""

_encode = msgspec.json.Encoder().encode


class Event(msgspec.Struct, frozen=True, gc=False, tag_field="type", omit_defaults=True):
    """What all events share: a `type`, and JSON in both directions."""

    type: ClassVar[str]

    def to_json(self) -> str:
        """Return the event as one line of JSON. Half a surrogate pair, which UTF-8 cannot hold, becomes U+FFFD."""
        try:
            return _encode(self).decode()
        except UnicodeEncodeError:
            return _encode(whole_strings(msgspec.to_builtins(self))).decode()

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
            validate,
            serialization=core_schema.plain_serializer_function_ser_schema(msgspec.to_builtins),
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return schema_of(cls)


class Usage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Tokens of one provider turn, or of a run. None means that the provider does not tell.

    `input` includes what was read from a cache, `output` includes reasoning.
    """

    input: int | None = None
    output: int | None = None
    total: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None
    reasoning: int | None = None

    def __add__(self, other: Usage) -> Usage:
        return Usage(**{name: _sum(getattr(self, name), getattr(other, name)) for name in self.__struct_fields__})


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


def _sum(a: int | None, b: int | None) -> int | None:
    return None if a is None and b is None else (a or 0) + (b or 0)
