"""Fixtures and hooks of all tests.

Every async test runs on both event loops. Property tests run in one of three profiles of `HYPOTHESIS_PROFILE`: `quick`
(the default) runs the same 15 examples each time, `deep` the same 100, and `laws` 2,000 new ones.

The events of every stream that a test reads, chats and replays included, are checked against the event grammar. The
summary at the end shows the processor time and the elapsed time of the tests.
"""

from __future__ import annotations

import contextlib
import gc
import os
import re
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from weakref import WeakKeyDictionary

import anyio
import pytest
import structlog
from _pytest.runner import runtestprotocol
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from streamtools import ToolStream
from streamtools.events import UIEvent
from streamtools.machine.event_order import Grammar
from tests.support.loops import ONE_LOOP, OTHER_LOOP_DEEP

_UNTIMED = [HealthCheck.too_slow]  # no test may fail because the machine is busy

settings.register_profile("quick", max_examples=15, derandomize=True, deadline=None, suppress_health_check=_UNTIMED)
settings.register_profile("deep", max_examples=100, derandomize=True, deadline=None, suppress_health_check=_UNTIMED)
settings.register_profile("laws", max_examples=2000, deadline=None, suppress_health_check=_UNTIMED)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))

# Hypothesis sometimes draws constants of the loaded modules, which depend on the tests that ran before.
providers._get_local_constants = lambda: providers._local_constants

if sys.dont_write_bytecode:  # common in containers: every worker and command would compile all modules again
    sys.dont_write_bytecode = False
    sys.pycache_prefix = str(Path(__file__).parents[1] / ".cache" / "bytecode")
    os.environ |= {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": sys.pycache_prefix}

# After a change of `sys.path`, coverage removes the modules imported since it began to look for its source packages. It
# does so in its trace function, on any thread, and would remove a module that another thread is importing at that time.
if "coverage.inorout" in sys.modules:
    vars(sys.modules["coverage.inorout"])["sys_modules_saved"] = contextlib.nullcontext

vars(re)["_MAXCACHE"] = 1 << 16  # the default of 512 patterns is too small for tests with all dialects

# A script that starts pytest with `&` ignores SIGINT. Commands started by tests would inherit that and never end.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_STARTED: pytest.StashKey[float] = pytest.StashKey()


def pytest_configure(config: pytest.Config) -> None:
    """Record the start time."""
    config.stash[_STARTED] = os.times().elapsed


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Exclude the collected tests from garbage collection: otherwise every collection traverses thousands of tests."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run async tests on the event loops of the markers `asyncio_only` and `trio_deep`, unless a test names its own."""
    test = metafunc.definition
    named = any(mark.args[0] == "anyio_backend" for mark in test.iter_markers("parametrize"))
    if "anyio_backend" in metafunc.fixturenames and not named:
        for marker, loops in (("asyncio_only", ONE_LOOP), ("trio_deep", OTHER_LOOP_DEEP)):
            if test.get_closest_marker(marker):
                test.add_marker(loops)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out tests with Redis on trio, because redis-py runs on asyncio only."""
    parameters = [[*item.callspec.params.values()] if hasattr(item, "callspec") else [] for item in items]
    items[:] = [
        item for item, values in zip(items, parameters, strict=True) if not ("redis" in values and "trio" in values)
    ]


def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Report a test once in a worker, without its start, setup, teardown and finish.

    With 12,000 tests, those reports take half of the time of the main process.
    """
    if not hasattr(item.config, "workerinput"):
        return None
    for report in runtestprotocol(item, log=False, nextitem=nextitem):
        if report.when == "call" or not report.passed:
            item.ihook.pytest_runtest_logreport(report=report)
    return True


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print processor and elapsed time, including workers and commands that the tests started."""
    took = os.times()
    processor = took.user + took.system + took.children_user + took.children_system
    wall = took.elapsed - config.stash[_STARTED]
    terminalreporter.write_line(f"{processor:.0f} s of processor time, {wall:.0f} s elapsed")


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """The event loop library of an async test."""
    return str(request.param)


@pytest.fixture(scope="session", autouse=True)
def no_authorities(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Give HTTP clients an empty certificate store. Loading the real one for each client takes 15 seconds in all."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("SSL_CERT_FILE", raising=False)
        patch.setenv("SSL_CERT_DIR", str(tmp_path_factory.mktemp("authorities")))
        yield


@pytest.fixture(scope="session", autouse=True)
def no_naps() -> Iterator[None]:
    """Let other tasks act before `anyio.wait_all_tasks_blocked` looks: on asyncio, it sleeps 0.1 s if one can act."""
    wait = anyio.wait_all_tasks_blocked

    async def act_and_wait() -> None:
        for _ in range(50):
            await anyio.lowlevel.checkpoint()
        await wait()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(anyio, "wait_all_tasks_blocked", act_and_wait)
        yield


@pytest.fixture(scope="session", autouse=True)
def events_in_order() -> Iterator[None]:
    """Check the events of every stream. A reader gets `EventOrderError` if they violate the grammar of a run.

    A stream that continues a run is not checked, because its log has the first events.
    """
    grammars: WeakKeyDictionary[ToolStream, Grammar | None] = WeakKeyDictionary()
    read, take_ready = ToolStream.__anext__, ToolStream._take_ready

    def check(stream: ToolStream, event: UIEvent) -> None:
        grammar = grammars.setdefault(stream, Grammar() if event.seq < 2 else None)
        if grammar is not None:
            grammar.feed(event)

    async def checked(stream: ToolStream) -> UIEvent:
        event = await read(stream)
        check(stream, event)
        return event

    def ready_checked(stream: ToolStream) -> Sequence[UIEvent]:
        events = take_ready(stream)
        for event in events:
            check(stream, event)
        return events

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ToolStream, "__anext__", checked)
        patch.setattr(ToolStream, "_take_ready", ready_checked)
        yield


def pytest_runtest_teardown() -> None:
    """Reset structlog: capturing its logs configures it, and the library would log to it in later tests."""
    if structlog.is_configured():
        structlog.reset_defaults()
