"""The kinds of blows: where they strike, and which effect they may have.

The effect of a blow is its expected result for the consumer:

- `none`: the run continues undisturbed.
- `tool`: one call fails, and the run continues.
- `late`: calls fail whose timeout has passed.
- `stops`: the run ends early without an exception.
- `fails`: the run reports that it failed.
- `cancels`: the consumer is cancelled.
- `raises`: the consumer gets this exception, in one exception group for each task group around it.
- `escapes`: the program gets the exception.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from dataclasses import dataclass, field

import httpx

from streamtools.tools.invocation import TIMEOUT
from tests.torture.rack import READ, Bang, Boom, Rack

BOTH = ("asyncio", "trio")
ONE = ("asyncio",)


@dataclass(frozen=True)
class Kind:
    """A kind of blow. A `storm` strikes before each step."""

    name: str
    place: str
    effect: str
    strike: Callable[[Rack, Blow], object]
    backends: tuple[str, ...] = BOTH
    depth: int = 0
    reads: str = "plain"
    storm: bool = False
    action: str = ""


@dataclass
class Blow:
    """One blow of one run, and the exception that it raised."""

    kind: Kind
    at: int
    struck: bool = False
    error: BaseException | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return f"{self.kind.name}@{self.at}"


def _raising(make: Callable[[], BaseException]) -> Callable[[Rack, Blow], object]:
    def strike(rack: Rack, blow: Blow) -> object:
        blow.error = make()
        raise blow.error

    return strike


def _saying(word: str) -> Callable[[Rack, Blow], object]:
    return lambda rack, blow: word


def _cancel(rack: Rack, blow: Blow) -> None:
    rack.scope.cancel()


def _cancel_task(rack: Rack, blow: Blow | None = None) -> None:
    if not rack.task.done():
        rack.natively += 1
        rack.task.cancel()


def _cancelling_again(steps: int) -> Callable[[Rack, Blow], object]:
    def strike(rack: Rack, blow: Blow) -> None:
        _cancel_task(rack)
        rack.steps.at.setdefault(rack.steps.count + steps, []).append(lambda: _cancel_task(rack))

    return strike


def _cancel_all(rack: Rack, blow: Blow) -> None:
    """Cancel every task, as asyncio's runner does when a program ends."""
    rack.natively += 1
    for task in asyncio.all_tasks():
        if task is not rack.main and task.get_name() != "helper":
            task.cancel()


def _move_clock(rack: Rack, blow: Blow) -> None:
    rack.steps.now += 1.5 * READ


def _move_clock_far(rack: Rack, blow: Blow) -> None:
    rack.steps.now += 1.5 * TIMEOUT


def _fail_in_sibling(rack: Rack, blow: Blow) -> None:
    blow.struck = False  # True after it has raised; it may be too late for that
    rack.sibling_blow = blow
    rack.sibling.set()


def _acting(name: str) -> Callable[[Rack, Blow], object]:
    return lambda rack, blow: rack.act(name)


def _acting_for(name: str, steps: int) -> Callable[[Rack, Blow], object]:
    return lambda rack, blow: rack.act_for_a_while(name, steps)


def _booming(text: str) -> Callable[[Rack, Blow], object]:
    return _raising(lambda: Boom(text))


def _kinds() -> list[Kind]:
    def collect(rack: Rack, blow: Blow) -> None:
        gc.collect()

    kinds = [
        *(Kind(f"cancel{depth or ''}", "step", "cancels", _cancel, depth=depth) for depth in range(3)),
        *(Kind(f"cancel-task{depth or ''}", "step", "cancels", _cancel_task, ONE, depth=depth) for depth in range(2)),
        *(Kind(f"cancel-again-{gap}", "step", "cancels", _cancelling_again(gap), ONE) for gap in (1, 4, 9)),
        Kind("cancel-all", "step", "cancels", _cancel_all, ONE),
        *(Kind(f"sibling{depth}", "step", "raises", _fail_in_sibling, depth=depth) for depth in (1, 2)),
        Kind("timeout", "step", "none", _move_clock, reads="move_on"),
        Kind("timeouts", "step", "none", _move_clock, reads="move_on", storm=True),
        Kind("wait-for", "step", "none", _move_clock, ONE, reads="wait_for"),
        Kind("collect", "step", "none", collect, storm=True),
        Kind("break", "consumer", "stops", _saying("break")),
        *(Kind(f"raise{depth or ''}", "consumer", "raises", _booming("mine"), depth=depth) for depth in range(3)),
        Kind("bang", "consumer", "raises", _raising(lambda: Bang("mine"))),
        Kind("cancel-inside", "consumer", "cancels", _cancel),
        Kind("aclose-inside", "consumer", "stops", _saying("aclose")),
        Kind("tool-cancels", "tool", "cancels", _cancel),
        Kind("tool-late", "tool", "late", _move_clock_far),
        Kind("tool-lone-cancel", "tool", "tool", _raising(asyncio.CancelledError), ONE),
        Kind("source-lone-cancel", "source", "fails", _raising(asyncio.CancelledError), ONE),
        Kind("request-lone-cancel", "request", "fails", _raising(asyncio.CancelledError), ONE),
        Kind("fault-lone-cancel", "fault", "fails", _raising(asyncio.CancelledError), ONE),
        Kind("review-lone-cancel", "review", "fails", _raising(asyncio.CancelledError), ONE),
        Kind("told-lone-cancel", "told", "none", _raising(asyncio.CancelledError), ONE),
        Kind("close-lone-cancel", "close", "none", _raising(asyncio.CancelledError), ONE),
        Kind("source-breaks", "source", "fails", _raising(lambda: OSError("gone"))),
        Kind("source-cancels", "source", "cancels", _cancel),
        Kind("close-fails", "close", "none", _raising(lambda: OSError("it is closed"))),
        Kind("told-fails", "told", "none", _booming("told")),
        Kind("told-cancels", "told", "cancels", _cancel),
        Kind("told-bang", "told", "escapes", _raising(lambda: Bang("told"))),
        Kind("request-fails", "request", "fails", _raising(lambda: httpx.ConnectError("connection refused"))),
        Kind("request-cancels", "request", "cancels", _cancel),
        Kind("review-fails", "review", "raises", _booming("reviewed")),
        Kind("fault", "fault", "raises", _booming("the source of the caller")),
        Kind("send-fails", "send", "stops", _raising(lambda: OSError("the client has left"))),
        Kind("send-cancels", "send", "cancels", _cancel),
        Kind("handler-fails", "handler", "raises", _booming("handled")),
    ]
    for place in ("tool", "thread"):
        kinds += [
            Kind(f"{place}-fails", place, "tool", _booming(place)),
            Kind(f"{place}-exits", place, "escapes", _raising(lambda: SystemExit(3))),
            Kind(f"{place}-interrupts", place, "escapes", _raising(KeyboardInterrupt)),
            Kind(f"{place}-bang", place, "escapes", _raising(lambda: Bang("for the program"))),
        ]
    for action, effect in ACTIONS.items():
        kinds.append(Kind(action, "step", effect, _acting(action), action=action))
        for gap in (1, 4):
            kinds.append(Kind(f"{action}-cut-{gap}", "step", effect, _acting_for(action, gap), action=action))
    return kinds


ACTIONS = {
    "aclose": "stops",
    "stop": "stops",
    "close-runs": "stops",
    "detach": "none",
    "leave": "stops",
    "end": "stops",
}
"""Actions of another task, if the scenario offers them, and their effects."""

KINDS: dict[str, Kind] = {kind.name: kind for kind in _kinds()}


def read_blow(text: str) -> Blow:
    """Parse a blow such as `cancel@17`. Raises KeyError and ValueError."""
    name, _, at = text.partition("@")
    return Blow(KINDS[name], int(at or 0))
