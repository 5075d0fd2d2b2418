"""What the fixture `recording` does around a test: find the recording, choose what may happen, block the network."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import fields
from pathlib import Path
from typing import Any, NoReturn

import pytest

from streamtools.recording.playback import PLAYBACK, Playback
from streamtools.testing.network import blocked
from streamtools.testing.places import owner_of, place_of
from streamtools.testing.recorded import RecordingFixture
from streamtools.testing.settings import Mode, Settings

_FRESH: pytest.StashKey[set[Path]] = pytest.StashKey()
_OWN = {field.name for field in fields(Settings)} - {"playback"}


@contextmanager
def opened(request: pytest.FixtureRequest, defaults: Mapping[str, Any]) -> Iterator[RecordingFixture]:
    """Give a test its recording, and keep what was recorded when it is over."""
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


def check(stream: RecordingFixture) -> None:
    """Fail a test that has passed, if something of its recording was not played, or it asked for what is not in it."""
    __tracebackhide__ = True
    if faults := stream.faults(unplayed=True):
        _fail("\n".join(faults))
    stream.passed = True


def explain(item: pytest.Item, stream: RecordingFixture) -> None:
    """Say below the report of a test that has failed what was wrong with its recording, if anything was."""
    if faults := stream.faults(unplayed=False):
        item.add_report_section("call", "recording", "\n".join(faults))


def _settings(item: pytest.Item, defaults: Mapping[str, Any], cut: Any) -> tuple[str | Path | None, Settings]:
    """Return the name of the recording, if it was given one, and how to use it: the nearest marker that says so."""
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
    if unknown := own.keys() - _OWN:
        _fail(f"a recording has no option {', '.join(sorted(unknown))}; there are {', '.join(sorted(_OWN | PLAYBACK))}")
    try:
        return name, Settings(**own, playback=playback)
    except (ValueError, TypeError) as error:
        _fail(f"the options of the recording: {error}")


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
