"""Parses the JSON that models write. Invalid JSON is rejected with a code that names the fault.

The C scanner of the standard library parses texts. Parsers disagree about some texts that RFC 8259 leaves undefined.
These are rejected: duplicate keys, `NaN` and infinities, very long numbers, and lone surrogates.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any, NoReturn, TypeAlias

import msgspec

from streamtools.errors import Code
from streamtools.limits import DEFAULT_LIMITS, Limits

# Half of a surrogate pair, such as `\ud83d`. In text without it, `decode_json` searches no lone surrogates.
_HALF_PAIR = re.compile(r"\\u[dD][89a-fA-F]")
_CHUNK_BYTES = 64 * 1024

Change: TypeAlias = Callable[[str], Any]
"""Returns what replaces a text."""

OBJECT = (dict, Mapping)
"""The types of a JSON object, for `isinstance`. With `dict` first, the check of a dict runs no Python code."""

ARRAY = (list, tuple)
"""The types of a JSON array, for `isinstance`. The expression `list | tuple` would make a new type for each check."""

DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""The exceptions that msgspec raises for JSON that it cannot read, or that does not have the expected type."""


def is_utf8(text: str) -> bool:
    """Return whether UTF-8 can encode a text. It cannot encode lone surrogates.

    Lone surrogates may come from providers, models and file names. Code that encodes text must replace or reject them.
    """
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


def well_formed(text: str) -> str:
    """Return the text with surrogate pairs joined into characters, and lone surrogates replaced with U+FFFD."""
    return text if is_utf8(text) else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def writable(value: Any) -> Any:
    """Copy builtin values, and replace strings and numbers that JSON does not allow.

    Lone surrogates become U+FFFD. `NaN` and infinities become None.

    >>> writable({"a": ["\\ud83d", float("nan")]})
    {'a': ['\ufffd', None]}
    """
    if isinstance(value, str):
        return value if value.isascii() else well_formed(value)
    if isinstance(value, OBJECT):
        return {writable(key): writable(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [writable(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def with_texts(value: Any, change: Change, numbers: Change | None = None, below: Collection[str] = ()) -> Any:
    """Return plain data in which `change` was applied to each string, including keys.

    `numbers` gets the JSON text of each number. If it changes the text, the number becomes a string. If there are names
    in `below`, it gets only numbers in the fields with these names.
    """
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        items = [(with_texts(key, change), member, () if key in below else below) for key, member in value.items()]
        return {key: with_texts(member, change, numbers, inner) for key, member, inner in items}
    if isinstance(value, list | tuple):
        return [with_texts(item, change, numbers, below) for item in value]
    if numbers is None or below or type(value) not in (int, float):
        return value
    written = compact(value)
    return value if (changed := numbers(written)) == written else changed


def count_values(body: bytes) -> int:
    r"""Return the number of commas and opening brackets outside of strings: roughly the number of JSON values.

    The text is not parsed. It is read in chunks, so that no operation blocks other threads for more than a millisecond.
    For text that contains NUL bytes, such as UTF-16, the result is its length in bytes.

    >>> count_values(b'{"a": [1, 2], "\\"[,": {}}')
    5
    """
    if b"\0" in body:  # probably UTF-16, where a byte of another character may equal a quote
        return len(body)
    count, is_inside, escape = 0, False, b""
    for at in range(0, len(body), _CHUNK_BYTES):
        piece = escape + body[at : at + _CHUNK_BYTES]
        escape = b"\\" if (len(piece) - len(piece.rstrip(b"\\"))) % 2 else b""  # belongs to the next chunk
        piece = piece[: len(piece) - len(escape)].replace(b"\\\\", b"").replace(b'\\"', b"")
        texts = piece.split(b'"')
        outside = b"".join(texts[is_inside::2])
        is_inside ^= len(texts) % 2 == 0
        count += outside.count(b",") + outside.count(b"[") + outside.count(b"{")
    return count


def as_dict(item: object) -> dict[str, Any] | None:
    """Return a mapping or an SDK object as a dict. Returns None for anything else.

    No SDK is imported. An SDK object is recognized by its methods. From a pydantic object, fields that were not set are
    omitted, because null may differ from a missing field.
    """
    value: object = None
    if isinstance(item, Mapping):
        value = dict(item)
    elif callable(dump := getattr(item, "model_dump", None)):  # nearly all SDKs use pydantic
        value = dump(mode="json", warnings=False, by_alias=True, exclude_unset=True)
    elif callable(dump := getattr(item, "to_dict", None)):
        value = dump()
    return value if isinstance(value, dict) else None


class Rejected(ValueError):
    """The reason why a text is not a valid call. Used only inside the package.

    `code` names the fault, and `message` explains it to the model.
    """

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Decoded(msgspec.Struct, frozen=True):
    """A decoded JSON value. `repaired` is true if the text had a fault that was accepted.

    An example of such a fault is a raw control character in a string.
    """

    value: Any
    repaired: bool


def compact(value: Any) -> str:
    """Return `value` as JSON without white space between tokens. Non-ASCII characters are not escaped."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


_encode = msgspec.json.Encoder().encode


def write_json(value: Any) -> bytes:
    """Return builtin values or a Struct as JSON. Lone surrogates become U+FFFD, because UTF-8 cannot encode them."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return _encode(writable(msgspec.to_builtins(value)))


def json_text(value: Any) -> str:
    """Return builtin values as JSON text. A mapping need not be a dict."""
    try:
        return write_json(value).decode()
    except TypeError:  # a mapping that is not a dict
        return write_json(writable(value)).decode()


def decode_json(text: str, *, limits: Limits = DEFAULT_LIMITS) -> Decoded:
    """Parse JSON. Raises `Rejected` with the code of the fault.

    Raw control characters in strings are accepted and reported as `repaired`.
    """
    brackets = text.count("{") + text.count("[")
    many = len(text) > limits.values and brackets + text.count(",") > limits.values  # a cheap upper bound of the count
    if many and count_values(text.encode(errors="surrogatepass")) > limits.values:
        raise Rejected(Code.TOO_LARGE, f"the JSON has more than {limits.values} values")
    repaired = False
    try:
        try:
            value = _decoder(limits.digits, True).decode(text)
        except json.JSONDecodeError as error:
            if not error.msg.startswith("Invalid control character"):
                raise
            value = _decoder(limits.digits, False).decode(text)
            repaired = True
    except json.JSONDecodeError as error:
        raise Rejected(Code.INVALID_JSON, f"{error.msg} at character {error.pos}") from None
    except RecursionError:
        raise Rejected(Code.TOO_DEEP, f"nested deeper than {limits.depth}") from None
    if brackets > limits.depth and not fits(value, limits.depth):
        raise Rejected(Code.TOO_DEEP, f"nested deeper than {limits.depth}")
    if not is_utf8(text) or (_HALF_PAIR.search(text) and not is_utf8(json.dumps(value, ensure_ascii=False))):
        raise Rejected(Code.LONE_SURROGATE, "a string holds half of a surrogate pair")
    return Decoded(value, repaired)


def decode(data: bytes) -> Any:
    """Return the value of JSON text. Raises ValueError if it is invalid.

    Unlike msgspec, it accepts lone surrogates, NaN, infinities, raw control characters in strings, and invalid UTF-8.
    """
    try:
        return msgspec.json.decode(data)
    except DECODE_ERRORS:
        try:
            return json.loads(data.decode(errors="replace"), strict=False)
        except RecursionError as error:
            raise ValueError(str(error)) from None


@lru_cache(maxsize=16)
def _decoder(digits: int, strict: bool) -> json.JSONDecoder:
    def check(text: str) -> None:
        if sum(map(str.isdigit, text)) > digits:
            raise Rejected(Code.NUMBER_TOO_LONG, f"a number has more than {digits} digits")

    def integer(text: str) -> int:
        if len(text) > digits:
            check(text)
        try:
            return int(text)
        except ValueError:  # `sys.get_int_max_str_digits()` is smaller
            raise Rejected(Code.NUMBER_TOO_LONG, "a number has more digits than Python can read") from None

    def real(text: str) -> float:
        if len(text) > digits:
            check(text)
        number = float(text)
        if number in (float("inf"), float("-inf")):
            raise Rejected(Code.NOT_A_NUMBER, f"{text[:40]} is too large for a number")
        return number

    return json.JSONDecoder(
        object_pairs_hook=_object, parse_int=integer, parse_float=real, parse_constant=_constant, strict=strict
    )


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise Rejected(Code.DUPLICATE_KEY, f"the key {twice[:80]!r} occurs twice in one object")
    return members


def _constant(name: str) -> NoReturn:
    raise Rejected(Code.NOT_A_NUMBER, f"{name} is not JSON")


def fits(value: Any, depth: int) -> bool:
    """Return whether containers nest at most `depth` deep. Uses no recursion, so that no recursion limit applies."""
    level = [value]
    while level := [value for value in level if isinstance(value, (dict, list))]:
        if depth == 0:
            return False
        depth -= 1
        level = [child for value in level for child in (value.values() if isinstance(value, dict) else value)]
    return True


class Draft:
    """Builds a value from `partial` events. The pieces of a string are joined when the value is read."""

    def __init__(self) -> None:
        self._top: dict[str, Any] = {"": None}  # holds the value
        self._parent: Any = self._top  # the container of the last added value
        self._key: str | int = ""  # the key or index of the last added value in its container
        self._pieces: list[str] = []  # the pieces of the incomplete string

    def add(self, path: Sequence[str | int], value: Any, complete: bool) -> None:
        """Add a value at `path`. If `complete` is true, no further piece of this value follows."""
        kind = type(value)
        if kind is str and self._pieces:
            self._pieces.append(value)
        elif not (complete and kind in (dict, list)):
            self._put(path, {} if kind is dict else [] if kind is list else value)
            if kind is str:
                self._pieces.append(value)
        if complete:
            self._join()
            self._pieces = []

    @property
    def value(self) -> Any:
        """The accumulated value as plain data. Later calls of `add` change the same object."""
        self._join()
        return self._top[""]

    def at(self, path: Sequence[str | int]) -> Any:
        """Return the value at `path`."""
        value = self.value
        for key in path:
            value = value[key]
        return value

    def _join(self) -> None:
        if self._pieces:
            self._pieces = ["".join(self._pieces)]
            self._parent[self._key] = self._pieces[0]

    def _put(self, path: Sequence[str | int], value: Any) -> None:
        parent: Any = self._top
        key: str | int = ""
        for inner in path:
            parent, key = parent[key], inner
        if isinstance(parent, list):
            parent.append(value)
        else:
            parent[key] = value
        self._parent, self._key = parent, key
