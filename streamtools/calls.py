"""One canonical `ToolCall` out of any envelope.

Models and providers wrap the same two facts, a name and its arguments, in a dozen ways. This module is the only place
that unwraps them, so that one rule holds for native calls, calls in text and emulated calls alike:

- the name stands under `name`, `toolName`, `tool`, `tool_name` or `function.name` (a `function` that is a string counts
  where none of these does); the arguments under `arguments`, `parameters`, `input` or `args`. Two different values for
  one of the two are a conflict; other keys are ignored.
- arguments are an object, or a string that holds the JSON of one; `""`, null, the string `"null"` and a missing key
  mean `{}`. Anything else is an error, never `{}`: a tool must not run with arguments that the model did not write.
- the input of a custom tool is text of any form, and becomes the argument `input`.

Below stands the one reader of finished responses: what a provider sends without streaming, and where its calls are.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from streamtools.errors import Code
from streamtools.json_values import Decoded, Rejected, as_dict, decode_json
from streamtools.limits import DEFAULT_LIMITS, Limits

NAME_FIELDS = ("name", "toolName", "tool", "tool_name")
ARGUMENT_FIELDS = ("arguments", "parameters", "input", "args")
ID_FIELDS = ("call_id", "tool_call_id", "toolCallId", "id")  # in Responses, an item has its own beside the call's

_ROLES = {
    **dict.fromkeys(NAME_FIELDS, "name"),
    **dict.fromkeys(ARGUMENT_FIELDS, "arguments"),
    **dict.fromkeys(ID_FIELDS, "id"),
}

NATIVE = "native"
"""The `dialect` of native calls."""

EMULATED = "emulated_"
"""What the ids of emulated calls begin with: they go the way of native ones, and were read in what the model wrote."""

BLOCKS = ("tool_use", "function_call", "function")
"""The `type` of a call in a list of blocks; there, one without a type is a call too."""
_CUSTOM = ("custom", "custom_tool_call")  # in chat completions, and in Responses
ITEMS = ("function_call", "custom_tool_call")
"""The `type` of a call among items of Responses."""

IdFactory = Callable[[], str]

_made_here = re.compile(r"call_[\w-]{12}", re.ASCII)


class ToolCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, repr_omit_defaults=True):
    """A complete, well-formed call, whichever way it was written.

    `dialect` is how it was written, `NATIVE` for one that the provider sent beside the text. `raw` is the exact text
    that was hidden from the reader, markers included; several calls from one array share out that text between them,
    and native calls have none, but for malformed ones of a history, whose `raw` is what stood for their arguments.
    `provider_id` is an id that the model or the provider wrote; `id` is unique in the run. `signature` is a provider's
    own, and goes back to it unchanged with the call; so does `own`, what it put beside the call, by its format.
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
        """Whether the provider sent the call apart from the text, so that nobody but the model can have written it."""
        return self.dialect == NATIVE and not self.id.startswith(EMULATED)

    def fingerprint(self) -> str:
        """Return a text that is equal for two calls exactly when their names and arguments are; 1.0 is 1."""
        written = _canonical([self.name, self.arguments])
        if ".0" in written or "e+" in written:  # it may hold a whole number that is written as a fraction
            written = _canonical([self.name, one_number(self.arguments)])
        return written

    @property
    def digest(self) -> str:
        """A digest of the name and the arguments: SHA-256, in hexadecimal."""
        return hashlib.sha256(self.fingerprint().encode("utf-8", "surrogatepass")).hexdigest()


_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode


def one_number(value: Any) -> Any:
    """Return a value with whole numbers written in one way: JavaScript knows no other, and gives 50.0 back as 50."""
    if isinstance(value, dict):
        return {name: one_number(each) for name, each in value.items()}
    if isinstance(value, list):
        return [one_number(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


class ToolChoice(NamedTuple):
    """`auto` (as the model likes), `none`, `required` (at least one call), or `tool`: exactly one call, of `name`."""

    mode: Literal["auto", "none", "required", "tool"] = "auto"
    name: str | None = None

    def find_violation(self, calls: Sequence[ToolCall]) -> ChoiceViolation | None:
        """Return how the calls of a complete turn violate this choice, or None. After a violation, none may run."""
        if self.mode == "none" and calls:
            return ChoiceViolation("no tool was to be called", fatal=False)
        if self.mode == "required" and not calls:
            return ChoiceViolation("a tool was to be called, and none was", fatal=True)
        if self.mode == "tool" and [call.name for call in calls] != [self.name]:
            called = ", ".join(call.name[:64] for call in calls) or "none"
            return ChoiceViolation(f"{self.name} was to be called, once; called: {called}", fatal=True)
        return None


class ChoiceViolation(NamedTuple):
    """Why the calls of a turn must not run. The run fails if the violation is `fatal`."""

    message: str
    fatal: bool


def new_call_id() -> str:
    """Return `call_` and twelve characters that cannot be guessed."""
    return "call_" + secrets.token_urlsafe(9)


def is_made_here(id: str) -> bool:
    """Return whether an id is like ours, of calls in text and of native ones that came without an id.

    >>> is_made_here(new_call_id()), is_made_here("emulated_5_0"), is_made_here("call_4iNmq2vWZ0k3cXyT8dRb71Uf")
    (True, True, False)
    """
    return id.startswith(EMULATED) or _made_here.fullmatch(id) is not None


class UnreadCall(msgspec.Struct, frozen=True):
    """What stands in an envelope: the name, and the arguments as they were written, of each place that has some."""

    name: str
    arguments: list[Any]
    provider_id: str | None


class ReadCall(msgspec.Struct, frozen=True):
    """What an envelope says, by the rules of this module."""

    name: str
    arguments: dict[str, Any]
    provider_id: str | None
    repaired: bool = False


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
    if decoded.value is None:  # Groq's Llama writes it for tools without parameters
        return Decoded({}, False)
    if not isinstance(decoded.value, dict):
        raise Rejected(Code.INVALID_ARGUMENTS, f"the arguments are a string that holds {_kind(decoded.value)}")
    return decoded


def read_envelope(value: Any, *, strict: bool = False, limits: Limits = DEFAULT_LIMITS) -> ReadCall:
    """Return the name and the arguments that a decoded JSON value wraps; raise `Rejected`."""
    if type(value) is dict and len(value) == 2:  # what nearly all calls are: a name, and an object
        (first, name), (second, arguments) = value.items()
        known = _ROLES.get(first) == "name" and _ROLES.get(second) == "arguments"
        if known and type(name) is str and type(arguments) is dict and name.strip():
            return ReadCall(name, arguments, None)
    written = unwrap(value)
    found = written.arguments
    if not found:
        return ReadCall(written.name, {}, written.provider_id)
    if len(found) == 1 and type(found[0]) is dict:
        return ReadCall(written.name, found[0], written.provider_id)
    read = [read_arguments(each, strict=strict, limits=limits) for each in found]
    arguments = _agree([each.value for each in read], "arguments")
    return ReadCall(written.name, arguments, written.provider_id, any(each.repaired for each in read))


def unwrap(value: Any) -> UnreadCall:
    """Return the name of a call, and its arguments unread; raise `Rejected` for what is no call or names no tool."""
    if type(value) is not dict and not isinstance(value, Mapping):
        raise Rejected(Code.UNRECOGNISED_TOOL_CALL, f"a call is an object, and this is {_kind(value)}")
    names: list[Any] = []
    found: list[Any] = []
    provider_id: str | None = None
    value = custom_as_any(value)
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
    return UnreadCall(name, found, provider_id)


def custom_as_any(call: Any) -> Any:
    """Return the call of a custom tool, whose input is text, in the form of any other; and what is none as it is."""
    if not isinstance(call, Mapping) or call.get("type") not in _CUSTOM:
        return call
    inner = call.get("custom")
    inner = inner if isinstance(inner, Mapping) else call
    text = inner.get("input")
    ids = {key: call[key] for key in ID_FIELDS if key in call}
    return {**ids, "name": inner.get("name"), "input": {"input": text}} if isinstance(text, str) else call


def _agree(values: list[Any], what: str) -> Any:
    """Return the one value that all of `values` are, or None if there is none. 1 and true are two, unlike in Python."""
    if not values:
        return None
    if len(values) > 1 and len({json.dumps(value, sort_keys=True) for value in values}) > 1:
        raise Rejected(Code.CONFLICTING_FIELDS, f"the call holds two different {what}")
    return values[0]


def _kind(value: Any) -> str:
    names = {list: "an array", str: "a string", bool: "a boolean", int: "a number", float: "a number"}
    return "null" if value is None else names.get(type(value), type(value).__name__)


class Finished(NamedTuple):
    """A finished response: in which shape, what the model wrote (a message, blocks or items), and its calls unread."""

    kind: Literal["chat", "ollama", "responses", "anthropic", "gemini", "calls", "call", ""]
    written: Any
    calls: list[Any]
    ending: object = None
    """Why it has ended, in the provider's own word."""


def take_apart(response: Mapping[str, Any]) -> Finished:
    """Return the parts of a whole response, a message or a call. `kind` is empty for an object that shows to be none.

    Objects of SDKs count as the dicts that they were made of, wherever an entry stands.
    """
    choices, message, output, content = (response.get(key) for key in ("choices", "message", "output", "content"))
    if "candidates" in response or "promptFeedback" in response:
        return Finished("gemini", response, [])
    if isinstance(choices, list):
        choice = _object(next(iter(choices), None))
        return _chat("chat", _object(choice.get("message")), choice.get("finish_reason"))
    if isinstance(message := plain(message), dict):
        return _chat("ollama", message, response.get("done_reason") or response.get("finish_reason"))
    if isinstance(output, list):
        return _items([plain(each) for each in output], response.get("status"))
    if isinstance(content, list) and not (response.get("tool_calls") or response.get("function_call")):
        return take_blocks_apart([plain(each) for each in content], response.get("stop_reason"))
    is_named = "name" in response and "role" not in response and "content" not in response
    if response.get("type") in BLOCKS or "function" in response or is_named:
        return Finished("call", response, [response])
    found = _chat("chat", dict(response), None)
    return found if "role" in response or found.calls else found._replace(kind="")


def take_list_apart(entries: Iterable[object]) -> Finished:
    """Return the parts of a list: items of Responses, blocks of Anthropic's, or calls."""
    listed = [plain(each) for each in entries]
    types = [type_of(each) for each in listed]
    if any(each in (*ITEMS, "reasoning", "message") for each in types):
        return _items(listed)
    if any(each in ("tool_use", "text", "thinking") for each in types):
        return take_blocks_apart(listed)
    return Finished("calls", listed, [each for each in listed if is_call(each)])


def _items(written: Sequence[Any], status: object = None) -> Finished:
    known = [each for each in written if isinstance(each, dict)]
    return Finished("responses", known, [each for each in known if type_of(each) in ITEMS], status)


def take_blocks_apart(written: list[Any], stop_reason: object = None) -> Finished:
    """Return the parts of a message of content blocks."""
    return Finished("anthropic", written, [each for each in written if is_call(each)], stop_reason)


def _chat(kind: Literal["chat", "ollama"], message: dict[str, Any], finish_reason: object) -> Finished:
    listed, old = message.get("tool_calls"), old_call(message)
    listed = listed if isinstance(listed, list) else [listed] if listed else []
    return Finished(kind, message, [plain(each) for each in (*listed, *([old] if old else []))], finish_reason)


def old_call(message: Mapping[str, Any]) -> Any:
    """Return the `function_call` of a message, or None: some servers put one that is empty beside every text."""
    call = message.get("function_call")
    return call if not isinstance(call, Mapping) or any(call.values()) else None


def type_of(entry: object, unsaid: object = None) -> object:
    """Return what an entry says that it is; `unsaid` if it is an object that does not say."""
    return entry.get("type", unsaid) if isinstance(entry, dict) else None


def is_call(block: object) -> bool:
    """Return whether what stands in a list of blocks stands there as a call."""
    return not isinstance(block, dict) or type_of(block, "function") in BLOCKS


def plain(value: object) -> Any:
    """Return the dict that a call, or an object of an SDK, was made of, and anything else as it is."""
    if isinstance(value, ToolCall):
        return msgspec.to_builtins(value)
    return value if (made := as_dict(value, nulls=False)) is None else made


def _object(value: object) -> dict[str, Any]:
    value = plain(value)
    return value if isinstance(value, dict) else {}
