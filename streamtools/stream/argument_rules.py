"""Rules on the arguments of calls, as the interface shows them.

Tools, the ledger and the result of the run get the arguments that the model wrote. The rules read each string of the
arguments as one text, without its escapes. The pieces in which arguments arrive, joined, are the JSON of the arguments
that the call shows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from streamtools.calls import ToolCall
from streamtools.events import ApprovalRequested, Call, CallDelta, Done, Error, Executed, Executing, Partial, UIEvent
from streamtools.json_values import with_texts
from streamtools.rules.automaton import automaton_of
from streamtools.rules.matcher import Matcher, in_place, shown
from streamtools.rules.rule import Rule

_ENDS_PLAIN = re.compile(r'["\\]')
_STRUCTURE = " \t\r\n{}[]:,"
_is_escape = re.compile(r'\\(?:["\\/bfnrt]|u[0-9A-Fa-f]{0,4})\Z').match
_LONGEST_WORD = 6  # characters that decide whether a word is JSON
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


class ArgumentRules:
    """A stage that applies rules to the arguments of calls in the events of one run."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = [rule for rule in rules if rule.redacts]
        self._calls: dict[str, tuple[ToolCall, ToolCall]] = {}  # by id: the original, and the shown one
        self._texts: dict[str, _ShownText] = {}  # of incomplete calls
        self._values: dict[str, Matcher] = {}  # of strings in their values that are incomplete

    def take(self, events: Sequence[UIEvent]) -> Sequence[UIEvent]:
        """Return the events as they are shown."""
        return [*map(self.show, events)]

    def show(self, event: UIEvent) -> UIEvent:
        """Return an event as it is shown."""
        match event:
            case CallDelta(call_id, text):
                if call_id not in self._texts:
                    self._texts[call_id] = _ShownText(self._rules)
                clean = self._texts[call_id].feed(text)
                return event if clean == text else replace(event, text=clean)
            case Partial(path, value, complete, call_id=str() as call_id):
                return replace(event, path=self._clean(path), value=self._add(call_id, value, complete))
            case Call(call) | ApprovalRequested(call) | Executing(call) | Executed(call):
                self._texts.pop(call.id, None)
                return replace(event, call=self.call(call))
            case Error(message=message, call_id=str() as call_id, call=call):
                self._texts.pop(call_id, None)
                call = None if call is None else self.call(call)
                return replace(event, message=shown(self._rules, message), call=call, raw=None)
            case Done(pending=pending) if pending:
                return replace(event, pending=list(map(self.call, pending)))
        return event

    def _add(self, call_id: str, value: Any, complete: bool) -> Any:
        """Return the shown part of a value that was added to the arguments of a call."""
        if not isinstance(value, str):
            return value
        matcher = self._values.setdefault(call_id, Matcher(automaton_of(self._rules)))
        text = in_place(matcher.feed(value))
        return text + in_place(matcher.close()) if complete else text

    def call(self, call: ToolCall) -> ToolCall:
        """Return a call as it is shown: without its raw text, in which strings are escaped."""
        known = self._calls.get(call.id)
        if known is None or known[0] is not call:
            known = self._calls[call.id] = call, replace(call, arguments=self._clean(call.arguments), raw="")
        return known[1]

    def _clean(self, value: Any) -> Any:
        return with_texts(value, partial(shown, self._rules))


class _ShownText:
    """The shown JSON text of the arguments of one call, in pieces."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._matcher = Matcher(automaton_of(rules))
        self._read: Callable[[str, int, list[str]], int] = self._outside
        self._word = ""  # the open number or literal outside of strings
        self._escape = ""  # an incomplete escape
        self._half = ""  # the first half of a surrogate pair

    def feed(self, text: str) -> str:
        """Return the text that is decided now."""
        out: list[str] = []
        at = 0
        while at < len(text):
            at = self._read(text, at, out)
        return "".join(out)

    def _outside(self, text: str, at: int, out: list[str]) -> int:
        end = text.find('"', at) + 1
        if end:
            self._read = self._inside
            self._matcher.begin()
        between = text[at : end or len(text)]
        for place, character in enumerate(between.rstrip('"')):
            self._word = "" if character in _STRUCTURE else (self._word + character)[:_LONGEST_WORD]
            if self._word and not _is_json(self._word, character):
                out.append(between[:place])
                self._read = self._ignore
                return len(text)
        out.append(between)
        return end or len(text)

    def _ignore(self, text: str, at: int, out: list[str]) -> int:
        """Show nothing more: this is no JSON."""
        return len(text)

    def _inside(self, text: str, at: int, out: list[str]) -> int:
        found = _ENDS_PLAIN.search(text, at)
        end = found.start() if found else len(text)
        if end > at:
            self._show(text[at:end], out)
        if found and found[0] == '"':
            self._show("", out)
            out.append(_escaped(in_place(self._matcher.close())) + '"')
            self._read = self._outside
        elif found:
            self._escape, self._read = "\\", self._escaped
        return end + 1

    def _escaped(self, text: str, at: int, out: list[str]) -> int:
        self._escape += text[at]
        if not _is_escape(self._escape):
            self._read = self._ignore
            return len(text)
        if self._escape[1] != "u":
            self._show(_ESCAPES.get(text[at], text[at]), out)
        elif len(self._escape) < 6:
            return at + 1
        else:
            character = chr(int(self._escape[2:], 16))
            if "\udc00" <= character <= "\udfff" and self._half:
                pair, self._half = self._half + character, ""
                self._show(pair.encode("utf-16", "surrogatepass").decode("utf-16"), out)
            else:
                self._show("" if "\ud800" <= character <= "\udbff" else character, out)
                self._half = character if "\ud800" <= character <= "\udbff" else ""
        self._read = self._inside
        return at + 1

    def _show(self, text: str, out: list[str]) -> None:
        text, self._half = self._half + text, ""
        if text:
            out.append(_escaped(in_place(self._matcher.feed(text))))


def _escaped(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _is_json(word: str, last: str) -> bool:
    """Return whether a word outside of strings can be JSON. `last` is its last character."""
    if word[0] in "-0123456789":
        return last in "0123456789+-.eE"
    return any(known.startswith(word) for known in ("true", "false", "null"))
