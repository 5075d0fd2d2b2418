"""Every async test runs on both event loops; the properties run in one of three profiles.

`quick` is the same fifteen examples each time, `HYPOTHESIS_PROFILE=deep` the same hundred, and
`HYPOTHESIS_PROFILE=laws` two thousand new ones for every property. The events of every stream that a test reads, and so
of every chat and every replay, are held against their grammar. At the end stands what the tests took: time of the
processor, and of the clock.
"""

from __future__ import annotations

import gc
import os
import re
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from weakref import WeakKeyDictionary

import pytest
import structlog
from _pytest.runner import runtestprotocol
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from streamtools import ToolStream
from streamtools.events import UIEvent
from streamtools.machine.event_order import Grammar

_UNTIMED = [HealthCheck.too_slow]  # a busy machine makes no test fail

settings.register_profile("quick", max_examples=15, derandomize=True, deadline=None, suppress_health_check=_UNTIMED)
settings.register_profile("deep", max_examples=100, derandomize=True, deadline=None, suppress_health_check=_UNTIMED)
settings.register_profile("laws", max_examples=2000, deadline=None, suppress_health_check=_UNTIMED)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))

# Hypothesis draws now and then a constant of the modules that are loaded: other ones, when other tests ran before.
providers._get_local_constants = lambda: providers._local_constants

if sys.dont_write_bytecode:  # as in many containers: each worker, and each command of a test, would compile everything
    sys.dont_write_bytecode = False
    sys.pycache_prefix = str(Path(__file__).parents[1] / ".cache" / "bytecode")
    os.environ |= {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": sys.pycache_prefix}

vars(re)["_MAXCACHE"] = 1 << 16  # the tests read with all dialects in turn: 512 patterns are compiled again and again

if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):  # begun with `&` in a script: commands that tests start inherit it,
    signal.signal(signal.SIGINT, signal.default_int_handler)  # and then those that are interrupted would never end

_STARTED: pytest.StashKey[float] = pytest.StashKey()


def pytest_configure(config: pytest.Config) -> None:
    """Remember when it began."""
    config.stash[_STARTED] = os.times().elapsed


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Keep what was collected from the garbage collector, which would go through thousands of tests at each of them."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """In a worker, report a test once, and not also that it begins, is set up, torn down and over: of twelve thousand
    tests, that costs the process which the workers report to half of its time.
    """
    if not hasattr(item.config, "workerinput"):
        return None
    for report in runtestprotocol(item, log=False, nextitem=nextitem):
        if report.when == "call" or not report.passed:
            item.ihook.pytest_runtest_logreport(report=report)
    return True


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say what the tests took, in this process and in all that it has started and waited for: workers, commands."""
    took = os.times()
    processor = took.user + took.system + took.children_user + took.children_system
    wall = took.elapsed - config.stash[_STARTED]
    terminalreporter.write_line(f"{processor:.0f} s of processor time, {wall:.0f} s on the wall")


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """The event loop of an async test."""
    return str(request.param)


@pytest.fixture(scope="session", autouse=True)
def no_authorities(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No certificate is ever looked at; to read those of all authorities, for each client, would take a quarter of a
    minute.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("SSL_CERT_FILE", raising=False)
        patch.setenv("SSL_CERT_DIR", str(tmp_path_factory.mktemp("authorities")))
        yield


@pytest.fixture(scope="session", autouse=True)
def events_in_order() -> Iterator[None]:
    """Whoever reads a stream gets `EventOrderError` where its events are not those of a run."""
    grammars: WeakKeyDictionary[ToolStream, Grammar] = WeakKeyDictionary()
    read, take_ready = ToolStream.__anext__, ToolStream.take_ready

    async def checked(stream: ToolStream) -> UIEvent:
        event = await read(stream)
        grammars.setdefault(stream, Grammar()).feed(event)
        return event

    def ready_checked(stream: ToolStream) -> Sequence[UIEvent]:
        events = take_ready(stream)
        for event in events:
            grammars.setdefault(stream, Grammar()).feed(event)
        return events

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ToolStream, "__anext__", checked)
        patch.setattr(ToolStream, "take_ready", ready_checked)
        yield


def pytest_runtest_teardown() -> None:
    """Leave structlog as it was: what captures logs configures it, and then the library logs there."""
    if structlog.is_configured():
        structlog.reset_defaults()
