"""Pairs calls with their results.

Providers require that the results of all calls of a turn directly follow the turn.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias

from streamtools.calls import NATIVE, ToolCall
from streamtools.history.parts import Assistant, CallResult, Message, Results, fault_of

NO_RESULT = "this call has no result; it may not have run"
"""The result that the model gets for a call without one. The history does not say whether the call has run."""

Unanswered: TypeAlias = Literal["cancelled", "leave"] | None
"""How calls without a result are handled.

`cancelled`: they get the result `NO_RESULT`. `leave`: they get no result. None: they get the result `NO_RESULT` if
other messages follow them. Calls at the end of the history may still run, so they get no result.

A malformed native call cannot run. Except with `leave`, its result is an error message that describes the fault.
"""


def pair_results(history: Iterable[Message], unanswered: Unanswered = None) -> list[Message]:
    """Return the history with the results of each turn in one `Results` message directly after the turn.

    The results of native calls come first, in the order of the calls. Messages between a turn and its results are moved
    after the results. Raises ValueError if the result of a native call does not belong to the turn before it, or if a
    native call has two results.
    """
    paired: list[Message] = []
    turn = _TurnResults(Assistant())
    for message in history:
        if isinstance(message, Assistant):
            paired += turn.end(unanswered, continues=True)
            turn = _TurnResults(message)
            paired.append(message)
        elif isinstance(message, Results):
            for result in message.results:
                turn.add(result)
        else:
            turn.other_messages.append(message)
    paired += turn.end(unanswered, continues=False)
    return paired


class _TurnResults:
    """Collects the results of the calls of one turn, and the other messages before the next turn."""

    def __init__(self, turn: Assistant) -> None:
        self._native = {part.id: part for part in turn.parts if isinstance(part, ToolCall)}
        self._in_text = turn.in_text
        self._results: dict[str, CallResult] = {}
        self.other_messages: list[Message] = []

    def add(self, result: CallResult) -> None:
        if result.dialect == NATIVE:
            if result.call_id not in self._native:
                raise ValueError(f"the result of call {result.call_id!r} must follow the turn that holds the call")
            if result.call_id in self._results:
                raise ValueError(f"call {result.call_id!r} has two results; remove one")
            if (name := self._native[result.call_id].name) != result.name:  # Gemini and Ollama require it
                result = result._replace(name=name)
        self._results[result.call_id] = result

    def end(self, unanswered: Unanswered, *, continues: bool) -> list[Message]:
        """Return the results, then the other messages. `continues` is True if another turn follows."""
        if not (self._native or self._in_text or self._results):
            return self.other_messages
        for id, call in self._native.items() if unanswered != "leave" else ():
            if id not in self._results and (fault := fault_of(call)):  # a malformed call cannot run
                self._results[id] = CallResult(NATIVE, call.name, fault, id, is_error=True)
        if unanswered == "cancelled" or (unanswered is None and (continues or self.other_messages)):
            for call in (*self._native.values(), *self._in_text):
                if call.id not in self._results:
                    self._results[call.id] = CallResult(call.dialect, call.name, NO_RESULT, call.id, is_error=True)
        native = [self._results.pop(id) for id in self._native if id in self._results]
        results = (*native, *self._results.values())
        return [Results(results), *self.other_messages] if results else self.other_messages
