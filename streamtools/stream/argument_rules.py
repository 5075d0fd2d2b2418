"""Applies text rules to the call arguments in the events of a run.

Rules with the action `mark` are not applied. Rules change the events. With `history="as_shown"`, they also change the
calls in the history. Tools and the ledger get the arguments that the model wrote. The rules are applied to each decoded
JSON string separately. A stream with these rules emits no `call-delta`.

`ArgumentRules` also restores the values of a `Vault`. Tools, the ledger and the result then get the restored arguments.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from streamtools.calls import ToolCall
from streamtools.events import ApprovalRequested, Call, Done, Error, Executed, Executing, Partial, UIEvent
from streamtools.json_values import with_texts
from streamtools.rules.matcher import Matcher, replace_matches, shown
from streamtools.rules.rule import Rule


class ArgumentRules:
    """Applies rules to the arguments of calls in the events of one run.

    With `restores`, the rules restore the values of a vault. The events of the runner then do not change, because they
    contain calls that `show_call` has returned. The raw text of calls remains, because the parser has restored it.
    """

    def __init__(self, rules: Sequence[Rule], *, restores: bool = False) -> None:
        self._rules = [rule for rule in rules if rule.redacts]
        self._restores = restores
        self.calls: dict[str, tuple[ToolCall, ToolCall]] = {}
        """By call id: the original call, and the changed call. They are equal for a call of an earlier run."""
        self._matchers: dict[str, Matcher] = {}  # by call id: the matcher of the incomplete string in the arguments

    def take(self, events: Sequence[UIEvent]) -> Sequence[UIEvent]:
        """Return the events with the rules applied to the arguments in them."""
        return [*map(self.show, events)]

    def show(self, event: UIEvent) -> UIEvent:
        """Return the event with the rules applied to the arguments in it. An `Error` of a call loses its raw text."""
        match event:
            case Partial(path, value, complete, call_id=str() as call_id):
                return replace(event, path=self._clean(path), value=self._add_value(call_id, value, complete))
            case ApprovalRequested() | Executing() | Executed() if self._restores:
                return event
            case Call(call) | ApprovalRequested(call) | Executing(call) | Executed(call):
                return replace(event, call=self.show_call(call))
            case Error(message=message, call_id=str(), call=call, raw=raw):
                call = None if call is None else self.show_call(call)
                raw = raw if self._restores else None
                return replace(event, message=shown(self._rules, message), call=call, raw=raw)
            case Done(pending=pending) if pending:
                return replace(event, pending=list(map(self.show_call, pending)))
        return event

    def _add_value(self, call_id: str, value: Any, complete: bool) -> Any:
        """Apply the rules to a value that was added to the arguments of a call. Return the part that may be shown.

        A string may arrive in pieces. The matcher buffers the end of a piece if a match may begin there.
        """
        if not isinstance(value, str):
            return value
        matcher = self._matchers.setdefault(call_id, Matcher(self._rules))
        text = replace_matches(matcher.feed(value))
        return text + replace_matches(matcher.close()) if complete else text

    def show_call(self, call: ToolCall) -> ToolCall:
        """Return the call with the rules applied to its arguments.

        Without `restores`, the returned call has an empty `raw`, because the rules cannot match the escaped strings of
        the raw text.
        """
        known = self.calls.get(call.id)
        if known is None or known[0] != call:
            raw = call.raw if self._restores else ""
            known = self.calls[call.id] = call, replace(call, arguments=self._clean(call.arguments), raw=raw)
        return known[1]

    def _clean(self, value: Any) -> Any:
        return with_texts(value, partial(shown, self._rules))
