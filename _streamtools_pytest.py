"""What pytest loads of streamtools in every project that has it installed: an option, a marker and a fixture by name.

The fixture `recording` finds the recording of a test, chooses what may happen, and blocks the network. The recording
stands beside the test and is named after it, one for all event loops and cuts that it runs over:

    tests/test_chat.py::test_weather               tests/recordings/test_chat/test_weather.jsonl
    tests/test_chat.py::TestTools::test_two[a-b]   tests/recordings/test_chat/TestTools.test_two-a-b.jsonl

A module of its own beside the package, because importing anything of the package imports all of it, and most projects
have tests in which nothing streams. So whatever costs time is imported when a test asks for it.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

if TYPE_CHECKING:
    from streamtools.testing.fixture import Mode, RecordingFixture, RecordingSettings

MODES = ("none", "once", "new", "rewrite")
_MARKER = (
    "recording(name, *, source, match, unplayed, allow_hosts, ...): which recording the fixture `recording` gives a"
    " test (by default the one named after the test, beside it), and how; the network is blocked while it is replayed"
)
_USED: pytest.StashKey[RecordingFixture] = pytest.StashKey()
_FRESH: pytest.StashKey[set[Path]] = pytest.StashKey()
_OWNERS: pytest.StashKey[dict[Path, str]] = pytest.StashKey()

FOLDER = "recordings"
_NAME = "recording"  # of the fixture, and of the marker
_LONGEST = 100  # characters of a name, so that it is one in every file system
_CUT = re.compile(r"(?:^|-)cut=\w+(?=-|$)")  # what `every_cut` names a way of cutting
_UNSAFE = re.compile(r"[^\w.+=-]+")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what is said on the command line."""
    group = parser.getgroup("streamtools", "streams, recorded and replayed")
    group.addoption(
        "--record-streams",
        choices=MODES,
        default="none",
        help="whether tests with the fixture `recording` may ask the network: never (none, the default); where there is"
        " no recording (once); for requests that are not in the recording (new); always, and anew (rewrite)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line("markers", _MARKER)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Give a test that has the marker the fixture too, whether or not it asks for it by name."""
    names = getattr(item, "fixturenames", None)
    if names is not None and "recording" not in names and item.get_closest_marker("recording") is not None:
        names.append("recording")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Fail a test that has passed, if something of its recording was not played; explain one that has failed."""
    try:
        outcome = yield
    except BaseException:
        if (stream := item.stash.get(_USED, None)) is not None and (faults := stream.faults(unplayed=False)):
            item.add_report_section("call", "recording", "\n".join(faults))
        raise
    if (stream := item.stash.get(_USED, None)) is not None:
        if faults := stream.faults(unplayed=True):
            _fail("\n".join(faults))
        stream.passed = True
    return outcome


@pytest.fixture(scope="session")
def recording_options() -> dict[str, Any]:
    """What holds for every recording of a project, to be overridden: the keywords of the marker."""
    return {}


@pytest.fixture
def recording(request: pytest.FixtureRequest, recording_options: dict[str, Any]) -> Iterator[RecordingFixture]:
    """The recording of this test: a transport for HTTP clients, and a replay straight to events."""
    with _opened(request, recording_options) as stream:
        request.node.stash[_USED] = stream
        yield stream


@contextmanager
def _opened(request: pytest.FixtureRequest, defaults: Mapping[str, Any]) -> Iterator[RecordingFixture]:
    """Give a test its recording, and keep what was recorded when it is over."""
    from streamtools.recording import Playback
    from streamtools.testing.fixture import RecordingFixture
    from streamtools.testing.network import blocked

    item: pytest.Item = request.node
    fresh = item.config.stash.setdefault(_FRESH, set())
    name, settings = _settings(item, defaults, getattr(request, "param", None))
    path = place_of(item, name)
    mode = _mode(item.config.getoption("--record-streams"), path, again=path in fresh)
    here = _short(path)
    owner = owner_of(path, item)
    if mode == "replay" and not path.exists():
        _fail(f"{here} is not there: {_how_to_record(item, owner, faulty=Playback(**settings.playback).faulty)}")
    again = f"`pytest --record-streams=new '{owner or item.nodeid}'` records what is missing, and"
    stream = RecordingFixture(path, settings, mode, f"{again} `--record-streams=rewrite` everything anew")
    advice = (
        f"what goes through `recording.transport` is replayed from {here}, and `pytest --record-streams=rewrite"
        f" '{owner or item.nodeid}'` records it anew; `allow_hosts` lets a host through"
    )
    guard = blocked(advice, allow=settings.allow_hosts) if mode == "replay" else nullcontext()
    try:
        with guard:
            yield stream
    finally:
        if why := stream.save():
            item.add_report_section("teardown", "recording", f"{here} is not recorded: {why}")
        elif mode != "replay":
            fresh.add(path)


def _settings(item: pytest.Item, defaults: Mapping[str, Any], cut: Any) -> tuple[str | Path | None, RecordingSettings]:
    """Return the name of the recording, if it was given one, and how to use it: the nearest marker that says so."""
    from streamtools.recording.playback import PLAYBACK
    from streamtools.testing.fixture import RecordingSettings

    name: str | Path | None = None
    chosen = dict(defaults)
    for marker in reversed(list(item.iter_markers("recording"))):
        if len(marker.args) > 1:
            _fail(f"the marker `recording` takes one name, not {marker.args!r}")
        name = marker.args[0] if marker.args else name
        chosen |= marker.kwargs
    if cut is not None:
        chosen["cut"] = cut
    playback: Any = {key: value for key, value in chosen.items() if key in PLAYBACK}
    own = {key: value for key, value in chosen.items() if key not in PLAYBACK}
    known = {field.name for field in fields(RecordingSettings)} - {"playback"}
    if unknown := own.keys() - known:
        _fail(
            f"a recording has no option {', '.join(sorted(unknown))}; there are {', '.join(sorted(known | PLAYBACK))}"
        )
    try:
        return name, RecordingSettings(**own, playback=playback)
    except (ValueError, TypeError) as error:
        _fail(f"the options of the recording: {error}")


def place_of(item: pytest.Item, name: str | Path | None) -> Path:
    """Return the path of the recording of a test.

    A plain `name` is that of a recording among those of the test's module, or of the test that records it, with its
    parameters as pytest writes them; one with a folder or a suffix, and a `Path`, is a path as seen from the test's
    folder.
    """
    if isinstance(name, Path) or (name and ("/" in name or Path(name).suffix)):
        return item.path.parent / name
    named = re.sub(r"\[(.*)\]\Z", r"-\1", name) if name else _name_of(item)
    return item.path.parent / FOLDER / item.path.stem / f"{_safe(named)}.jsonl"


def owner_of(path: Path, item: pytest.Item) -> str | None:
    """Return the id of the first test of this run after which the recording at `path` is named; None without one."""
    if path not in (owners := item.session.stash.setdefault(_OWNERS, {})):
        for each in (item, *reversed(item.session.items)):
            named = any(marker.args for marker in each.iter_markers(_NAME))
            if _NAME in getattr(each, "fixturenames", ()) and not named:
                owners[place_of(each, None)] = each.nodeid
        owners.setdefault(path, "")
    return owners[path] or None


def _name_of(item: pytest.Item) -> str:
    own = getattr(item, "originalname", None) or item.name
    kind = getattr(item, "cls", None)
    name = own if kind is None else f"{kind.__name__}.{own}"
    callspec: Any = getattr(item, "callspec", None)
    if callspec is None:
        return name
    rest = _CUT.sub("", callspec.id, count=1)
    backend = callspec.params.get("anyio_backend")
    if backend is not None:
        loop = re.escape(backend if isinstance(backend, str) else str(backend[0]))
        rest = re.sub(rf"(?:^|-)(?:{loop}(?:\+\w+)?|anyio_backend\d+)(?=-|$)", "", rest, count=1)
    rest = rest.strip("-")
    return f"{name}-{rest}" if rest else name


def _safe(name: str) -> str:
    """Return a name that can be that of a file; two that differ stay different."""
    safe = _UNSAFE.sub("_", name)
    if safe == name and len(name) <= _LONGEST:
        return name
    return f"{safe[:_LONGEST]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _how_to_record(item: pytest.Item, owner: str | None, *, faulty: bool) -> str:
    if owner is None:
        return (
            "the test that it belongs to records it, or else the first that asks for it through `recording.transport`:"
            " `pytest --record-streams=once`"
        )
    whole = ", whole: a fault comes when it is replayed" if owner == item.nodeid and faulty else ""
    return f"`pytest --record-streams=once '{owner}'` records what that test asks through `recording.transport`{whole}"


def _mode(option: str, path: Path, *, again: bool) -> Mode:
    if option == "rewrite" and not again:
        return "record"
    if option == "new" and path.suffix in ("", ".jsonl") and not again:
        return "extend"
    return "record" if option == "once" and not path.exists() else "replay"


def _short(path: Path) -> str:
    """Return a path as seen from where pytest runs."""
    short = os.path.relpath(path)
    return str(path) if short.startswith("..") else short


def _fail(message: str) -> NoReturn:
    __tracebackhide__ = True
    pytest.fail(message, pytrace=False)
