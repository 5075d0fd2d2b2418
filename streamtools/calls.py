"""One canonical `ToolCall` out of any envelope.

Models and providers wrap the same two facts, a name and its arguments, in a dozen ways. This module is the only place
that unwraps them, so that one rule holds for native calls, calls in text and emulated calls alike:

- the name stands under `name`, `toolName`, `tool`, `tool_name` or `function.name` (a `function` that is a string counts
  where none of these does); the arguments under `arguments`, `parameters`, `input` or `args`. Two different values for
  one of the two are a conflict; other keys are ignored.
- arguments are an object, or a string that holds the JSON of one; `""`, null and a missing key mean `{}`. Anything else
  is an error, never `{}`: a tool must not run with arguments that the model did not write.

JSON is read by the standard library's C scanner, with hooks that refuse what RFC 8259 leaves open and parsers disagree
about: duplicate keys, `NaN` and infinities, endless numbers, lone surrogates. Most calls are short and hold none of
these; msgspec reads them in half of the time.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections import Counter
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NoReturn

import msgspec

from streamtools.errors import Code

NAME_FIELDS = ("name", "toolName", "tool", "tool_name")
ARGUMENT_FIELDS = ("arguments", "parameters", "input", "args")
ID_FIELDS = ("id", "call_id", "tool_call_id", "toolCallId")

_ROLES = {
    **dict.fromkeys(NAME_FIELDS, "name"),
    **dict.fromkeys(ARGUMENT_FIELDS, "arguments"),
    **dict.fromkeys(ID_FIELDS, "id"),
}
_msgspec_decode = msgspec.json.Decoder().decode
_HALF_PAIR = re.compile(r"\\u[dD][89a-fA-F]")  # an escaped surrogate, paired or not: cheap to look for, rare to find


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds on what one model may make us hold. What goes beyond is reported once and skipped without being stored."""

    call: int = 2 * 1024 * 1024
    """Characters of one call, its markers included."""
    depth: int = 64
    """Nesting of JSON."""
    digits: int = 300
    """Digits of one JSON number."""
    calls: int = 32
    """Calls in one turn."""
    frame: int = 16 * 1024 * 1024
    """Bytes of one SSE event or one line of NDJSON. Latitude repeats the whole conversation in each event."""
    text: int = 16 * 1024 * 1024
    """Characters of one turn that are kept to be compared with the provider's completed text."""


DEFAULT_LIMITS = Limits()

NATIVE = "native"
"""The `dialect` of native calls."""


class ToolCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, repr_omit_defaults=True):
    """A complete, well-formed call, whichever way it was written.

    `dialect` is how it was written, `NATIVE` for one that the provider told beside the text. `raw` is the exact text
    that was hidden from the reader, markers included; several calls from one array share out that text between them,
    and native calls have none. `provider_id` is an id that the model or the provider wrote; `id` is unique in the run.
    `signature` is a provider's own, and goes back to it unchanged with the call.
    """

    id: str
    name: str
    arguments: dict[str, Any]
    dialect: str
    raw: str = ""
    repaired: bool = False
    provider_id: str | None = None
    signature: str | None = None

    def fingerprint(self) -> str:
        """Return a text that is equal for two calls exactly when their names and arguments are."""
        return json.dumps([self.name, self.arguments], sort_keys=True, separators=(",", ":"))

    @property
    def digest(self) -> str:
        """A digest of the name and the arguments: SHA-256, in hexadecimal."""
        return hashlib.sha256(self.fingerprint().encode("utf-8", "surrogatepass")).hexdigest()


def compact(value: Any) -> str:
    """Return `value` as JSON without white space, characters as they are."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def new_call_id() -> str:
    """Return `call_` and twelve characters that cannot be guessed."""
    return "call_" + secrets.token_urlsafe(9)


class Rejected(ValueError):
    """Why a text is no call: a stable code, and a sentence for the model that wrote it. Stays inside the package."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Decoded(msgspec.Struct, frozen=True):
    """A JSON value, and whether its text had a fault: raw control characters in strings, say, that were let through."""

    value: Any
    repaired: bool


class Written(msgspec.Struct, frozen=True):
    """What stands in an envelope: the name, and the arguments as they were written, of each place that has some."""

    name: str
    arguments: list[Any]
    provider_id: str | None


class Envelope(msgspec.Struct, frozen=True):
    """What an envelope says, by the rules of this module."""

    name: str
    arguments: dict[str, Any]
    provider_id: str | None
    repaired: bool = False


def decode_json(text: str, *, strict: bool = False, limits: Limits = DEFAULT_LIMITS) -> Decoded:
    """Return the value that `text` is the JSON of; raise `Rejected` with the code of what is wrong with it.

    Raw control characters inside strings are read as themselves and reported as `repaired`, unless `strict`.
    """
    plain = _decode_plain(text, limits)
    if plain is not None:
        return Decoded(plain, False)
    repaired = False
    try:
        try:
            value = _decoder(limits.digits, True).decode(text)
        except json.JSONDecodeError as error:
            if strict or not error.msg.startswith("Invalid control character"):
                raise
            value = _decoder(limits.digits, False).decode(text)
            repaired = True
    except json.JSONDecodeError as error:
        raise Rejected(Code.INVALID_JSON, f"{error.msg} at character {error.pos}") from None
    except RecursionError:
        raise Rejected(Code.TOO_DEEP, f"nested deeper than {limits.depth}") from None
    if text.count("{") + text.count("[") > limits.depth and _depth(value) > limits.depth:
        raise Rejected(Code.TOO_DEEP, f"nested deeper than {limits.depth}")
    if not _is_utf8(text) or (_HALF_PAIR.search(text) and not _is_utf8(json.dumps(value, ensure_ascii=False))):
        raise Rejected(Code.LONE_SURROGATE, "a string holds half of a surrogate pair")
    return Decoded(value, repaired)


def read_arguments(value: Any, *, strict: bool = False, limits: Limits = DEFAULT_LIMITS) -> Decoded:
    """Return the arguments that `value` stands for, by the rule at the top; raise `Rejected`."""
    if isinstance(value, dict):
        return Decoded(value, False)
    if value is None or value == "":
        return Decoded({}, False)
    if not isinstance(value, str):
        raise Rejected(Code.INVALID_ARGUMENTS, f"the arguments are {_kind(value)}, not an object")
    try:
        decoded = decode_json(value, strict=strict, limits=limits)
    except Rejected as error:
        if error.code is not Code.INVALID_JSON:
            raise
        raise Rejected(Code.INVALID_ARGUMENTS, f"the arguments are a string that is not JSON: {error}") from None
    if not isinstance(decoded.value, dict):
        raise Rejected(Code.INVALID_ARGUMENTS, f"the arguments are a string that holds {_kind(decoded.value)}")
    return decoded


def read_envelope(value: Any, *, strict: bool = False, limits: Limits = DEFAULT_LIMITS) -> Envelope:
    """Return the name and the arguments that a decoded JSON value wraps; raise `Rejected`."""
    if type(value) is dict and len(value) == 2:  # what nearly all calls are: a name, and an object
        (first, name), (second, arguments) = value.items()
        known = _ROLES.get(first) == "name" and _ROLES.get(second) == "arguments"
        if known and type(name) is str and type(arguments) is dict and name.strip():
            return Envelope(name, arguments, None)
    written = unwrap(value)
    found = written.arguments
    if not found:
        return Envelope(written.name, {}, written.provider_id)
    if len(found) == 1 and type(found[0]) is dict:
        return Envelope(written.name, found[0], written.provider_id)
    read = [read_arguments(each, strict=strict, limits=limits) for each in found]
    arguments = _agree([each.value for each in read], "arguments")
    return Envelope(written.name, arguments, written.provider_id, any(each.repaired for each in read))


def unwrap(value: Any) -> Written:
    """Return the name of a call, and its arguments unread; raise `Rejected` for what is no call or names no tool."""
    if type(value) is not dict and not isinstance(value, Mapping):
        raise Rejected(Code.UNRECOGNISED_TOOL_CALL, f"a call is an object, and this is {_kind(value)}")
    names: list[Any] = []
    found: list[Any] = []
    provider_id: str | None = None
    function = value.get("function")
    for place in (value, function) if function is not None and isinstance(function, Mapping) else (value,):
        for key, member in place.items():
            role = _ROLES.get(key)
            if role is None or member is None:
                continue
            if role == "name":
                names.append(member)
            elif role == "arguments":
                found.append(member)
            elif provider_id is None and place is value and isinstance(member, str | int) and member != "":
                provider_id = str(member)
    if not names and isinstance(function, str):
        names.append(function)
    name = names[0] if len(names) == 1 else _agree(names, "tool names")
    if not isinstance(name, str) or not name.strip():
        raise Rejected(Code.MISSING_TOOL_NAME, "the call names no tool")
    return Written(name, found, provider_id)


def _agree(values: list[Any], what: str) -> Any:
    """Return the one value that all of `values` are, or None if there is none. 1 and true are two, unlike in Python."""
    if not values:
        return None
    if len(values) > 1 and len({json.dumps(value, sort_keys=True) for value in values}) > 1:
        raise Rejected(Code.CONFLICTING_FIELDS, f"the call holds two different {what}")
    return values[0]


def _decode_plain(text: str, limits: Limits) -> dict[str, Any] | None:
    """Return the object that a short text is; None if that may hold anything that msgspec lets pass and we do not.

    Those are numbers, which are no longer than the text, levels, which are no more than its brackets or half of its
    characters, and keys that stand twice: a text has a colon for each member, and of members with one key one is left.
    """
    length = len(text)
    if length > limits.digits:
        return None
    if length > 2 * limits.depth and text.count("{") + text.count("[") > limits.depth:
        return None
    try:
        value = _msgspec_decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return value if type(value) is dict and _members(value) == text.count(":") else None


def _members(value: dict[str, Any]) -> int:
    """Return how many members an object has, and those that it holds."""
    count = len(value)
    containers: list[Any] = []
    place: Any = value.values()
    while True:
        for each in place:
            if type(each) is dict:
                count += len(each)
                containers.append(each.values())
            elif type(each) is list:
                containers.append(each)
        if not containers:
            return count
        place = containers.pop()


@lru_cache(maxsize=16)
def _decoder(digits: int, strict: bool) -> json.JSONDecoder:
    def integer(text: str) -> int:
        if len(text) > digits and _digits(text) > digits:
            raise Rejected(Code.NUMBER_TOO_LONG, f"a number has more than {digits} digits")
        try:
            return int(text)
        except ValueError:  # `sys.get_int_max_str_digits()` is less than the limit
            raise Rejected(Code.NUMBER_TOO_LONG, "a number has more digits than Python reads") from None

    def real(text: str) -> float:
        if len(text) > digits and _digits(text) > digits:
            raise Rejected(Code.NUMBER_TOO_LONG, f"a number has more than {digits} digits")
        number = float(text)
        if number in (float("inf"), float("-inf")):
            raise Rejected(Code.NOT_A_NUMBER, f"{text[:40]} is too large for a number")
        return number

    return json.JSONDecoder(
        object_pairs_hook=_object,
        parse_int=integer,
        parse_float=real,
        parse_constant=_constant,
        strict=strict,
    )


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise Rejected(Code.DUPLICATE_KEY, f"the key {twice[:80]!r} stands twice in one object")
    return members


def _constant(name: str) -> NoReturn:
    raise Rejected(Code.NOT_A_NUMBER, f"{name} is not JSON")


def _digits(text: str) -> int:
    return sum(character.isdigit() for character in text)


def _depth(value: Any) -> int:
    """Return how deep containers nest, walking level by level so that no recursion limit is met."""
    depth, level = 0, [value]
    while level := [each for each in level if isinstance(each, dict | list)]:
        depth += 1
        level = [child for each in level for child in (each.values() if isinstance(each, dict) else each)]
    return depth


def _is_utf8(text: str) -> bool:
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


def _kind(value: Any) -> str:
    names = {list: "an array", str: "a string", bool: "a boolean", int: "a number", float: "a number"}
    return "null" if value is None else names.get(type(value), type(value).__name__)


IdFactory = Callable[[], str]
