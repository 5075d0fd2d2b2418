"""The pytest plugin of streamtools: an option, a marker and a fixture.

pytest loads it in every project in which streamtools is installed. The fixture `recording` finds the recording of a
test, and either replays or records it. The name of the recording is derived from the test, and the file is in a folder
next to it. The runs of a test with different event loops or chunk boundaries share one recording:

    tests/test_chat.py::test_weather               tests/recordings/test_chat/test_weather.jsonl
    tests/test_chat.py::TestTools::test_two[a-b]   tests/recordings/test_chat/TestTools.test_two-a-b.jsonl

The plugin is a separate module, so that loading it does not import the package, which most tests do not need. The
package is imported when a test uses the fixture.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

if TYPE_CHECKING:
    from streamtools.testing.recording_fixture import Mode, RecordingFixture, RecordingSettings

MODES = ("none", "once", "rewrite")
_MARKER = (
    "recording(name, *, source, match, unplayed, ...): the recording for the fixture `recording` (by default the one "
    "named after the test, next to it), and its options"
)
_FIXTURE: pytest.StashKey[RecordingFixture] = pytest.StashKey()
_RECORDED_PATHS: pytest.StashKey[set[Path]] = pytest.StashKey()
_OWNERS: pytest.StashKey[dict[Path, str]] = pytest.StashKey()

FOLDER = "recordings"
_NAME = "recording"  # the name of the fixture and of the marker
_MAX_NAME = 100  # the maximum length of a file name without a digest, which every file system allows
_CUT = re.compile(r"(?:^|-)cut=\w+(?=-|$)")  # the part of a test id that `every_cut` adds
_UNSAFE_CHARACTERS = re.compile(r"[^\w.+=-]+")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option `--record-streams` to pytest."""
    group = parser.getgroup("streamtools", "recorded streams")
    group.addoption(
        "--record-streams",
        choices=MODES,
        default="none",
        help="when requests through the fixture `recording` are sent and recorded: never (none, the default); if there "
        "is no recording (once); always, for a new recording (rewrite)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker `recording`."""
    config.addinivalue_line("markers", _MARKER)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Add the fixture to each test that has the marker, even if the fixture is not a parameter of the test."""
    names = getattr(item, "fixturenames", None)
    if names is not None and "recording" not in names and item.get_closest_marker("recording") is not None:
        names.append("recording")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Fail a test that passed without using its whole recording. Add unrecorded requests to the report of a failed
    test.
    """
    try:
        outcome = yield
    except BaseException:
        if (stream := item.stash.get(_FIXTURE, None)) is not None and (
            problems := stream.problems(check_unplayed=False)
        ):
            item.add_report_section("call", "recording", "\n".join(problems))
        raise
    if (stream := item.stash.get(_FIXTURE, None)) is not None:
        if problems := stream.problems(check_unplayed=True):
            _fail("\n".join(problems))
        stream.test_passed = True
    return outcome


@pytest.fixture(scope="session")
def recording_options() -> dict[str, Any]:
    """The options for all recordings of a project: keywords of the marker. Override this fixture to set them."""
    return {}


@pytest.fixture
def recording(request: pytest.FixtureRequest, recording_options: dict[str, Any]) -> Iterator[RecordingFixture]:
    """The recording of this test. It has a transport for HTTP clients, and replays the recording as events."""
    with _opened(request, recording_options) as stream:
        request.node.stash[_FIXTURE] = stream
        yield stream


@contextmanager
def _opened(request: pytest.FixtureRequest, defaults: Mapping[str, Any]) -> Iterator[RecordingFixture]:
    """Yield the recording of a test. After the test, save a new recording."""
    from streamtools.recording import Playback
    from streamtools.testing.recording_fixture import RecordingFixture

    item: pytest.Item = request.node
    recorded_paths = item.config.stash.setdefault(_RECORDED_PATHS, set())
    name, settings = _settings(item, defaults, getattr(request, "param", None))
    path = path_of(item, name)
    mode = _mode(item.config.getoption("--record-streams"), path, was_recorded=path in recorded_paths)
    shown_path = _relative(path)
    owner = owner_of(path, item)
    if mode == "replay" and not path.exists():
        has_fault = Playback(**settings.playback).fault is not None
        _fail(f"{shown_path} does not exist: {_how_to_record(item, owner, has_fault=has_fault)}")
    test = owner or item.nodeid
    stream = RecordingFixture(
        path, settings, mode, f"`pytest --record-streams=rewrite '{test}'` records all requests again"
    )
    try:
        yield stream
    finally:
        if why := stream.save():
            item.add_report_section("teardown", "recording", f"{shown_path} is not recorded: {why}")
        elif mode != "replay":
            recorded_paths.add(path)


def _settings(item: pytest.Item, defaults: Mapping[str, Any], cut: Any) -> tuple[str | Path | None, RecordingSettings]:
    """Return the name and the settings of a recording from its markers. The nearest marker takes precedence.

    The name is None if no marker sets one.
    """
    from streamtools.recording.playback import PLAYBACK_OPTIONS
    from streamtools.testing.recording_fixture import RecordingSettings

    name: str | Path | None = None
    chosen = dict(defaults)
    for marker in reversed(list(item.iter_markers("recording"))):
        if len(marker.args) > 1:
            _fail(f"the marker `recording` takes one name, got {marker.args!r}")
        name = marker.args[0] if marker.args else name
        chosen |= marker.kwargs
    if cut is not None:
        chosen["cut"] = cut
    playback: Any = {key: value for key, value in chosen.items() if key in PLAYBACK_OPTIONS}
    options = {key: value for key, value in chosen.items() if key not in PLAYBACK_OPTIONS}
    known = {field.name for field in fields(RecordingSettings)} - {"playback"}
    if unknown := options.keys() - known:
        names = ", ".join(sorted(known | PLAYBACK_OPTIONS))
        _fail(f"unknown option {', '.join(sorted(unknown))} of a recording; the options are {names}")
    try:
        return name, RecordingSettings(**options, playback=playback)
    except (ValueError, TypeError) as error:
        _fail(f"invalid options of the recording: {error}")


def path_of(item: pytest.Item, name: str | Path | None) -> Path:
    """Return the path of the recording of a test.

    A `name` without a folder and suffix is the name of a file in the recordings folder of the test's module. It may be
    the id of another test in the module, with its parameters, to use the recording of that test. A name with a folder
    or a suffix, or a `Path`, is a path relative to the folder of the test.
    """
    if isinstance(name, Path) or (name and ("/" in name or Path(name).suffix)):
        return item.path.parent / name
    named = re.sub(r"\[(.*)\]\Z", r"-\1", name) if name else _name_of(item)
    return item.path.parent / FOLDER / item.path.stem / f"{_safe(named)}.jsonl"


def owner_of(path: Path, item: pytest.Item) -> str | None:
    """Return the id of the test in this session whose name determines `path`. Returns None if there is no such test."""
    if path not in (owners := item.session.stash.setdefault(_OWNERS, {})):
        for other in (item, *reversed(item.session.items)):
            is_named = any(marker.args for marker in other.iter_markers(_NAME))
            if _NAME in getattr(other, "fixturenames", ()) and not is_named:
                owners[path_of(other, None)] = other.nodeid
        owners.setdefault(path, "")
    return owners[path] or None


def _name_of(item: pytest.Item) -> str:
    function = getattr(item, "originalname", None) or item.name
    test_class = getattr(item, "cls", None)
    name = function if test_class is None else f"{test_class.__name__}.{function}"
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
    """Convert a name to a valid file name. A digest keeps the file names of different names different."""
    safe = _UNSAFE_CHARACTERS.sub("_", name)
    if safe == name and len(name) <= _MAX_NAME:
        return name
    return f"{safe[:_MAX_NAME]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _how_to_record(item: pytest.Item, owner: str | None, *, has_fault: bool) -> str:
    if owner is None:
        return "run the tests that use this recording: `pytest --record-streams=once`"
    complete = " (complete: faults are injected when it is replayed)" if owner == item.nodeid and has_fault else ""
    return f"`pytest --record-streams=once '{owner}'` records the requests of `recording.client()`{complete}"


def _mode(option: str, path: Path, *, was_recorded: bool) -> Mode:
    if option == "rewrite" and not was_recorded:
        return "record"
    return "record" if option == "once" and not path.exists() else "replay"


def _relative(path: Path) -> str:
    """Return `path` relative to the current directory. A path outside of it is returned unchanged."""
    short = os.path.relpath(path)
    return str(path) if short.startswith("..") else short


def _fail(message: str) -> NoReturn:
    __tracebackhide__ = True
    pytest.fail(message, pytrace=False)
