"""Neutralizes the texts of a request, except the user's words, the application's instructions and some other fields.

Calls come only from the model's live answer. Any other text in a request, such as a result, a document, a file name or
the description of a tool, may hold a call that an attacker planted. A model that quotes such a text must not make the
call. So the strings of a request are neutralized, except the texts that `IN_HISTORY`, `IN_BODY` and `IN_SCHEMA` list.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Collection, Container, Iterable, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, Literal, TypeAlias, TypeVar

from streamtools.calls import ToolCall
from streamtools.history.content import data_of, is_typed, string_at
from streamtools.history.parts import Assistant, CallResult, Message, Results, System, TextPart, Thought, User
from streamtools.json_values import with_texts
from streamtools.parsing.dialects import Dialect
from streamtools.parsing.dialects.neutralizing import joiner_positions, neutralize, neutralize_in_order

T = TypeVar("T")
_Part: TypeAlias = Literal["data", "words", "everything", "arguments"]

IN_HISTORY = frozenset({
    "dialect", "format", "origin", "provider_id", "in_text",  # not sent
    "signature",  # made by the provider; the provider refuses any other signature
})  # fmt: skip
"""The exempt fields of messages.

These texts are also exempt:

- system messages, which are the application's instructions
- reasoning that is signed or encrypted, because the provider refuses changed reasoning
- the content of a result of a tool with `neutralize=False`
- in a chat, the words of the user and of the model. The model's words contain its calls. The gateway neutralizes the
  words of both, because a client may put documents into them."""

IN_BODY = frozenset({
    "messages", "input", "contents",  # `write_messages` neutralizes them
    "system", "systemInstruction", "system_instruction",  # the application's instructions
    "chat_template",  # contains the tokens of the model
    "model",  # not in the prompt
    # Compared with the answer, and not in the prompt. If they changed, the answer would be wrong.
    "stop", "stop_sequences", "stopSequences", "bad_words", "logit_bias",
    "grammar", "guided_grammar", "guided_regex", "guided_choice", "regex", "ebnf", "structural_tag",
})  # fmt: skip
"""The exempt fields of a body, and of the options in it."""

IN_SCHEMA = frozenset({
    "enum", "const", "pattern",  # the answer must match them, and the client compares the answer with them
    "required", "propertyOrdering", "$ref",  # contain names that the schema also uses elsewhere
})  # fmt: skip
"""The keywords that are exempt in the schema of an answer. The names of properties are exempt, too.

In the schema of a tool, every text is neutralized. `restore` removes the joiners from the arguments of calls."""

_OPTIONS = ("options", "generationConfig", "generation_config", "inferenceConfig")
"""The names of objects in a body. The same fields are exempt in them as in the body itself."""
_ANSWER_FORMATS = (
    "response_format", "text", "format", "output_config", "output_format", "json_schema", "guided_json",
    "structured_outputs", "responseSchema", "responseJsonSchema",
)  # fmt: skip
"""The objects in a body that contain the schema of the answer."""
_BY_NAME = ("properties", "patternProperties", "$defs", "definitions")  # keywords whose value maps names to schemas
_JOINED = ("text", "content")  # the fields whose texts a chat template may join
_TEXT_FILES = ("text/", "application/json", "application/xml", "application/yaml")
_MEDIA_TYPES = ("media_type", "mime_type", "mimeType")
_TEXT_URL = "data:text/plain;base64,"
_HOST = re.compile(r"[^/?#]*(?://[^/?#]*)?[/?#]?")  # the scheme and the host of a URL
_NOT_IN_URLS = re.compile(r"[^A-Za-z0-9!#$%&'()*+,./:;=?@\[\]_~-]")


def neutralize_history(history: Iterable[Message], dialects: Sequence[Dialect]) -> list[Message]:
    """Neutralize the texts of the history, except those that `IN_HISTORY` lists. Return the history."""
    return _neutralize([*history], dialects, _Visitor.visit)


def neutralize_words(history: Iterable[Message], dialects: Sequence[Dialect]) -> list[Message]:
    """Neutralize the messages of the user and of the model, except calls and results. Return the history."""
    return _neutralize([*history], dialects, _Visitor.visit, "words")


def neutralize_body(body: dict[str, Any], dialects: Sequence[Dialect]) -> dict[str, Any]:
    """Neutralize the body of a request, except the fields in `IN_BODY`, such as the messages. Return the body.

    Without `dialects`, the body is returned unchanged.
    """
    return _neutralize(body, dialects, _Visitor.visit_body) if dialects else body


def _neutralize(value: T, dialects: Sequence[Dialect], visit: Callable[[_Visitor, T], T], visits: _Part = "data") -> T:
    """Return `value` neutralized. A second visit is needed only if texts of the fields `_JOINED` must change."""
    joined: list[str] = []

    def change(text: str, name: str) -> str:
        if name not in _JOINED:
            return _neutralize_field(text, name, dialects)
        joined.append(text)
        return text

    value = visit(_Visitor(change, visits), value)
    if (neutralized := neutralize_in_order(joined, dialects)) != joined:
        texts = iter(neutralized)
        value = visit(_Visitor(lambda text, name: next(texts) if name in _JOINED else text, visits), value)
    return value


def change_texts(message: T, change: Callable[[str, str], str]) -> T:
    """Return a message in which `change(text, name of its field)` has replaced each text for the model.

    It also changes system messages, and the words of the user and of the model. `arguments` is the name of all fields
    of a call's arguments. `change` also gets the JSON text of each number there. If it changes the text, the number
    becomes a string. Signed and encrypted reasoning, ids, and the names of tools do not change.
    """
    changed: T = _Visitor(change, "everything").visit(message)
    return changed


class _Visitor:
    """Visits all texts that are not exempt, and replaces each with the result of `change(text, name of its field)`.

    If it visits `"words"`, it visits the words of the user and of the model instead of calls and results. It also
    visits system messages, calls and results for `"everything"`, and also numbers for `"arguments"`. If `in_thought` is
    True, objects with a signature or encrypted content are exempt.
    """

    def __init__(self, change: Callable[[str, str], str], visits: _Part = "data", *, in_thought: bool = False) -> None:
        self._change = change
        self._visits = visits
        self._in_thought = in_thought

    def visit_body(self, body: Any) -> Any:
        """Visit a body, or the options in it."""
        if not isinstance(body, dict):
            return self.visit(body)
        changed = dict(body)
        for name in (name for name in body if name not in IN_BODY):
            visit_field = self._visit_schema if name in _ANSWER_FORMATS else self.visit
            changed[name] = (self.visit_body if name in _OPTIONS else visit_field)(body[name])
        return changed

    def _visit_schema(self, value: Any, exempt: Collection[str] = IN_SCHEMA) -> Any:
        """Visit a schema, or an object that contains one.

        `exempt` is empty if the keys of `value` are names of properties.
        """
        if isinstance(value, list):
            return [self._visit_schema(item) for item in value]
        if not isinstance(value, dict):
            return self.visit(value)
        changed = dict(value)
        for name in (name for name in value if name not in exempt):
            changed[name] = self._visit_schema(value[name], () if exempt and name in _BY_NAME else IN_SCHEMA)
        return changed

    def visit(self, value: Any, name: str = "") -> Any:
        """Visit plain data, a message, or a part of one. `name` is the name of the field that contains it."""
        if isinstance(value, str):
            return self._change(value, name)
        if isinstance(value, dict):
            if self._in_thought and (value.get("signature") or value.get("data")):
                return value
            visited = {self._change(key, ""): self.visit(member, key) for key, member in value.items()}
            data = string_at(value, "data")
            if data and any(string_at(value, key).startswith(_TEXT_FILES) for key in _MEDIA_TYPES):
                visited["data"] = self._change(_TEXT_URL + data, "").removeprefix(_TEXT_URL)
            return visited
        if names := _fields_of(value.__class__):
            return self._visit_record(value, names)
        if isinstance(value, list | tuple):
            return type(value)([self.visit(item, name) for item in value])
        return with_texts(value, str, lambda text: self._change(text, name)) if self._visits == "arguments" else value

    def _visit_record(self, value: Any, names: Sequence[str]) -> Any:
        """Visit a message, or a part of one."""
        exempt, visitor = IN_HISTORY, self
        match value:
            case Thought(signature=str()) | Thought(redacted=True):
                return value
            case Thought():
                visitor = _Visitor(self._change, self._visits, in_thought=True)
            case Assistant() if self._visits == "everything":
                exempt -= {"in_text"}
            case CallResult() if self._visits == "everything":
                exempt |= {"name", "call_id"}
            case ToolCall() if self._visits == "everything":
                exempt |= {"id", "name"}
                visitor = _Visitor(lambda text, _: self._change(text, "arguments"), "arguments")
            case System() if self._visits != "everything":
                return value
            case Results() | ToolCall() if self._visits == "words":
                return value
            case User(str(), None) | TextPart(_, None) if self._visits == "data":
                return value
            case CallResult(neutralize=False):
                exempt |= {"text", "parts", "extra"}
            case ToolCall():  # `restore` removes joiners from URLs in arguments, but not percent-encoding
                visitor = _Visitor(lambda text, name: self._change(text, "arguments"))
            case User(str() as text) if self._visits == "data":
                visitor = self._except({text})
            case User(list() as parts) if self._visits == "data":
                visitor = self._except({part["text"] for part in parts if is_typed(part)})
            case TextPart(text) if self._visits == "data":  # the additional fields may repeat pieces of the text
                visitor = self._except(text)
        fields = {name: getattr(value, name) for name in names}
        visited = {
            name: visitor.visit(field, name)
            for name, field in fields.items()
            if field is not None and name not in exempt
        }
        return value if visited.items() <= fields.items() else type(value)(**fields | visited)

    def _except(self, words: Container[str]) -> _Visitor:
        return _Visitor(lambda text, name: text if text in words else self._change(text, name))


@cache
def _fields_of(kind: type) -> tuple[str, ...]:
    """Return the names of the fields of a class, or () if its values are plain data."""
    found = (getattr(kind, names, ()) for names in ("_fields", "__struct_fields__", "__dataclass_fields__"))
    return tuple(next(filter(None, found), ()))


def _neutralize_field(text: str, name: str, dialects: Sequence[Dialect]) -> str:
    if name == "arguments":
        return neutralize(text, dialects)
    if found := data_of(text):
        return neutralize(text.removesuffix(found[1]), dialects) + _neutralize_file(*found, dialects)
    is_url = name.lower().endswith(("url", "uri")) and "://" in text
    return _neutralize_url(text, dialects) if is_url else neutralize(text, dialects)


def _neutralize_file(kind: str, data: str, dialects: Sequence[Dialect]) -> str:
    """Return the Base64 data of a file. The text of a text file is neutralized."""
    changed = change_file(kind, data, lambda text: neutralize(text, dialects))
    return neutralize(changed, dialects)  # changes only data that is not valid Base64


def change_file(kind: str, data: str, change: Callable[[str], str]) -> str:
    """Return the Base64 data of a file after `change`, if it is a text file."""
    if not kind.startswith(_TEXT_FILES):
        return data
    with suppress(ValueError):
        text = base64.b64decode(data).decode()
        if (changed := change(text)) != text:
            return base64.b64encode(changed.encode()).decode()
    return change(data)  # it may be plain text


def _neutralize_url(url: str, dialects: Sequence[Dialect]) -> str:
    """Return a URL of the same resource without reserved text after the host. Reserved text in the host remains.

    Joiners would change the resource. So a character of each reserved text is percent-encoded.
    """
    if not joiner_positions(url, dialects):
        return url
    url = _NOT_IN_URLS.sub(lambda match: _percent_encoded(match[0]), url)
    path = len(url) - len(_HOST.sub("", url, count=1))
    for position in reversed(joiner_positions(url, dialects)):
        at = max(path, position - (url[position - 1] != "#"))  # a `#` begins the fragment, so it stays
        if url[at : at + 1] not in ("", "%"):
            url = url[:at] + _percent_encoded(url[at]) + url[at + 1 :]
    return url


def _percent_encoded(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in character.encode(errors="replace"))
