"""Defines size limits on data from a model. Larger data is rejected with a code.

`streamtools.serving` defines the limits on data from clients.
"""

from __future__ import annotations

from streamtools.errors import CheckedStruct, check_number


class Limits(CheckedStruct, frozen=True, kw_only=True):
    """Limits on the data of one response. Data beyond a limit is reported once and skipped without being stored.

    - `call`: the maximum number of characters of one call, including its markers.
    - `depth`: the maximum nesting depth of JSON.
    - `digits`: the maximum number of digits of one JSON number.
    - `values`: the maximum number of values in one JSON text.
    - `calls`: the maximum number of calls in one turn.
    - `frame`: the maximum number of bytes of one SSE event or NDJSON line.
    - `text`: the maximum number of stored characters of one turn.
    """

    call: int = 2 * 1024 * 1024
    depth: int = 64
    digits: int = 300
    values: int = 100_000
    calls: int = 32
    frame: int = 16 * 1024 * 1024  # Latitude repeats the whole conversation in each event
    text: int = 16 * 1024 * 1024  # compared with the whole text, if the provider sends it at the end

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            check_number(name, getattr(self, name), 0, whole=True)


DEFAULT_LIMITS = Limits()

TOOL_NAME = 64
"""The maximum length in characters of a tool name that OpenAI and Anthropic both accept.

Longer names that a model writes are still read: up to 96 characters in markers, 128 in grammars, and 256 in JSON. The
model then receives an error that lists the existing tools.
"""
