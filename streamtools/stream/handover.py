"""Hands the events of a run from the task that drives it to the consumer that iterates over them.

Events are handed out without waiting, so that their order is that of their numbers and a cancelled run loses none. The
stream and the progress of tools then wait for room: a slow consumer slows the provider. A cancelled read ends no other.

The buffer is bounded in events and in bytes. Bytes are counted only while the consumer is behind, and not of short
texts; events that are taken are not subtracted, but the buffer is counted anew when the bound seems to be met.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Self

import anyio

from streamtools import observing
from streamtools.errors import ClosedError
from streamtools.events import Partial, Progress, SourceError, SourceEvent, SourceWarning, Text, UIEvent
from streamtools.events.event import BATCH_BYTES, EMPTY_EVENT, LARGE, batch_length, is_large, weigh
from streamtools.events.ui_events import small_text_of
from streamtools.parsing.dialects import Dialect
from streamtools.stream.driver import EventSource, Take, read_into
from streamtools.stream.result import TOGETHER, Collector, TurnResult

if TYPE_CHECKING:
    from streamtools.machine.state_machine import StreamMachine
    from streamtools.stream.judging import Judging, TextJudge
    from streamtools.stream.options import TextOptions
    from streamtools.stream.shown_arguments import ShownArguments

BUFFERED = 1024  # events that wait for a slow consumer before the provider has to
BUFFERED_BYTES = 4 * 1024 * 1024  # and how much they hold; what one network chunk brings comes on top
AHEAD = 8  # events that may wait uncounted, unless one is large
SMALL = 64  # characters of a text that is not counted when it comes alone: as many as may wait are 0.3 MiB

LEFT_ELSEWHERE = (
    "a stream is left in the task that entered it, and this is another; an asynchronous generator around a stream is "
    "closed where it is read: `async with aclosing(generator)`, or give the stream itself to whoever reads"
)


class Handover:
    """The iterator of a run's events, and its result so far; the base of `ToolStream`, which drives the run.

    An exception of the caller's source (`_fault`) is raised to the consumer behind the last event.
    """

    __slots__ = (  # since CPython shares the keys of an instance's dict up to thirty only, and a stream has more
        "_arguments", "_collector", "_fault", "_held", "_judging", "_looks", "_low", "_most", "_news", "_observed",
        "_over", "_place", "_ready", "_room", "_shows", "_waiting", "_woken",
    )  # fmt: skip

    def __init__(self, dialects: tuple[Dialect, ...]) -> None:
        self._collector = Collector(dialects)
        self._ready: deque[UIEvent] = deque()
        self._news: anyio.Semaphore | None = None  # for readers that wait for events; kept, because they wait often
        self._waiting = 0  # how many readers wait
        self._woken = 0  # how many of them have been woken and have not run since
        self._room: anyio.Event | None = None  # for the producer, when the buffer is full
        self._low = 0  # the number of events at which there is room again
        self._held = 0  # bytes of the events that wait, or more: of all since the last count
        self._place: object = None  # of the last value that has grown, unless that is large
        self._looks: Callable[[Sequence[UIEvent]], bool] | None = None  # sees events first; whether the provider waits
        self._observed: observing.Observed | None = None  # told what happens, where somebody watches
        self._over = False
        self._fault: Exception | None = None
        self._judging: Judging | None = None  # holds back what nobody has approved
        self._arguments: ShownArguments | None = None  # makes of arguments what an interface gets
        self._shows = True  # none of the three is there, and events are shown as they are
        self._most: int | None = None  # the most characters of the result, until there are more

    @property
    def result(self) -> TurnResult:
        """What the run has come to so far; complete behind the `async with`."""
        return self._collector.read()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> UIEvent:
        while not self._ready:
            if self._over:
                self._raise_fault()
                raise StopAsyncIteration
            if self._news is None:
                raise ClosedError("a stream is read inside `async with stream as events:`")
            self._waiting += 1
            try:
                await self._news.acquire()
                self._woken -= 1
            finally:
                self._waiting -= 1
        event = self._ready.popleft()
        if self._room is not None and len(self._ready) <= self._low:
            self._room.set()
            self._room = None
        return event

    def take_ready(self) -> Sequence[UIEvent]:
        """Return the events that a read would not wait for, up to a limit of bytes."""
        if not (ready := self._ready):
            return ()
        is_much = self._held > BATCH_BYTES or self._room is not None
        if is_much and (count := batch_length(ready)) < len(ready):
            events = [ready.popleft() for _ in range(count)]
        elif len(ready) == 1:  # `clear` would have a deque keep a second block of memory
            events, self._held = [ready.popleft()], 0
        else:
            events = [*ready]
            ready.clear()
            self._held = 0
        if self._room is not None and len(ready) <= self._low:
            self._room.set()
            self._room = None
        return events

    def _open(self, machine: StreamMachine, resumed: str) -> AbstractContextManager[None]:
        """Allow reading; called inside an event loop. Returns what surrounds the task that drives the run."""
        self._news = anyio.Semaphore(0, fast_acquire=True)
        self._observed = observing.begin(machine.run_id, machine, resumed)
        if self._observed is not None:
            self._collector.tell = self._observed.saw
        return observing.surrounding(self._observed)

    def _end(self) -> None:
        """Note that no more events come."""
        self._over = True
        if self._observed is not None:
            self._collector.look()
            self._observed.ended()
        self._wake()

    def _raise_fault(self) -> None:
        """Raise the exception of the caller's source, once."""
        if self._fault is not None:
            fault, self._fault = self._fault, None
            raise fault

    def _have_judged(self, judge: TextJudge | None, run_id: str) -> None:
        if judge is not None:
            from streamtools.stream.judging import Judging  # loaded when it is used

            self._judging, self._shows = Judging(judge, run_id), False

    def _have_looked(self, looks: Callable[[Sequence[UIEvent]], bool] | None) -> None:
        """Have `looks` see events first, and no other."""
        self._looks = looks
        self._shows = looks is None and self._judging is None and self._arguments is None

    def _apply_to_arguments(self, text: TextOptions) -> None:
        """Show the arguments of calls as the rules leave them."""
        from streamtools.stream.shown_arguments import ShownArguments  # loaded, with all of the rules, when it is used

        self._arguments, self._shows = ShownArguments(text.rules), False
        if text.history == "as_shown":
            self._collector.shown = self._arguments.call

    async def _send(self, event: UIEvent) -> None:
        if type(event) is not Progress:
            self._hand_out((event,))
            return
        if self._judging is not None:
            self._judging.gate.number(event)
        self._held += weigh(event)
        self._ready.append(event)  # which is no part of the result
        self._wake()
        await self._wait_for_room()

    async def _wait_for_room(self) -> None:
        """If the buffer is full, wait until half of it has been taken; and so for the judge, if there is one."""
        if self._judging is not None:
            await self._judging.catch_up()
        while True:
            if self._held >= BUFFERED_BYTES:
                self._held, self._low = self._count()
            elif len(self._ready) >= BUFFERED:
                self._low = BUFFERED // 2
            else:
                return
            if len(self._ready) > self._low:
                if self._room is None:
                    self._room = anyio.Event()
                await self._room.wait()

    @property
    def _in_doubt(self) -> str:
        """The text that comes next, if it is approved."""
        return "" if self._judging is None else self._judging.gate.text

    async def _settle(self) -> None:
        """Wait until what was handed out has been approved, where there is a judge. If it is not, the run is over."""
        if self._judging is not None:
            await self._judging.settle()

    def _stop_judging(self) -> None:
        """Show nothing more that has not been approved."""
        if self._judging is not None:
            self._judging.end()
            self._hand_out(())

    def _count(self) -> tuple[int, int]:
        """Return the bytes and the number of the last events that fill half of the buffer."""
        held = 0
        for count, event in enumerate(reversed(self._ready)):
            size = weigh(event)
            if held + size > BUFFERED_BYTES // 2 or count == BUFFERED // 2:
                return held, count
            held += size
        return held, len(self._ready)

    def _hand_out(self, events: Sequence[UIEvent]) -> bool:
        """Hand events over; return whether the provider has to wait, as `_wait_for_room` does."""
        new, ready = self._collector.new, self._ready
        if len(events) == 1 and self._shows and type(event := events[0]) is Text and len(event.text) <= SMALL:
            new.append(event)  # the rest of this method, for nearly all that comes
            if len(new) >= TOGETHER:
                self._look()
            ready.append(event)
            if self._waiting > self._woken:
                self._wake()
            return len(ready) >= BUFFERED
        behind = large = False
        if self._judging is not None:
            events = self._judging.take(events)
            behind = self._judging.is_behind
        if not events:
            if self._observed is not None:
                self._observed.held()
            return behind
        if self._looks is not None:
            behind = self._looks(events) or behind
        text = small_text_of(events) if type(events[0]) is Text else ""
        for event in () if text else events:
            if type(event) is Partial and event.path is self._place:  # another piece of the same string
                large = large or event.value.__sizeof__() > LARGE
            elif is_large(event):
                large = True
            elif type(event) is Partial:
                self._place = event.path
        new += (Text(text),) if text else events  # as the collector's `add` does; a call fewer for each event
        if large or len(new) >= TOGETHER:
            self._look()
        if self._arguments is not None:
            events = [*map(self._arguments.show, events)]
        ready += events
        if self._waiting > self._woken:
            self._wake()
        if len(ready) <= AHEAD and not large:
            return behind
        # Of texts that are small at most so much; they are counted anew where that matters.
        self._held += len(events) * EMPTY_EVENT + 4 * len(text) if text else sum(map(weigh, events))
        return behind or self._held >= BUFFERED_BYTES or len(ready) >= BUFFERED

    async def _read(self, source: EventSource, take: Take[Sequence[SourceEvent]], machine: StreamMachine) -> None:
        """Read a source to its end. Who watches is told when it begins to come and to be shown, and when it has ended.

        So that nothing is said of a delta, what notices that is in the way only until then.
        """
        observed = self._observed
        if observed is None:
            await read_into(source, take)
            return
        looks, waits = self._looks, not observed.by_chunk  # … for the first batch

        def first(batch: Sequence[SourceEvent]) -> Awaitable[object] | bool:
            came = len(batch) > 0 and not isinstance(batch[0], SourceError | SourceWarning)
            if came:
                observed.came()
            over = take(batch)
            return (came and waits) if over is False else over

        def look(events: Sequence[UIEvent]) -> bool:
            if any(type(event) is Text and not event.text.isspace() for event in events):
                observed.shown()
                self._have_looked(looks)
            return looks is not None and looks(events)

        observed.asked(getattr(source, "origin", ()), source)
        self._have_looked(look)
        raised: BaseException | None = None
        try:
            if not await read_into(source, first) and not machine.stopped:
                await read_into(source, take)
        except BaseException as error:
            raised = error
            raise
        finally:
            self._have_looked(looks)
            self._look()
            observed.read(raised)

    def _look(self) -> None:
        """Collect new events into the result; break the run off when it has become too large."""
        self._collector.look()
        if self._most is not None and self._collector.size > self._most:
            self._most = None
            self._break_off()

    def _break_off(self) -> None:
        """End the run, because its result is too large."""
        raise NotImplementedError

    def _wake(self) -> None:
        """Wake all readers that wait and have not been woken. A reader that was woken and then cancelled wakes another
        one in vain, once.
        """
        assert self._news is not None
        while self._woken < self._waiting:
            self._woken += 1
            self._news.release()
