"""Defines `ToolCall`, and reads calls from all JSON forms ("envelopes") in which models and providers write them.

These rules apply to native calls, calls in text and emulated calls:

- The name is in `name`, `toolName`, `tool`, `tool_name` or `function.name`. If none of them exists and `function` is a
  string, that string is the name. The arguments are in `arguments`, `parameters`, `input` or `args`. If two of these
  keys have different values, the call is rejected. Other keys are ignored. But a call in text without arguments is
  rejected if another key may hold them.
- The arguments are an object, or a string that contains a JSON object. `""`, null, the string `"null"` and a missing
  key mean `{}`. Any other value is an error, because a tool must not run with arguments that the model did not write.
- The input of a custom tool may be any text. It becomes the argument `input`.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from streamtools.errors import CheckedStruct, Code
from streamtools.json_values import Decoded, Rejected, decode_json
from streamtools.limits import DEFAULT_LIMITS, Limits

NAME_FIELDS = ("name", "toolName", "tool", "tool_name")
ARGUMENT_FIELDS = ("arguments", "parameters", "input", "args")
ID_FIELDS = ("call_id", "tool_call_id", "toolCallId", "id")  # in Responses, `id` is the item's id

_ROLES = {
    **dict.fromkeys(NAME_FIELDS, "name"),
    **dict.fromkeys(ARGUMENT_FIELDS, "arguments"),
    **dict.fromkeys(ID_FIELDS, "id"),
}

NATIVE = "native"
"""The value of `ToolCall.dialect` for native calls."""

EMULATED = "emulated_"
"""The prefix of the ids of emulated calls.

A call is emulated if a model without native calls named it in the answer to a separate request. The `dialect` of the
call is `NATIVE`.
"""

_CUSTOM = ("custom", "custom_tool_call")  # the types of custom calls in chat completions and in Responses
IdFactory = Callable[[], str]

_made_here = re.compile(r"call_[\w-]{12}", re.ASCII)  # an id that `new_call_id` returned


class ToolCall(CheckedStruct, frozen=True, kw_only=True, omit_defaults=True, repr_omit_defaults=True):
    """A complete, well-formed call.

    - `id` is unique in the run. `provider_id` is the id that the model or the provider sent, or None.
    - `dialect` is the syntax of a call in text, or `"native"` if the provider sent the call separately from the text.
    - `raw` is the exact text of a call in text, including its markers. If the model wrote several calls as one array,
      each call has a part of the array's text. For a native call, `raw` is empty. The only exception is a malformed
      native call in a history, where `raw` is the text of the arguments.
    - `repaired` is true if the JSON had a fault that was repaired.
    - `signature` must be in the next request to the provider, unchanged. `own` maps a message format to other fields
      of the call that the next request must contain.
    """

    id: str
    name: str
    arguments: dict[str, Any]
    dialect: str
    raw: str = ""
    repaired: bool = False
    provider_id: str | None = None
    signature: str | None = None
    own: dict[str, Any] | None = None

    @property
    def is_native(self) -> bool:
        """Whether the provider sent the call separately from the text. Such a call cannot be quoted text."""
        return self.dialect == NATIVE and not self.id.startswith(EMULATED)

    def fingerprint(self) -> str:
        """Return a string that is equal for two calls only if their names and arguments are equal. 1.0 equals 1."""
        return _canonical([self.name, one_number(self.arguments)])

    @property
    def digest(self) -> str:
        """The SHA-256 digest of the name and the arguments, as hexadecimal digits."""
        return hashlib.sha256(self.fingerprint().encode("utf-8", "surrogatepass")).hexdigest()


_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode


def one_number(value: Any) -> Any:
    """Return a value in which whole floats are integers, as JavaScript serializes them. 50.0 becomes 50."""
    if isinstance(value, dict):
        return {name: one_number(member) for name, member in value.items()}
    if isinstance(value, list):
        return [one_number(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


class ToolChoice(NamedTuple):
    """Restricts the calls of a turn. `mode` is one of these words:

    - `auto`: any calls are allowed.
    - `none`: no call is allowed.
    - `required`: at least one call is required.
    - `tool`: exactly one call is required, of the tool `name`.
    """

    mode: Literal["auto", "none", "required", "tool"] = "auto"
    name: str | None = None

    def find_violation(self, calls: Sequence[ToolCall]) -> ChoiceViolation | None:
        """Return how the calls of a complete turn violate this choice, or None. If they do, no call may run."""
        if self.mode == "none" and calls:
            return ChoiceViolation("`tool_choice` forbids tool calls", fatal=False)
        if self.mode == "required" and not calls:
            return ChoiceViolation("`tool_choice` requires a tool call, and the model made none", fatal=True)
        if self.mode == "tool" and [call.name for call in calls] != [self.name]:
            called = ", ".join(call.name[:64] for call in calls) or "none"
            return ChoiceViolation(f"`tool_choice` requires one call of {self.name}; called: {called}", fatal=True)
        return None


class ChoiceViolation(NamedTuple):
    """A violation of a `ToolChoice`. The calls of the turn must not run. If `fatal` is true, the run fails."""

    message: str
    fatal: bool


def new_call_id() -> str:
    """Return a new id: `call_` followed by twelve random characters."""
    return "call_" + secrets.token_urlsafe(9)


def is_made_here(id: str) -> bool:
    """Return whether streamtools generated an id. Calls in text and native calls without an id get generated ids.

    >>> is_made_here(new_call_id()), is_made_here("emulated_5_0"), is_made_here("call_4iNmq2vWZ0k3cXyT8dRb71Uf")
    (True, True, False)
    """
    return id.startswith(EMULATED) or _made_here.fullmatch(id) is not None


class UnreadCall(msgspec.Struct, frozen=True):
    """The content of an envelope before its arguments are read: the name, and the value of each argument field."""

    name: str
    arguments: list[Any]
    provider_id: str | None


class ReadCall(msgspec.Struct, frozen=True):
    """The content of an envelope after the rules of this module were applied."""

    name: str
    arguments: dict[str, Any]
    provider_id: str | None
    repaired: bool = False


def read_arguments(value: Any, *, limits: Limits = DEFAULT_LIMITS) -> Decoded:
    """Read arguments by the rules of this module. Raises `Rejected` if `value` does not contain an object."""
    if isinstance(value, dict):
        return Decoded(value, False)
    if value is None or value == "":
        return Decoded({}, False)
    if not isinstance(value, str):
        raise Rejected(Code.INVALID_ARGUMENTS, f"the arguments are {_kind(value)}, not an object")
    try:
        decoded = decode_json(value, limits=limits)
    except Rejected as error:
        if error.code is not Code.INVALID_JSON:
            raise
        raise Rejected(Code.INVALID_ARGUMENTS, f"the arguments are a string that is not JSON: {error}") from None
    if decoded.value is None:  # Llama on Groq writes "null" for tools without parameters
        return Decoded({}, False)
    if not isinstance(decoded.value, dict):
        raise Rejected(Code.INVALID_ARGUMENTS, f"the arguments are a string that holds {_kind(decoded.value)}")
    return decoded


def read_envelope(value: Any, *, limits: Limits = DEFAULT_LIMITS) -> ReadCall:
    """Read a decoded JSON value as a call. Raises `Rejected` if it is not a valid call."""
    unread = unwrap(value)
    read = [read_arguments(given, limits=limits) for given in unread.arguments]
    arguments = _agree([decoded.value for decoded in read], "arguments") or {}
    return ReadCall(unread.name, arguments, unread.provider_id, any(decoded.repaired for decoded in read))


def unwrap(value: Any) -> UnreadCall:
    """Return the name of a call and its unread arguments.

    Raises `Rejected` if the call is not an object, has no name, or has different names.
    """
    if not isinstance(value, Mapping):
        raise Rejected(Code.UNRECOGNISED_TOOL_CALL, f"a call is an object, and this is {_kind(value)}")
    names: list[Any] = []
    found: list[Any] = []
    provider_id: str | None = None
    value = custom_as_function(value)
    function = value.get("function")
    for holder in (value, function) if isinstance(function, Mapping) else (value,):
        for key, member in holder.items():
            role = _ROLES.get(key)
            if role is None or member is None:
                continue
            if role == "name":
                names.append(member)
            elif role == "arguments":
                found.append(member)
            elif provider_id is None and holder is value and isinstance(member, str | int) and member != "":
                provider_id = str(member)
    if not names and isinstance(function, str):
        names.append(function)
    name = _agree(names, "tool names")
    if not isinstance(name, str) or not name.strip():
        raise Rejected(Code.MISSING_TOOL_NAME, "the call has no tool name")
    return UnreadCall(name, found, provider_id)


def reject_misplaced(call: Mapping[str, Any], parameters: Collection[str]) -> None:
    """Raise `Rejected` if another key may hold the arguments of a call without arguments.

    This is one of the tool's `parameters` or, if the call has no key for arguments, an unknown key with an object or an
    array.
    """
    function = call.get("function")
    members: dict[str, Any] = {**call, **(function if isinstance(function, Mapping) else {})}
    absent = members.keys().isdisjoint(ARGUMENT_FIELDS)
    for key, member in members.items():
        may_hold = key in parameters or (absent and member and isinstance(member, dict | list))
        if may_hold and key not in _ROLES and key not in ("type", "function"):
            raise Rejected(Code.INVALID_ARGUMENTS, f"the call has no arguments; `{key[:64]}` may hold them")


def custom_as_function(call: Any) -> Any:
    """Return a custom call as a function call with the argument `input`. Returns any other value unchanged."""
    if not isinstance(call, Mapping) or call.get("type") not in _CUSTOM:
        return call
    inner = call.get("custom")
    inner = inner if isinstance(inner, Mapping) else call
    text = inner.get("input")
    ids = {key: call[key] for key in ID_FIELDS if key in call}
    return {**ids, "name": inner.get("name"), "input": {"input": text}} if isinstance(text, str) else call


def _agree(values: list[Any], field: str) -> Any:
    """Return the first of `values`, or None if there are none. Raises `Rejected` if they differ.

    The comparison uses their JSON, so that 1 and true differ.
    """
    if not values:
        return None
    if len(values) > 1 and len({json.dumps(value, sort_keys=True) for value in values}) > 1:
        raise Rejected(Code.CONFLICTING_FIELDS, f"the call holds two different {field}")
    return values[0]


def _kind(value: Any) -> str:
    names = {list: "an array", str: "a string", bool: "a boolean", int: "a number", float: "a number"}
    return "null" if value is None else names.get(type(value), type(value).__name__)
