"""Neutralizes a request: all its texts, except the user's words and the application's instructions.

Calls come only from the model's live answer. Any other text in a request may hold a call that an attacker planted: a
result, a document, a file name, the description of a tool. A model that quotes such a text must not make the call. So
one walk changes every string of a request, except those that `IN_HISTORY`, `IN_BODY` and `IN_SCHEMA` name.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from streamtools.calls import ToolCall
from streamtools.history.content import data_of, is_typed, string_at
from streamtools.history.parts import CallResult, Message, ProviderItem, Results, System, TextPart, Thought, User
from streamtools.parsing.dialects import Dialect
from streamtools.parsing.dialects.neutralizing import (
    joiner_positions,
    neutralize,
    neutralize_all,
    neutralize_in_order,
    structure_pattern,
)

T = TypeVar("T")

IN_HISTORY = frozenset({
    "dialect", "format", "origin", "provider_id", "in_text",  # not sent
    "response_id",  # the provider's name of a response; it is not in the prompt
    "signature",  # made by the provider, which refuses any other one
})  # fmt: skip
"""The fields of messages that are exempt.

Also exempt are system messages, which are the application's instructions. So is reasoning that is signed or encrypted,
because the provider refuses it if it was changed. So is the text of a result of a tool with `neutralize=False`. In a
chat, so are the words of the user, and those of the model, which hold its calls. The gateway neutralizes both, because
a client may write documents into them."""

IN_BODY = frozenset({
    "messages", "input", "contents",  # `write_messages` neutralizes them
    "system", "systemInstruction", "system_instruction",  # the application's instructions
    "chat_template",  # contains the tokens of the model
    "model",  # not in the prompt
    # Compared with the answer, and not in the prompt. If they changed, the answer would be wrong.
    "stop", "stop_sequences", "stopSequences", "bad_words", "logit_bias",
    "grammar", "guided_grammar", "guided_regex", "guided_choice", "regex", "ebnf", "structural_tag",
})  # fmt: skip
"""The fields of a body, and of the options in it, that are exempt."""

IN_SCHEMA = frozenset({
    "enum", "const", "pattern",  # the answer must match them, and the client compares the answer with them
    "required", "propertyOrdering", "$ref",  # contain names that the schema also uses elsewhere
})  # fmt: skip
"""The keywords that are exempt in the schema of an answer. The names of properties are exempt, too.

Nothing is exempt in the schema of a tool, because the arguments of calls are restored."""

_EXEMPT_IN = {
    **dict.fromkeys(("options", "generationConfig", "generation_config", "inferenceConfig"), IN_BODY),
    **dict.fromkeys(("response_format", "text", "format", "output_config", "output_format"), IN_SCHEMA),
    **dict.fromkeys(("responseSchema", "responseJsonSchema", "json_schema"), IN_SCHEMA),
    **dict.fromkeys(("guided_json", "structured_outputs"), IN_SCHEMA),
}
"""Maps the name of an object in a body to the names of its exempt fields. In any other object, nothing is exempt."""
_BY_NAME = ("properties", "patternProperties", "$defs", "definitions")  # keywords whose value maps names to schemas
_JOINED = ("text", "content")  # the fields whose texts a chat template may join
_TEXT_FILES = ("text/", "application/json", "application/xml", "application/yaml")
_MEDIA_TYPES = ("media_type", "mime_type", "mimeType")
_TEXT_URL = "data:text/plain;base64,"
_HOST = re.compile(r"[^/?#]*(?://[^/?#]*)?[/?#]?")  # the scheme and the host of a URL
_NOT_IN_URLS = re.compile(r"[^A-Za-z0-9!#$%&'()*+,./:;=?@\[\]_~-]")


def neutralize_history(history: Iterable[Message], dialects: Sequence[Dialect]) -> list[Message]:
    """Return the history with all texts neutralized, except the words of the user and of the model."""
    return _Walk(dialects).change([*history])


def neutralize_words(history: Iterable[Message], dialects: Sequence[Dialect]) -> list[Message]:
    """Return the history with the messages of the user and of the model neutralized, except calls and results."""
    return _Walk(dialects, words=True).change([*history])


def neutralize_body(body: dict[str, Any], dialects: Sequence[Dialect]) -> dict[str, Any]:
    """Return the body of a request with all texts neutralized, except the messages."""
    return {**_except(body, IN_BODY, _Walk(dialects))} if dialects else body


def _except(value: Any, exempt: Collection[str], walk: _Walk) -> Any:
    """Return a part of a body, neutralized except the `exempt` fields."""
    if isinstance(value, list):
        return [_except(item, exempt, walk) for item in value]
    if not isinstance(value, dict):
        return walk.change(value)
    changed = dict(value)
    for name in value.keys() - exempt:
        if exempt is IN_BODY and name not in _EXEMPT_IN:
            changed[name] = walk.change(value[name])
        elif exempt is IN_SCHEMA and name in _BY_NAME and isinstance(value[name], dict):
            changed[name] = {key: _except(schema, exempt, walk) for key, schema in value[name].items()}
        else:
            changed[name] = _except(value[name], _EXEMPT_IN[name] if exempt is IN_BODY else exempt, walk)
    return changed


class _Walk:
    """Visits all texts of a value twice. The first visit collects the texts in `_JOINED`, the second replaces texts.

    If `words` is True, it changes the words of the user and of the model instead of calls and results.
    """

    def __init__(self, dialects: Sequence[Dialect], *, words: bool = False) -> None:
        self._dialects = dialects
        self._words = words
        self._found: list[str] = []
        self._replacements: Iterator[str] | None = None  # None during the first visit
        self._in_thought = False
        self._exempt_text = ""  # the text of the part whose additional fields are visited

    def change(self, value: T) -> T:
        """Return `value` with its texts neutralized."""
        self._found, self._replacements = [], None
        self._visit(value)
        self._replacements = iter(neutralize_in_order(self._found, self._dialects))
        changed: T = self._visit(value)
        return changed

    def _visit(self, value: Any, name: str = "") -> Any:
        if isinstance(value, str):
            return self._text(value, name)
        if isinstance(value, dict):
            if self._in_thought and (value.get("signature") or value.get("data")):
                return value
            changed = {self._text(key, ""): self._visit(member, key) for key, member in value.items()}
            data = string_at(value, "data")
            if data and any(string_at(value, key).startswith(_TEXT_FILES) for key in _MEDIA_TYPES):
                changed["data"] = self._text(_TEXT_URL + data, "").removeprefix(_TEXT_URL)
            return changed
        for names in ("_fields", "__struct_fields__", "__dataclass_fields__"):
            if hasattr(value, names):
                return self._record(value, [*getattr(value, names)])
        return type(value)(self._visit(item, name) for item in value) if isinstance(value, list | tuple) else value

    def _record(self, value: Any, names: list[str]) -> Any:
        """Visit a message, or a part of one."""
        exempt: Collection[str] = IN_HISTORY
        match value:
            case System() | Thought(signature=str()) | Thought(redacted=True):
                return value
            case Results() | ToolCall() if self._words:
                return value
            case CallResult(neutralize=False):
                exempt = {"text", "parts", "extra", *IN_HISTORY}
            case User(str()) if not self._words:
                exempt = {"content", *IN_HISTORY}
            case TextPart() if not self._words:
                exempt, self._exempt_text = {"text", *IN_HISTORY}, value.text
        self._in_thought |= isinstance(value, Thought)
        fields = {name: getattr(value, name) for name in names}
        changed = {name: self._visit(field, name) for name, field in fields.items() if name not in exempt}
        if not isinstance(value, ProviderItem):  # the additional fields of a part
            self._in_thought, self._exempt_text = False, ""
        if isinstance(value, User) and not (self._words or "content" in exempt):
            pairs: Any = zip(value.content, changed["content"], strict=True)
            changed["content"] = [{**new, "text": old["text"]} if is_typed(old) else new for old, new in pairs]
        if isinstance(value, ToolCall):  # a URL in the arguments is restored like any other text
            changed["arguments"] = neutralize_all(value.arguments, self._dialects)
        return type(value)(**fields | changed)

    def _text(self, text: str, name: str) -> str:
        if self._exempt_text and text in self._exempt_text:
            return text
        if name in _JOINED:
            self._found += [text] if self._replacements is None else []
            return text if self._replacements is None else next(self._replacements)
        if self._replacements is None:
            return text
        if found := data_of(text):
            return neutralize(text.removesuffix(found[1]), self._dialects) + self._file(*found)
        is_url = name.lower().endswith(("url", "uri")) and "://" in text
        return _neutralize_url(text, self._dialects) if is_url else neutralize(text, self._dialects)

    def _file(self, kind: str, data: str) -> str:
        """Return the Base64 data of a file. The text of a text file is neutralized."""
        with suppress(ValueError):
            text = base64.b64decode(data).decode() if kind.startswith(_TEXT_FILES) else ""
            if (neutralized := neutralize(text, self._dialects)) != text:
                return base64.b64encode(neutralized.encode()).decode()
        return neutralize(data, self._dialects)  # Base64 contains no reserved text, but this may be no Base64


def _neutralize_url(url: str, dialects: Sequence[Dialect]) -> str:
    """Return a URL of the same resource that contains no reserved text. It has percent-encoding instead of joiners."""
    structure = structure_pattern(dialects)
    if not joiner_positions(url, structure):
        return url
    url = _NOT_IN_URLS.sub(lambda match: _percent_encoded(match[0]), url)
    path = len(url) - len(_HOST.sub("", url, count=1))
    for position in reversed(joiner_positions(url, structure)):
        at = max(path, position - (url[position - 1] != "#"))  # the first `#` begins the fragment
        if url[at : at + 1] not in ("", "%"):
            url = url[:at] + _percent_encoded(url[at]) + url[at + 1 :]
    return url


def _percent_encoded(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in character.encode(errors="replace"))
