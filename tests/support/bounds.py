"""Measures the memory and the work of a stream by counting characters, so that machines do not change the result."""

from __future__ import annotations

import gc
import sys
import tracemalloc
import types
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any

import msgspec

from streamtools.events import Call, Error, UIEvent
from streamtools.limits import Limits

LONGEST_MARKER = 160
"""An upper limit for the length of a marker with its white space."""


def stored(root: object) -> int:
    """Return the number of characters and bytes that `root` references, without code and patterns."""
    seen: set[int] = set()
    found = 0
    rest: list[Any] = [root]
    while rest:
        each = rest.pop()
        if id(each) in seen or isinstance(each, type | types.ModuleType | types.FunctionType | types.CodeType):
            continue
        seen.add(id(each))
        if isinstance(each, str | bytes | bytearray):
            found += len(each)
        rest += gc.get_referents(each)
        if isinstance(each, msgspec.Struct):  # the garbage collector does not track structs
            rest += msgspec.structs.astuple(each)
    return found


def peak(work: Callable[[], object]) -> int:
    """Return the maximum number of bytes that `work` allocates."""
    gc.collect()
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def characters_handled(work: Callable[[], object]) -> int:
    """Return the number of characters and bytes that `work` passes to functions of the package.

    The number grows if a text is passed or read again as a whole.
    """
    handled = 0

    def count(frame: FrameType, what: str, _: object) -> None:
        nonlocal handled
        if what == "call" and "streamtools" in frame.f_code.co_filename:
            names = frame.f_code.co_varnames[: frame.f_code.co_argcount]
            given = (frame.f_locals.get(name) for name in names)
            handled += sum(len(value) for value in given if isinstance(value, str | bytes))

    _profile(count, work)
    return handled


def calls_made(work: Callable[[], object]) -> int:
    """Return how many calls of Python and C functions `work` takes."""
    made = 0

    def count(frame: FrameType, what: str, _: object) -> None:
        nonlocal made
        made += what in ("call", "c_call")

    _profile(count, work)
    return made


def _profile(count: Callable[[FrameType, str, object], object], work: Callable[[], object]) -> None:
    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)


def assert_within_limits(events: Iterable[UIEvent], limits: Limits) -> None:
    """Check the size limit of calls and the number of calls in a turn. Malformed calls are errors in `events`."""
    calls = 0
    for each in events:
        if isinstance(each, Error):
            assert len(each.raw or "") <= max(limits.call, LONGEST_MARKER), f"kept beyond the limit: {each}"
        elif isinstance(each, Call):
            assert len(each.call.raw) <= limits.call, f"kept beyond the limit: {each}"
            calls += 1
    assert calls <= limits.calls, f"{calls} calls, of {limits.calls}"
