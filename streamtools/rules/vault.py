"""`Vault` replaces personal data by placeholders before a model reads it, and restores it in the model's answers.

vault = Vault([rules.email(), rules.phone()])
vault.replace("Write to ann@example.org.")    # "Write to <EMAIL_1>."
vault.restore("I wrote to <EMAIL_1>.")        # "I wrote to ann@example.org."
"""

from __future__ import annotations

import copy
import json
import re
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, TypeAlias

from streamtools.errors import Checked, check_function, check_kind, check_methods, check_word, described
from streamtools.logs import Logger
from streamtools.rules.matcher import Match, Matcher, shown
from streamtools.rules.rule import Rule, check_rules

log = Logger(__name__)

Finder: TypeAlias = Callable[[str], Collection[str]]
"""A function that returns the values of one kind in a text."""

_KIND = re.compile("[A-Za-z]{1,40}(?:_[A-Za-z]{1,40}){0,4}")
_AROUND = r"[ \\\"'`*]{0,3}"  # the characters that models insert after the first and before the last delimiter
_FIRST, _LAST = r"(?:<|&lt;|\\u003c)", r"(?:>|&gt;|\\u003e)"
_ESCAPES = re.compile(r'(?<!\\)\\+(?:u[0-9a-fA-F]{4}|["/bfnrt])')  # of JSON, also of JSON in a JSON string
QUOTED = "quoted"
"""The kind of text that looks like a placeholder, but is not one. It gets a placeholder, so that it is restored."""
_MAX_CACHED = 1000
_BEFORE_WORD, _AFTER_WORD = re.compile(r"(?<!\w)"), re.compile(r"s?(?!\w)")  # a word may have an `s` at its end


class Vault(Checked):
    """Placeholders for the personal data of one conversation. The same value always gets the same placeholder.

    `rules` find values by their format. The name of a rule is the kind of its values. Their actions are not used.
    `finders` maps other kinds to functions that return the values in a text, such as the names of persons. A text is
    passed to each finder once. A value that was found is also replaced where its rule or finder does not find it. A
    value that consists only of ASCII letters must be a whole word there.

    Messages of `skip_roles` and results of `skip_tools` are sent unchanged.

    `state` is the `state` of an earlier vault of the conversation. The kinds of both are known. A chat with
    `continue_from` or with `resume=run` loads the state of the earlier run itself. A chat replaces values in a thread,
    so it calls finders there. Raises ValueError for a kind that does not consist of letters and `_`, the kind `quoted`,
    or an unknown role.
    """

    def __init__(
        self,
        rules: Sequence[Rule] = (),
        *,
        finders: Mapping[str, Finder] | None = None,
        skip_roles: Collection[str] = (),
        skip_tools: Collection[str] = (),
        state: Mapping[str, Any] | None = None,
    ) -> None:
        check_rules(rules)
        check_methods("finders", finders, 'a dict, such as {"person": find_persons}', "items", optional=True)
        for kind, finder in (finders or {}).items():
            check_function(f"finders[{kind!r}]", finder, "text", may_wait=False)
        for role in (skip_roles,) if isinstance(skip_roles, str) else skip_roles:
            check_word("each of skip_roles", role, ("system", "user"))
        if not (state is None or (isinstance(state, Mapping) and "values" in state)):
            wrong = "one without 'values'" if isinstance(state, Mapping) else described(state)
            raise ValueError(f"state must be a dict with the key 'values', such as json.loads(text), got {wrong}")
        self.skip_roles, self.skip_tools = frozenset(skip_roles), frozenset(skip_tools)
        self._rules = tuple(rules)
        self._finders = dict(finders or {})
        self._find = lru_cache(_MAX_CACHED)(self._find_in)  # copies share it
        self._given = [*(rule.name for rule in self._rules), *self._finders]
        for kind in self._given:
            if not _KIND.fullmatch(kind) or _key(kind) in ("", QUOTED):
                raise ValueError(f"the kind of a value must consist of letters and '_', got {kind!r}")
        self.load(state or {"values": {}})

    def load(self, state: Mapping[str, Any]) -> None:
        """Replace all values by those of `state`."""
        stored: Mapping[str, Sequence[str]] = state["values"]
        # Maps the key of each kind to its name.
        self._kinds = {_key(kind): kind for kind in (*self._given, *stored, QUOTED)}
        self._values: dict[str, list[str]] = {key: [] for key in self._kinds}
        self._placeholders: dict[str, str] = {}  # maps each value to its placeholder
        self._written: dict[str, tuple[str, str]] = {}  # maps each spelling to the kind and the value
        self._warn = lru_cache(_MAX_CACHED)(partial(log.warning, "unknown_placeholder"))  # once for each placeholder
        self._lock = threading.RLock()  # held while values are found and replaced
        self._form = self._read_form()
        self._shape = Rule(name=QUOTED, what=[self._form])
        self._restoring = Rule(name="exact", what=[self._form], by=lambda found: self.value_of(found) or found)
        for kind, values in stored.items():
            for value in values:
                self._add(_key(kind), value)

    @property
    def state(self) -> dict[str, Any]:
        """The values of the conversation, as JSON data. Store it with the history of the conversation."""
        return {"values": {self._kinds[key]: list(values) for key, values in self._values.items() if values}}

    def copy(self, state: Mapping[str, Any] | None = None) -> Vault:
        """Return a vault with the same rules, finders and options, and with the values of `state` or of this vault."""
        vault = copy.copy(self)
        vault.load(state or self.state)
        return vault

    # The way to the model.

    def learn(self, text: str) -> str:
        """Find the values in `text`, so that `replace` also replaces them in other texts. Return `text`."""
        values, _ = self._find(text)
        with self._lock:
            for key, value in values:
                self._add(key, value)
        return text

    def replace(self, text: str, *, from_model: bool = False, only_known: bool = False) -> str:
        """Return `text` with placeholders for the values in it.

        Text that looks like a placeholder also gets one, so that `restore` returns the same text. With `from_model`, it
        is a placeholder that the model wrote, and does not change, unless a user has written the same text. With
        `only_known`, no rule or finder searches for new values.
        """
        check_kind("text", text, str)
        spans = [] if only_known else [*self._find(self.learn(text))[1]]
        with self._lock:
            spans += _spans(Matcher([self._shape]), text)
            for searched in {text, _masked(text)}:
                spans += self._known(searched)
            pieces: list[str] = []
            at = 0
            for begin, end, key in _joined(spans):
                found = text[begin:end]
                is_written = from_model and self._form.fullmatch(found) and found not in self._placeholders
                pieces += [text[at:begin], found if is_written else self._add(key, found)]
                at = end
            return "".join([*pieces, text[at:]])

    def _known(self, text: str) -> Iterable[tuple[int, int, str]]:
        """Yield the begin, the end and the kind of each known value in `text`, also of values that overlap."""
        for spelling, (key, _) in self._written.items():
            is_word, begin = spelling.isascii() and spelling.isalpha(), text.find(spelling)
            while begin >= 0:
                end = begin + len(spelling)
                if not is_word:
                    yield begin, end, key
                elif _BEFORE_WORD.match(text, begin) and (found := _AFTER_WORD.match(text, end)):
                    yield begin, found.end(), key
                begin = text.find(spelling, begin + 1)

    def _find_in(self, text: str) -> tuple[list[tuple[str, str]], list[tuple[int, int, str]]]:
        """Return the kind and the text of each value, and the begin, the end and the kind of each match of the rules.

        Escapes of JSON are decoded, so that no value begins with a part of an escape.
        """
        decoded, masked = text, _masked(text)
        if masked != text:
            decoded = _ESCAPES.sub(lambda found: json.loads('"\\' + found[0].lstrip("\\") + '"'), text)
            decoded = decoded.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # joins pairs
        values: list[tuple[str, str]] = []
        for kind, finder in self._finders.items():
            found_values = finder(decoded)
            is_list = isinstance(found_values, Collection) and not isinstance(found_values, str)
            if wrong := [each for each in found_values if not isinstance(each, str)] if is_list else [found_values]:
                raise TypeError(f"finders[{kind!r}] must return a list of texts, got {described(wrong[0])}")
            values += [(_key(kind), value) for value in found_values if len(value) > 1]
        matches = list(_spans(Matcher(self._rules), masked))
        decoded_matches = matches if decoded == text else _spans(Matcher(self._rules), decoded)
        return values + [(key, decoded[begin:end]) for begin, end, key in decoded_matches], matches

    def _add(self, key: str, value: str) -> str:
        """Return the placeholder of a value. Create it if the value is new."""
        placeholder = self._placeholders.get(value)
        if placeholder is None:
            values = self._values[key]
            values.append(value)
            placeholder = f"<{self._kinds[key].upper()}_{len(values)}>"
            self._placeholders[value] = placeholder
            if key != QUOTED:
                in_json = json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]
                for spelling in (value, *in_json, value.replace("@", "%40")):
                    self._written.setdefault(spelling, (key, value))
        return placeholder

    # The way back.

    def restore(self, text: str) -> str:
        """Return the text that `replace` has changed to `text`. Unknown placeholders do not change."""
        check_kind("text", text, str)
        return shown([self._restoring], text)

    def value_of(self, placeholder: str) -> str | None:
        """Return the value of a placeholder; None if it is unknown."""
        found = self._form.fullmatch(placeholder)
        if found is not None:
            kind, n = found[1] or found[3], int(found[2] or found[4])
            values = self._values.get(_key(kind), [])
            if 0 < n <= len(values):
                return values[n - 1]
        return None

    def rule(self, rules: Iterable[Rule] = (), *, in_json: bool = False) -> Rule:
        """Return the rule that restores values in the text of a model. Values from JSON have no escapes.

        The `rules` that change text are applied to each value. With `in_json`, a value is written as a part of a JSON
        string.
        """
        redacting = [rule for rule in rules if rule.redacts]

        def by(placeholder: str) -> str:
            value = self.value_of(placeholder)
            if value is None:
                self._warn(placeholder=placeholder)
                return placeholder
            value = shown(redacting, self._written.get(value, ("", value))[1])
            return json.dumps(value, ensure_ascii=False)[1:-1] if in_json else value

        return Rule(name="vault", what=self._shape.what, by=by, restores=True)

    def _read_form(self) -> re.Pattern[str]:
        """Return a pattern for placeholders, also for those that a model has changed.

        It accepts lower case, plurals, spaces, quotes, escapes of Markdown, HTML and JSON, for the known kinds only. A
        backslash before the placeholder belongs to it only if there is one before its last delimiter, too.
        """
        gap = r"[ \\_-]{0,3}"
        words = (re.split("_", kind.rstrip("sS")) for kind in self._kinds.values())
        kinds = "|".join(rf"{gap.join(parts)}[sS]{{0,2}}" for parts in words)
        inner = rf"{_AROUND}({kinds}){gap}([0-9]{{1,6}}){_AROUND}"
        return re.compile(rf"{_FIRST}{inner}{_LAST}|\\{_FIRST}{inner}\\{_LAST}", re.IGNORECASE)


def _key(kind: str) -> str:
    """Return the letters of the name of a kind, without the last `s`."""
    return re.sub("[^a-z]", "", kind.lower()).rstrip("s")


def _masked(text: str) -> str:
    """Return `text` with spaces instead of the escapes of JSON, because no value begins or ends inside an escape."""
    return _ESCAPES.sub(lambda found: " " * len(found[0]), text) if '"' in text else text


def _spans(matcher: Matcher, text: str) -> Iterable[tuple[int, int, str]]:
    """Yield the begin, the end and the kind of each match in `text`."""
    for found in (matcher.feed(text), matcher.close()):
        for piece in () if isinstance(found, str) else found:
            if isinstance(piece, Match):
                yield piece.position, piece.position + len(piece.text), _key(piece.rule.name)


def _joined(spans: list[tuple[int, int, str]]) -> list[tuple[int, int, str]]:
    """Return the spans in order. Overlapping spans are joined to one, with the kind of the first."""
    joined: list[tuple[int, int, str]] = []
    for begin, end, key in sorted(spans):
        if joined and begin < joined[-1][1]:
            begin, stop, key = joined.pop()
            end = max(stop, end)
        joined.append((begin, end, key))
    return joined
