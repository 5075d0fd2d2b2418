"""The JSON schema of a type, as pydantic writes it and as models need it."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode

from streamtools.tools.schemas import JsonSchema, complete


class Schema(GenerateJsonSchema):
    """A schema as models need it: no titles that repeat a parameter's name, no complaint about odd defaults."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        """Return False: the name says it."""
        return False

    def emit_warning(self, kind: Any, detail: str) -> None:
        """Do nothing: a default that no JSON can show is merely not shown."""


def schema_of(adapter: TypeAdapter[Any], mode: JsonSchemaMode = "validation") -> JsonSchema:
    """Return the schema of a type, with what it is at the top, also if it refers to itself."""
    schema = adapter.json_schema(schema_generator=Schema, mode=mode)
    if "$ref" in schema:
        schema = {**schema["$defs"][schema["$ref"].rpartition("/")[2]], "$defs": schema["$defs"]}
    schema.pop("title", None)
    return complete(schema)
