"""The tools of the soak, and the expected result of each call.

Each tool records in the state of its run that it was called. This finds a call that runs twice or never, even if the
events look right.
"""

from __future__ import annotations

import random
import time
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple

import anyio

from benchmarks import texts
from streamtools import ToolContext, ToolError, ToolRegistry
from streamtools.errors import Code

SECRET = "the password is mellon"  # what a tool raises, and nobody may read


class Fate(NamedTuple):
    """The expected result of a call: a value or a code. `words` is the error message, if it matters."""

    result: Any = None
    code: Code | None = None
    words: str | None = None
    progress: tuple[Any, ...] = ()
    runs: bool = True
    asks: bool = False
    left: bool = False  # a thread is left behind


class Errand(NamedTuple):
    """A call of a model. Without `fate`, it is malformed."""

    name: str
    arguments: dict[str, Any]
    fate: Fate | None


registry = ToolRegistry()
Context = ToolContext[Counter[str]]
"""The state of a run is how often each of its calls was run."""


@registry.tool
def add(a: int, b: int, context: Context) -> dict[str, Any]:
    """Add two numbers, in a thread."""
    context.state[context.call_id] += 1
    return {"message": f"{a} and {b} are {a + b}", "sum": a + b}


@registry.tool
async def look_up(city: str, days: int, context: Context) -> dict[str, Any]:
    """Look up the weather, with a short delay."""
    context.state[context.call_id] += 1
    await anyio.sleep(0.01 * days)
    return {"city": city, "days": [*range(days)]}


@registry.tool
async def keep_file(path: str, content: str, context: Context, overwrite: bool = False) -> str:
    """Return the size of a file."""
    context.state[context.call_id] += 1
    return f"{path} {len(content)} {zlib.crc32(content.encode())} {overwrite}"


@registry.tool
async def count(to: int, context: Context) -> AsyncIterator[dict[str, int]]:
    """Count slowly, and report progress."""
    context.state[context.call_id] += 1
    for number in range(1, to + 1):
        await anyio.sleep(0.02)
        yield {"at": number}


@registry.tool
def count_in_thread(to: int, context: Context) -> dict[str, int]:
    """Count in a thread, and report progress."""
    context.state[context.call_id] += 1
    for number in range(1, to + 1):
        context.progress({"at": number})
    return {"at": to}


@registry.tool
async def refuse(what: str, context: Context) -> str:
    """Fail with a message for the model."""
    context.state[context.call_id] += 1
    raise ToolError(f"there is no {what}")


@registry.tool
def crash(what: str, context: Context) -> str:
    """Fail without a message, in a thread."""
    context.state[context.call_id] += 1
    raise LookupError(f"{what}: {SECRET}")


@registry.tool(timeout=0.2)
async def dawdle(context: Context) -> str:
    """Never end."""
    context.state[context.call_id] += 1
    await anyio.sleep_forever()
    return "never"


@registry.tool(timeout=0.1)
def oversleep(context: Context) -> str:
    """End too late, in a thread that cannot be stopped."""
    context.state[context.call_id] += 1
    while not context.cancelled:
        time.sleep(0.01)
    return "too late"


@registry.tool(requires_approval=True)
async def pay(amount: int, context: Context) -> dict[str, int]:
    """Pay, if it is approved."""
    context.state[context.call_id] += 1
    return {"paid": amount}


def allowed(arguments: dict[str, Any]) -> bool:
    """Return whether the call is approved."""
    return int(arguments["amount"]) % 3 != 0


def _add(rng: random.Random) -> Errand:
    a, b = rng.randint(-99, 99), rng.randint(0, 9999)
    return Errand("add", {"a": a, "b": b}, Fate({"message": f"{a} and {b} are {a + b}", "sum": a + b}))


def _look_up(rng: random.Random) -> Errand:
    given = texts.small_arguments(rng)
    return Errand("look_up", given, Fate({"city": given["city"], "days": [*range(given["days"])]}))


def _keep_file(rng: random.Random) -> Errand:
    given = texts.arguments(rng.randint(200, 1500), rng.randint(1, 99))
    path, content, overwrite = given.values()
    return Errand("keep_file", given, Fate(f"{path} {len(content)} {zlib.crc32(content.encode())} {overwrite}"))


def _count(rng: random.Random) -> Errand:
    steps = tuple({"at": number} for number in range(1, rng.randint(2, 7)))
    return Errand(rng.choice(["count", "count_in_thread"]), {"to": len(steps)}, Fate(steps[-1], progress=steps))


def _refuse(rng: random.Random) -> Errand:
    what = rng.choice(texts.WORDS)
    return Errand("refuse", {"what": what}, Fate(code=Code.TOOL_FAILED, words=f"there is no {what}"))


def _crash(rng: random.Random) -> Errand:
    return Errand("crash", {"what": rng.choice(texts.WORDS)}, Fate(code=Code.TOOL_FAILED))


def _late(rng: random.Random) -> Errand:
    name = rng.choice(["dawdle", "oversleep"])
    return Errand(name, {}, Fate(code=Code.TOOL_TIMEOUT, left=name == "oversleep"))


def _pay(rng: random.Random) -> Errand:
    given = {"amount": rng.randint(1, 999)}
    if allowed(given):
        return Errand("pay", given, Fate({"paid": given["amount"]}, asks=True))
    return Errand("pay", given, Fate(code=Code.TOOL_DENIED, runs=False, asks=True))


def _unknown(rng: random.Random) -> Errand:
    return Errand(f"no_tool_{rng.randint(1, 9)}", {"a": 1}, Fate(code=Code.UNKNOWN_TOOL, runs=False))


def _wrong(rng: random.Random) -> Errand:
    return Errand("add", {"a": rng.choice(texts.WORDS), "b": 1}, Fate(code=Code.TOOL_INPUT, runs=False))


def _malformed(rng: random.Random) -> Errand:
    return Errand("look_up", {"city": rng.choice(texts.WORDS)}, None)


_WEIGHTS: dict[Callable[[random.Random], Errand], int] = {
    _add: 20,
    _look_up: 20,
    _keep_file: 15,
    _count: 12,
    _refuse: 5,
    _crash: 5,
    _late: 3,
    _pay: 8,
    _unknown: 4,
    _wrong: 4,
    _malformed: 4,
}


def choose(rng: random.Random) -> Errand:
    """Return one of the calls."""
    return rng.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0](rng)
