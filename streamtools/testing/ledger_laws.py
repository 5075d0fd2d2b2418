"""The laws that every ledger keeps, whatever it writes into: what `CallLedger` promises, as functions that fail.

Time is told by a clock that only the laws move, so that leases and ages end without anybody waiting.
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
from streamtools.recording import VirtualClock
from streamtools.tools import CallLedger, Claim, Entry, ToolOutcome
from streamtools.tools.ledger import CLOCK_SLACK

MakeLedger: TypeAlias = Callable[[Callable[[], float]], AbstractAsyncContextManager[CallLedger]]
"""Makes a ledger in which nothing is written yet, that takes its time from the function that it is given."""

_CALL = ToolCall(id="call_1", name="pay", arguments={"to": "Ann"}, dialect="native")
_DONE = ToolOutcome(call=_CALL, result={"paid": True}, text='{"paid":true}', error=None, message=None, elapsed=0.5)


async def assert_ledger_laws(make_ledger: MakeLedger) -> None:
    """Hold a ledger to what `CallLedger` promises; fails with AssertionError where a law is broken, which it tells.

    `make_ledger(clock)` is an asynchronous context manager of a ledger in which nothing is written; it is entered once
    for each law. `clock()` tells the seconds since 1970 that the ledger has to go by. The ledger's own `lease` and
    `keep` are what is tried; one of `keep` less than a minute is too short to try.
    """
    for law in _LAWS:
        clock = VirtualClock(1_700_000_000.0)
        async with make_ledger(clock) as ledger:
            try:
                await law(ledger, clock)
            except Exception as error:
                raise AssertionError(f"{law.__doc__}\n{error!r}") from error


async def _there(ledger: CallLedger, call: ToolCall = _CALL) -> Entry:
    entry = await ledger.begin("run_1", call, Claim(holder="somebody else"))
    assert entry is not None, f"{call.id} begins, though it has begun"
    return entry


def _another(number: int) -> ToolCall:
    return ToolCall(id=f"call_{number}", name="pay", arguments={}, dialect="native")


async def _is_refused(asked: Awaitable[object]) -> bool:
    try:
        await asked
    except CallRefused:
        return True
    return False


async def _begins_once(ledger: CallLedger, clock: VirtualClock) -> None:
    """A call begins once: who comes second is told what is known of it."""
    assert await ledger.begin("run_1", _CALL) is None
    assert (await _there(ledger)).is_unknown
    await ledger.finish("run_1", _DONE)
    assert (await _there(ledger)).outcome == _DONE
    await ledger.finish("run_1", (await _there(ledger)).with_result(error="lost"))
    assert (await _there(ledger)).outcome == _DONE, "what is written already stands"


async def _of_many_one_begins(ledger: CallLedger, clock: VirtualClock) -> None:
    """Of many that ask at the same time, exactly one begins."""
    entries: list[Entry | None] = []

    async def begin(number: int) -> None:
        entries.append(await ledger.begin("run_1", _CALL, Claim(holder=f"h{number}")))

    async with anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(begin, number)
    assert entries.count(None) == 1


async def _tells_calls_apart(ledger: CallLedger, clock: VirtualClock) -> None:
    """Another run, another id, another name and other arguments each make another call."""
    await ledger.begin("run_1", _CALL)
    others: list[dict[str, Any]] = [{"id": "call_2"}, {"name": "look"}, {"arguments": {"to": "Bob"}}, {"arguments": {}}]
    for change in others:
        assert await ledger.begin("run_1", msgspec.structs.replace(_CALL, **change)) is None, change
    assert await ledger.begin("run_2", _CALL) is None


async def _is_held(ledger: CallLedger, clock: VirtualClock) -> None:
    """While its holder comes back, the end of a call is not unknown; who asks again has it still, and only who has it
    may leave it."""
    assert await ledger.begin("run_1", _CALL, Claim(holder="h")) is None
    assert await ledger.begin("run_1", _CALL, Claim(holder="h")) is None, "an answer may be lost"
    for _ in range(5):
        clock.now += min(ledger.lease, 15.0) * 2 / 3
        assert (await _there(ledger)).is_running
        await ledger.hold("run_1", _CALL, "h", ledger.lease)
    await ledger.hold("run_1", _CALL, "somebody else", 0)
    assert (await _there(ledger)).held
    await ledger.hold("run_1", _CALL, "h", 0)
    assert (await _there(ledger)).is_unknown
    assert (await _there(ledger)).ended == clock.now
    assert await ledger.begin("run_1", _CALL, Claim(holder="h")) is not None, "it was left"


async def _leases_end(ledger: CallLedger, clock: VirtualClock) -> None:
    """When a lease is over nobody knows more, until the holder says so after all."""
    if ledger.lease == math.inf:
        return
    await ledger.begin("run_1", _CALL, Claim(holder="h"))
    clock.now += ledger.lease - 1e-3
    assert (await _there(ledger)).is_running
    clock.now += 2e-3
    assert (await _there(ledger)).is_unknown
    await ledger.finish("run_1", _DONE)
    assert not await ledger.resolve("run_1", (await _there(ledger)).with_result(error="lost"))
    assert (await _there(ledger)).outcome == _DONE


async def _fences(ledger: CallLedger, clock: VirtualClock) -> None:
    """Nothing begins under an older epoch than the run's, whether it was raised by a claim or by a call."""
    await ledger.begin("run_1", _CALL, Claim(epoch=1))
    await ledger.fence("run_1", 2)
    assert await _is_refused(ledger.begin("run_1", _another(2), Claim(epoch=1)))
    assert await _is_refused(ledger.begin("run_1", _CALL, Claim(epoch=1))), "nor is it told what is there"
    assert await ledger.begin("run_1", _another(2), Claim(epoch=2)) is None, "what was refused was not written"
    assert await ledger.begin("run_1", _another(3), Claim(epoch=3)) is None
    assert await _is_refused(ledger.fence("run_1", 2))
    assert await _is_refused(ledger.begin("run_1", _another(4)))
    assert await ledger.begin("run_2", _CALL) is None, "it is another run"
    await ledger.finish("run_1", _DONE)  # its tool has run, whoever drives the run now
    assert (await ledger.entries("run_1"))[0].outcome == _DONE


async def _fences_under_way(ledger: CallLedger, clock: VirtualClock) -> None:
    """Where calls begin while a run is taken over, each that begins is there for who has taken it."""
    begun: set[str] = set()

    async def begin(scope: str, number: int) -> None:
        call = _another(number)
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
    """Entries are listed, the oldest first, in pages, of one run, of one owner, or those that somebody looks into."""
    ann, bob = ledger.of("ann"), ledger.of("bob")
    for number in range(4):
        await (bob if number == 3 else ann).begin(f"run_{number % 2}", _another(number), Claim(holder="h"))
        clock.now += 1
    began = clock.now - 4
    await ledger.finish("run_0", (await ledger.entries())[0].with_result("paid"))
    await ledger.hold("run_1", _another(1), "h", 0)

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
    """What somebody has found out is told once, of a call that nobody runs, and not by another owner."""
    mine, others = ledger.of("ann"), ledger.of("bob")
    await mine.begin("run_1", _CALL, Claim(holder="h"))
    (entry,) = await ledger.entries()
    assert not await ledger.resolve("run_1", entry.with_result({"paid": True})), "somebody runs it"
    await ledger.hold("run_1", _CALL, "h", 0)
    assert not await others.resolve("run_1", entry.with_result(error="no money")), "it is another's"
    assert await mine.resolve("run_1", entry.with_result({"paid": True}))
    assert not await mine.resolve("run_1", entry.with_result(error="no money")), "it was told"
    assert not await mine.resolve("run_2", entry.with_result(error="no money")), "there is no such call"
    outcome = (await _there(ledger)).outcome
    assert outcome is not None
    assert (outcome.result, outcome.text, outcome.error) == ({"paid": True}, '{"paid":true}', None)


async def _prunes(ledger: CallLedger, clock: VirtualClock) -> None:
    """What is pruned is old, nobody runs it, no suspension names it, and it is no other owner's."""
    plain, named, held, lost, late = (_another(number) for number in range(5))
    await ledger.begin("run_1", plain, Claim(holder="h", until=0))
    await ledger.begin("run_1", named, Claim(holder="h", until=clock.now + 5))
    await ledger.begin("run_1", held, Claim(holder="h", until=0))
    await ledger.begin("run_1", lost, Claim(until=0))
    await ledger.begin("run_1", late, Claim(holder="h", until=clock.now - 5))  # by another clock it is not
    for call in plain, named, late:
        await ledger.finish("run_1", (await _there(ledger, call)).with_result())
    clock.now += 1
    await ledger.hold("run_1", held, "h", ledger.lease)
    assert await ledger.prune(2) == 0
    assert await ledger.of("ann").prune(1) == 0
    assert await ledger.prune(1) == 2
    assert [entry.call for entry in await ledger.entries()] == [named, held, late]
    await ledger.hold("run_1", held, "h", 0)
    clock.now += 5 + CLOCK_SLACK
    assert await ledger.prune(1) == 3
    assert await ledger.begin("run_1", plain) is None


async def _keeps(ledger: CallLedger, clock: VirtualClock) -> None:
    """What has ended, or was left, goes by itself, and not too soon; a call that may be at work does not."""
    await ledger.fence("run_1", 1)
    ended, left, begun = (_another(number) for number in range(3))
    for call in ended, left, begun:
        await ledger.begin("run_1", call, Claim(holder="h", epoch=1))
    (entry, *_) = await ledger.entries()
    await ledger.finish("run_1", entry.with_result())
    await ledger.hold("run_1", left, "h", 0)
    clock.now += ledger.keep - 1
    await ledger.begin("run_2", _CALL)
    assert len(await ledger.entries()) == 4
    clock.now += 1 + CLOCK_SLACK
    await ledger.begin("run_3", _CALL)
    assert [entry.call for entry in await ledger.entries()] == [begun, _CALL, _CALL]
    await ledger.begin("run_3", _another(3), Claim(epoch=1))
    assert await ledger.begin("run_1", _another(4)) is None, "and so does an epoch"


async def _takes_any_text(ledger: CallLedger, clock: VirtualClock) -> None:
    """No text of a result keeps a call from being done: half a surrogate pair, from a file name say, or a NUL."""
    await ledger.begin("run_1", _CALL)
    text = "\ud800 \0 \u2028 €"
    await ledger.finish("run_1", ToolOutcome(call=_CALL, result=text, text=text, error=None, message=None, elapsed=0.5))
    assert (await _there(ledger)).outcome is not None


async def _can_be_cancelled(ledger: CallLedger, clock: VirtualClock) -> None:
    """Who is cancelled waits for nothing more, and the ledger goes on; what was to begin has begun for its holder, or
    can."""
    for number in range(5):
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ledger.begin, "run_1", _another(number), Claim(holder="h"))
                for _ in range(number):
                    await anyio.lowlevel.checkpoint()
                scope.cancel()
    for number in range(5):
        assert await ledger.begin("run_1", _another(number), Claim(holder="h")) is None


async def _agrees_with_a_model(ledger: CallLedger, clock: VirtualClock) -> None:
    """Whatever happens in whatever order, a call begins once, has one outcome, and none under an older epoch."""
    chance = random.Random(1)  # noqa: S311 - the same each time
    epoch, state = 0, dict[int, tuple[str, ToolOutcome | None]]()  # who runs it, "" for nobody, and what came of it
    for step in range(150):
        number, holder, given = chance.randrange(4), chance.choice("gh"), chance.randrange(max(0, epoch - 1), epoch + 1)
        call, claim = _another(number), Claim(holder=holder, epoch=given)
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
    *(_begins_once, _of_many_one_begins, _tells_calls_apart, _is_held, _leases_end, _fences, _fences_under_way),
    *(_lists, _is_resolved_once, _prunes, _keeps, _takes_any_text, _can_be_cancelled, _agrees_with_a_model),
)
