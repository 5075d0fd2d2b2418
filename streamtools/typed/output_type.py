"""The type of an answer: its JSON schema for the provider, its shape for the reader, and the validation of the whole.

Validation is pydantic's, of the JSON as it was written. A JSON schema that is given in place of a type is held against
the answer as far as its `Shape` goes (types, enumerations, required and forbidden members), and gives plain data.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from streamtools.typed.shape import CoreShapes, json_schema_shape

if TYPE_CHECKING:
    from pydantic import TypeAdapter


class OutputType:
    """What an answer has to be: a pydantic model, a dataclass, a TypedDict, any other type, or a JSON schema."""

    def __init__(self, kind: Any) -> None:
        """Raises what pydantic raises for a type that it cannot validate."""
        self._adapter: TypeAdapter[Any] | None = None
        if isinstance(kind, Mapping):
            self.schema = dict(kind)
            self.shape = json_schema_shape(self.schema)
            self.name = str(kind.get("title", "output"))
        else:
            from pydantic import TypeAdapter  # here, because it takes long to load, and most streams have no type

            self._adapter = TypeAdapter(kind)
            self.schema = self._adapter.json_schema()
            self.shape = CoreShapes(self._adapter.core_schema).of(self._adapter.core_schema)
            self.name = getattr(kind, "__name__", "output")

    def validate(self, text: str) -> Any:
        """Return the validated instance of an answer, of its JSON text. Raises ValueError with what is wrong and where,
        without repeating the answer.
        """
        if self._adapter is None:
            plain = json.loads(text)
            self.shape.check(plain)
            return plain
        from pydantic import ValidationError

        try:
            return self._adapter.validate_json(text)
        except ValidationError as error:
            faults = error.errors(include_url=False, include_context=False, include_input=False)
            lines = [f"{'.'.join(map(str, each['loc'])) or 'the value'}: {each['msg']}" for each in faults[:5]]
            raise ValueError("; ".join(lines)) from None
