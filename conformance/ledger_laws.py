"""The laws of `CallLedger`, as functions that fail for a ledger that breaks them.

A virtual clock is advanced by the laws, so that leases expire without waiting.
"""

from __future__ import annotations

import math
import random
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeAlias

import anyio
import anyio.lowlevel
import msgspec

from streamtools.calls import ToolCall
from streamtools.errors import CallRefused
from streamtools.tools import CallLedger, Claim, Entry, ToolOutcome
from streamtools.tools.ledger import CLOCK_SLACK

MakeLedger: TypeAlias = Callable[[Callable[[], float]], AbstractAsyncContextManager[CallLedger]]
"""Creates an empty ledger that reads the time from the given function."""

_CALL = ToolCall(id="call_1", name="pay", arguments={"to": "Ann"}, dialect="native")
_DONE = ToolOutcome(call=_CALL, result={"paid": True}, text='{"paid":true}', error=None, message=None, elapsed=0.5)


class VirtualClock:
    """A clock whose time is the attribute `now`, in seconds."""

    now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


async def assert_ledger_laws(make_ledger: MakeLedger) -> None:
    """Check a ledger against the laws of `CallLedger`. Raises AssertionError with the broken law.

    `make_ledger(clock)` is an asynchronous context manager that returns an empty ledger. It is entered once for each
    law. `clock()` returns the seconds since 1970 that the ledger must use. The ledger's own `lease` and `keep` are
    tested; `keep` must be at least a minute.
    """
    for law in _LAWS:
        clock = VirtualClock()
        async with make_ledger(clock) as ledger:
            try:
                await law(ledger, clock)
            except Exception as error:
                raise AssertionError(f"{law.__doc__}\n{error!r}") from error


async def _entry(ledger: CallLedger, call: ToolCall = _CALL) -> Entry:
    entry = await ledger.begin("run_1", call, Claim(holder="another holder"))
    assert entry is not None, f"{call.id} begins a second time"
    return entry


def _other_call(number: int) -> ToolCall:
    return ToolCall(id=f"call_{number}", name="pay", arguments={}, dialect="native")


async def _is_refused(request: Awaitable[object]) -> bool:
    try:
        await request
    except CallRefused:
        return True
    return False


async def _begins_once(ledger: CallLedger, clock: VirtualClock) -> None:
    """A call begins once. The second caller gets its entry."""
    assert await ledger.begin("run_1", _CALL) is None
    assert (await _entry(ledger)).is_unknown
    await ledger.finish("run_1", _DONE)
    assert (await _entry(ledger)).outcome == _DONE
    await ledger.finish("run_1", (await _entry(ledger)).with_result(error="lost"))
    assert (await _entry(ledger)).outcome == _DONE, "the first outcome stays"


async def _begins_once_concurrently(ledger: CallLedger, clock: VirtualClock) -> None:
    """If many callers begin the same call at the same time, exactly one begins it."""
    entries: list[Entry | None] = []

    async def begin(number: int) -> None:
        entries.append(await ledger.begin("run_1", _CALL, Claim(holder=f"h{number}")))

    async with anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(begin, number)
    assert entries.count(None) == 1


async def _distinguishes_calls(ledger: CallLedger, clock: VirtualClock) -> None:
    """A call with another run, id, name or arguments is another call."""
    await ledger.begin("run_1", _CALL)
    others: list[dict[str, Any]] = [{"id": "call_2"}, {"name": "look"}, {"arguments": {"to": "Bob"}}, {"arguments": {}}]
    for change in others:
        assert await ledger.begin("run_1", msgspec.structs.replace(_CALL, **change)) is None, change
    assert await ledger.begin("run_2", _CALL) is None


async def _renews_leases(ledger: CallLedger, clock: VirtualClock) -> None:
    """While its holder renews the lease, a call is running. The holder can begin it again, and only the holder can
    release it."""
    assert await ledger.begin("run_1", _CALL, Claim(holder="h")) is None
    assert await ledger.begin("run_1", _CALL, Claim(holder="h")) is None, "the response may have been lost"
    for _ in range(5):
        clock.now += min(ledger.lease, 15.0) * 2 / 3
        assert (await _entry(ledger)).is_running
        await ledger.hold("run_1", _CALL, "h", ledger.lease)
    await ledger.hold("run_1", _CALL, "another holder", 0)
    assert (await _entry(ledger)).lease_left
    await ledger.hold("run_1", _CALL, "h", 0)
    assert (await _entry(ledger)).is_unknown
    assert (await _entry(ledger)).ended == clock.now
    assert await ledger.begin("run_1", _CALL, Claim(holder="h")) is not None, "it was released"


async def _expires_leases(ledger: CallLedger, clock: VirtualClock) -> None:
    """When a lease has expired, the outcome is unknown, until the holder reports it."""
    if ledger.lease == math.inf:
        return
    await ledger.begin("run_1", _CALL, Claim(holder="h"))
    clock.now += ledger.lease - 1e-3
    assert (await _entry(ledger)).is_running
    clock.now += 2e-3
    assert (await _entry(ledger)).is_unknown
    await ledger.finish("run_1", _DONE)
    assert not await ledger.resolve("run_1", (await _entry(ledger)).with_result(error="lost"))
    assert (await _entry(ledger)).outcome == _DONE


async def _fences(ledger: CallLedger, clock: VirtualClock) -> None:
    """No call begins with an older epoch than the run has, whether a fence or a call raised it."""
    await ledger.begin("run_1", _CALL, Claim(epoch=1))
    await ledger.fence("run_1", 2)
    assert await _is_refused(ledger.begin("run_1", _other_call(2), Claim(epoch=1)))
    assert await _is_refused(ledger.begin("run_1", _CALL, Claim(epoch=1))), "the entry is not returned either"
    assert await ledger.begin("run_1", _other_call(2), Claim(epoch=2)) is None, "a refused call is not written"
    assert await ledger.begin("run_1", _other_call(3), Claim(epoch=3)) is None
    assert await _is_refused(ledger.fence("run_1", 2))
    assert await _is_refused(ledger.begin("run_1", _other_call(4)))
    assert await ledger.begin("run_2", _CALL) is None, "it is another run"
    await ledger.finish("run_1", _DONE)  # the tool has run, although the run has a new owner
    assert (await ledger.entries("run_1"))[0].outcome == _DONE


async def _fences_during_takeover(ledger: CallLedger, clock: VirtualClock) -> None:
    """If calls begin while a run is taken over, the new owner sees each call that has begun."""
    begun: set[str] = set()

    async def begin(scope: str, number: int) -> None:
        call = _other_call(number)
        if not await _is_refused(ledger.begin(scope, call, Claim(epoch=1))):
            begun.add(f"{scope} {call.id}")

    seen: set[str] = set()
    for pause in range(8):
        async with anyio.create_task_group() as tasks:
            for number in range(8):
                tasks.start_soon(begin, f"run_{pause}", number)
            for _ in range(pause):
                await anyio.lowlevel.checkpoint()
            await ledger.fence(f"run_{pause}", 2)
            seen |= {f"{entry.scope} {entry.call.id}" for entry in await ledger.entries(f"run_{pause}")}
    assert seen == begun


async def _lists(ledger: CallLedger, clock: VirtualClock) -> None:
    """Entries are listed in pages, the oldest first: all, those of a run or an owner, or those with an unknown
    outcome."""
    ann, bob = ledger.of("ann"), ledger.of("bob")
    for number in range(4):
        await (bob if number == 3 else ann).begin(f"run_{number % 2}", _other_call(number), Claim(holder="h"))
        clock.now += 1
    began = clock.now - 4
    await ledger.finish("run_0", (await ledger.entries())[0].with_result("paid"))
    await ledger.hold("run_1", _other_call(1), "h", 0)

    async def ids(ledger: CallLedger, *given: Any, **wanted: Any) -> list[str]:
        return [entry.call.id for entry in await ledger.entries(*given, **wanted)]

    assert await ids(ledger) == ["call_0", "call_1", "call_2", "call_3"]
    assert await ids(ledger, "run_1") == ["call_1", "call_3"]
    assert await ids(ledger, unknown=True) == ["call_1"]
    assert await ids(ledger, unknown=True, limit=1) == ["call_1"]
    assert await ids(bob) == ["call_3"]
    first = await ledger.entries(limit=2)
    assert await ids(ledger, after=first[-1]) == ["call_2", "call_3"]
    assert [first[1].owner, first[0].began, first[1].outcome] == ["ann", began, None]


async def _is_resolved_once(ledger: CallLedger, clock: VirtualClock) -> None:
    """An outcome can be resolved once, for a call that is not running, and not by another owner."""
    mine, others = ledger.of("ann"), ledger.of("bob")
    await mine.begin("run_1", _CALL, Claim(holder="h"))
    (entry,) = await ledger.entries()
    assert not await ledger.resolve("run_1", entry.with_result({"paid": True})), "it is running"
    await ledger.hold("run_1", _CALL, "h", 0)
    assert not await others.resolve("run_1", entry.with_result(error="no money")), "it belongs to another owner"
    assert await mine.resolve("run_1", entry.with_result({"paid": True}))
    assert not await mine.resolve("run_1", entry.with_result(error="no money")), "it was resolved"
    assert not await mine.resolve("run_2", entry.with_result(error="no money")), "this call does not exist"
    outcome = (await _entry(ledger)).outcome
    assert outcome is not None
    assert (outcome.result, outcome.text, outcome.error) == ({"paid": True}, '{"paid":true}', None)


async def _keeps(ledger: CallLedger, clock: VirtualClock) -> None:
    """Ended and released entries expire after `keep`, unless a suspension may name them. A running call is kept."""
    await ledger.fence("run_1", 1)
    ended, left, begun, plain = (_other_call(number) for number in range(4))
    for call in ended, left, begun, plain:
        await ledger.begin("run_1", call, Claim(holder="h", epoch=1, until=0 if call is plain else math.inf))
    for entry in await ledger.entries():
        if entry.call in (ended, plain):
            await ledger.finish("run_1", entry.with_result())
    await ledger.hold("run_1", left, "h", 0)
    clock.now += ledger.keep - 1
    await ledger.begin("run_2", _CALL)
    assert len(await ledger.entries()) == 5
    clock.now += 2
    await ledger.begin("run_3", _CALL)
    assert [entry.call for entry in await ledger.entries()] == [ended, left, begun, _CALL, _CALL]
    clock.now += CLOCK_SLACK
    await ledger.begin("run_4", _CALL)
    assert [entry.call for entry in await ledger.entries()] == [begun, _CALL, _CALL, _CALL]
    await ledger.begin("run_3", _other_call(4), Claim(epoch=1))
    assert await ledger.begin("run_1", _other_call(5)) is None, "an epoch expires, too"


async def _stores_any_text(ledger: CallLedger, clock: VirtualClock) -> None:
    """Any text of a result can be stored, also half of a surrogate pair or a null character."""
    await ledger.begin("run_1", _CALL)
    text = "\ud800 \0 \u2028 €"
    await ledger.finish("run_1", ToolOutcome(call=_CALL, result=text, text=text, error=None, message=None, elapsed=0.5))
    assert (await _entry(ledger)).outcome is not None


async def _survives_cancellation(ledger: CallLedger, clock: VirtualClock) -> None:
    """After a cancelled `begin`, the ledger works, and the call has begun for its holder, or can begin."""
    for number in range(5):
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ledger.begin, "run_1", _other_call(number), Claim(holder="h"))
                for _ in range(number):
                    await anyio.lowlevel.checkpoint()
                scope.cancel()
    for number in range(5):
        assert await ledger.begin("run_1", _other_call(number), Claim(holder="h")) is None


async def _agrees_with_a_model(ledger: CallLedger, clock: VirtualClock) -> None:
    """In any order of operations, a call begins once, has one outcome, and does not begin with an older epoch."""
    chance = random.Random(1)  # noqa: S311 - must be reproducible
    epoch, state = 0, dict[int, tuple[str, ToolOutcome | None]]()  # the holder, "" for none, and the outcome
    for step in range(150):
        number, holder, given = chance.randrange(4), chance.choice("gh"), chance.randrange(max(0, epoch - 1), epoch + 1)
        call, claim = _other_call(number), Claim(holder=holder, epoch=given)
        outcome = Entry(scope="run_1", call=call, began=0, until=0).with_result(step)
        known, ended = state.get(number, ("", None))
        match chance.choice(("begin", "begin", "leave", "finish", "resolve", "fence", "wait")):
            case "begin":
                try:
                    entry = await ledger.begin("run_1", call, claim)
                except CallRefused:
                    assert given < epoch, f"step {step}: refused"
                    continue
                assert given == epoch, f"step {step}: not refused"
                assert (entry is None) == (number not in state or (known == holder and ended is None)), f"step {step}"
                assert entry is None or (entry.outcome, entry.is_running) == (ended, bool(known) and ended is None)
                state.setdefault(number, (holder, None))
            case "leave":
                await ledger.hold("run_1", call, holder, 0)
                state |= {number: ("", ended)} if number in state and known == holder and ended is None else {}
            case "finish":
                await ledger.finish("run_1", outcome)
                state |= {number: ("", outcome)} if number in state and ended is None else {}
            case "resolve":
                could = number in state and not known and ended is None
                assert await ledger.resolve("run_1", outcome) == could, f"step {step}"
                state |= {number: ("", outcome)} if could else {}
            case "fence" if step % 5 == 0:
                epoch += 1
                await ledger.fence("run_1", epoch)
            case _:
                clock.now += min(ledger.lease, 15.0) / 1000


_LAWS = (
    _begins_once,
    _begins_once_concurrently,
    _distinguishes_calls,
    _renews_leases,
    _expires_leases,
    _fences,
    _fences_during_takeover,
    _lists,
    _is_resolved_once,
    _keeps,
    _stores_any_text,
    _survives_cancellation,
    _agrees_with_a_model,
)
