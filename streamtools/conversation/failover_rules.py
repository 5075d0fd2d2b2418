"""`SharedAnswer`: one answer, continued by the next model each time a model fails. Sans-IO.

It chooses the next model, detects failures, and removes text that the next model repeats. A chat uses it for its
models, and the gateway uses it for its upstreams. `Circuits` count failures across answers.

The *shown text* is the text of the failed model that the reader has already seen. Some servers accept it as a prefill,
the beginning of an answer, and continue after it. Other models only get an instruction to continue, and may first
repeat the end of the shown text. So `Continuation` buffers the beginning of the next model's answer as long as the
shown text contains it.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import takewhile
from time import monotonic

from msgspec.structs import replace

from streamtools.conversation.models.prefill_fields import Prefill
from streamtools.errors import check_number
from streamtools.events import (
    ChainCompleted,
    ProviderCompleted,
    ReasoningDelta,
    SourceError,
    SourceEvent,
    SourceRaw,
    SourceUsage,
    SourceWarning,
    TextDelta,
)

CONTINUE_PROMPT = (
    "Your last answer was interrupted by a technical fault, and the reader has already seen everything that you wrote. "
    "Go on exactly where it stops, in the middle of a word if need be. Repeat nothing, and do not mention this."
)
MIN_REPETITION = 16
"""The length of the shortest repetition that is removed, in characters. A shorter repetition may be new text."""
REPETITION_WINDOW = 16 * 1024
"""The number of characters at the end of the shown text that are searched for a repetition."""
RETRYABLE_STATUSES = (408, 429)
"""The 4xx statuses after which the next model is tried. A 2xx or 5xx status, or no status, has the same effect."""
MODEL_STATUSES = (401, 402, 403, 404, 409, 410)
"""The other 4xx statuses after which a `Fallback` tries the next model: they concern the key, the account or the model.

In the gateway they are final. Otherwise a client with an invalid key would get an answer for the key of a fallback."""
_ENDS = (ProviderCompleted, ChainCompleted, SourceError)  # the events that end a turn
_NOT_SHOWN = (SourceUsage, SourceWarning)  # the events that are not a part of the answer


@dataclass
class Circuit:
    """The circuit of one model. It opens after several failures. While it is open, the model is tried last."""

    failures: int = 0
    """The number of consecutive failures."""
    open_until: float = 0.0
    """The time of the monotonic clock until which the circuit is open."""


class Circuits(list[Circuit]):
    """The circuits of `count` models.

    After `failures` consecutive failures, a model's circuit stays open for `rest` seconds. Raises ValueError if
    `failures` is less than 1, or `rest` is not above 0.
    """

    def __init__(self, count: int, *, failures: int = 5, rest: float = 30.0) -> None:
        check_number("failures", failures, 1)
        check_number("rest", rest)
        super().__init__(Circuit() for _ in range(count))
        self._failures = failures
        self._rest = rest
        self._lock = threading.Lock()  # the gateway reads long answers in threads

    def order(self, failed: Collection[int] = ()) -> list[int]:
        """Return the model indexes in the order in which to try them. The models in `failed` come last."""
        now = monotonic()
        return sorted(range(len(self)), key=lambda index: (index in failed, self[index].open_until > now, index))

    def record(self, index: int, *, failed: bool) -> None:
        """Record whether the model at `index` failed or answered."""
        circuit = self[index]
        with self._lock:
            circuit.failures = circuit.failures + 1 if failed else 0
            opens = circuit.failures >= self._failures
            circuit.open_until = monotonic() + self._rest if opens else 0.0


class SharedAnswer:
    """One answer. The models of `circuits` are tried in order; the models in `failed` come last.

    `statuses` are the 4xx statuses after which the next model is tried.
    """

    def __init__(
        self, circuits: Circuits, failed: Collection[int] = (), *, statuses: Collection[int] = RETRYABLE_STATUSES
    ) -> None:
        self.fault: SourceError | None = None
        """The failure of the current model; None if it has not failed."""
        self.begun = False
        """Whether a part of the answer has arrived. A caller sets it if readers have already seen a part."""
        self.complete = False
        """Whether `read` has returned the event that ends the turn.

        After that, `read` stores no failure, so no other model continues the answer."""
        self._circuits = circuits
        self._statuses = statuses
        self._untried = circuits.order(failed)
        self.index = self._untried.pop(0)
        """The index of the current model."""
        self._continuation: Continuation | None = None

    @property
    def next(self) -> int | None:
        """The index of the next model; None if all models were tried."""
        return self._untried[0] if self._untried else None

    def read(self, events: Iterable[SourceEvent], *, may_fail: bool = True) -> list[SourceEvent]:
        """Return the events before the first failure, without repeated text. Store the failure in `fault`.

        With `may_fail=False`, a new failure is not stored, but returned like any other event.
        """
        read: list[SourceEvent] = []
        for event in events:
            if self.fault is not None:
                break
            if isinstance(event, _ENDS):
                fault = None if self.complete else failure_of(event, self._statuses)
                if fault is not None and may_fail:
                    self.fault = fault
                    read += [SourceUsage(event.usage)] if isinstance(event, ProviderCompleted) and event.usage else []
                    break
                self.complete = True
                if not isinstance(event, SourceError):
                    self._circuits.record(self.index, failed=fault is not None)
            elif not isinstance(event, _NOT_SHOWN) and not (isinstance(event, SourceRaw) and event.format is None):
                self.begun = True
            if self._continuation is not None:
                self._continuation.read(event, read)
            else:
                read.append(event)
        return read

    def take_pending_text(self) -> list[SourceEvent]:
        """Stop buffering. Returns the buffered text as events. An unambiguous repetition in it is removed."""
        continuation, self._continuation = self._continuation, None
        pending = continuation.close() if continuation is not None else ""
        return [TextDelta(pending)] if pending else []

    def move_on(self) -> None:
        """Make the next model the current one."""
        self.fault = None
        self.index = self._untried.pop(0)

    def continue_text(self, shown: str, prefill: Prefill | None) -> None:
        """From now on, remove a repetition of the text `shown` from the beginning of the current model's text."""
        self._continuation = Continuation(shown, prefill)


def failure_of(event: SourceEvent, statuses: Collection[int]) -> SourceError | None:
    """If `event` reports a failure that another model may avoid, return the failure. Otherwise return None.

    Another model may avoid an error without a status, and errors with a 2xx or 5xx status or one of `statuses`.
    """
    if isinstance(event, ProviderCompleted) and event.finish_reason == "error":
        return SourceError("the provider ended the turn with an error")
    if not isinstance(event, SourceError) or event.failed_generation:
        return None
    status = event.status
    return event if status is None or status in statuses or status >= 500 or 200 <= status < 300 else None


class Continuation:
    """Reads the deltas of the next model's answer, and returns their new text.

    `shown` is the whole shown text. With a `prefill`, the request ends with this text, but without its trailing white
    space. If the answer begins with this white space, the white space is removed. If the server may repeat the
    prefill in its answer (`Prefill.echoes`), a repetition of the whole prefill is removed first.

    Without a prefill, the request contains an instruction to continue. Text at the beginning of the answer is then
    removed if it repeats the end of the shown text. The repetition must have at least `MIN_REPETITION` characters, and
    must not begin inside a word of the shown text. It must not occur earlier in the last `REPETITION_WINDOW` characters
    of the shown text. If the answer could begin with repetitions of several lengths, no text is removed.
    """

    def __init__(self, shown: str, prefill: Prefill | None) -> None:
        self._shown = shown
        self._is_prefilled = prefill is not None
        self._window_start = max(0, len(shown) - REPETITION_WINDOW)  # index in `shown` at which the search begins
        self._found_at = self._window_start  # without a prefill, the index in `shown` at which the buffered text occurs
        self._pending = ""
        self._space = shown[len(shown.rstrip()) :]  # trailing white space that the answer may still repeat
        # The prefill, if the answer may repeat it.
        self._echo = shown.rstrip() if prefill is not None and prefill.echoes else ""
        self._echo_repeated = 0  # the number of characters of `_echo` that the answer has repeated
        self._decided = False  # if True, all further text is new

    def feed(self, text: str) -> str:
        """Read the next text of the answer. Returns the text to show now. An unambiguous repetition is removed."""
        if self._decided or not text:
            return text
        if self._is_prefilled:
            return self._after_prefill(text)
        self._pending += text
        self._found_at = self._shown.find(self._pending, self._found_at)
        may_repeat = 0 <= self._found_at < len(self._shown) - len(self._pending)
        return "" if may_repeat else self._decide()

    def close(self) -> str:
        """Stop buffering. Returns the buffered text. An unambiguous repetition in it is removed."""
        if self._decided:
            return ""
        if not self._is_prefilled:
            return self._decide()
        self._decided = True
        return self._echo[: self._echo_repeated]

    def read(self, event: SourceEvent, out: list[SourceEvent]) -> None:
        """Read an event of the next model's answer, and append the events for the reader to `out`."""
        if isinstance(event, TextDelta):
            text = self.feed(event.text)
            out += [TextDelta(text)] if text else []
            return
        if not isinstance(event, ReasoningDelta | SourceUsage | SourceWarning) and (pending := self.close()):
            out.append(TextDelta(pending))
        if isinstance(event, ProviderCompleted):
            # The event describes only the last part of the turn, so a later request must not refer to its response.
            event = replace(event, text=None, response_id=None)
        out.append(event)

    def _after_prefill(self, text: str) -> str:
        """Return the text that repeats neither the prefill nor the white space after it."""
        echo, repeated = self._echo, self._echo_repeated
        if echo.startswith(text, repeated) and repeated + len(text) < len(echo):
            self._echo_repeated += len(text)
            return ""
        text, self._echo = (echo[:repeated] + text).removeprefix(echo), ""
        same = takewhile(lambda pair: pair[0] == pair[1], zip(self._space, text, strict=False))
        repeated_space = sum(1 for _ in same)
        text, self._space = text[repeated_space:], self._space[repeated_space:]
        self._decided = bool(text) or not self._space
        return text

    def _decide(self) -> str:
        """Return the buffered text. A repetition at its beginning is removed if it is unambiguous."""
        self._decided = True
        shown, text = self._shown, self._pending
        max_length = min(len(text), len(shown) - self._window_start)
        lengths = [length for length in range(MIN_REPETITION, max_length + 1) if shown.endswith(text[:length])]
        if len(lengths) != 1:
            return text
        begin = len(shown) - lengths[0]
        inside_word = shown[begin - 1 : begin].isalnum() and text[0].isalnum()
        is_first = shown.find(text[: lengths[0]], self._window_start) == begin
        return text[lengths[0] :] if is_first and not inside_word else text
