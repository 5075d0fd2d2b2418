"""Where the recording of a test stands: beside it, named after it.

    tests/test_chat.py::test_weather               tests/recordings/test_chat/test_weather.jsonl
    tests/test_chat.py::TestTools::test_two[a-b]   tests/recordings/test_chat/TestTools.test_two-a-b.jsonl

A test that runs on several event loops, or over several cuts, has one recording for all of them.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

import pytest

FOLDER = "recordings"
_NAME = "recording"  # of the fixture, and of the marker
_OWNERS: pytest.StashKey[dict[Path, str]] = pytest.StashKey()
_LONGEST = 100  # characters of a name, so that it is one in every file system
_CUT = re.compile(r"(?:^|-)cut=\w+(?=-|$)")  # what `every_cut` names a way of cutting
_UNSAFE = re.compile(r"[^\w.+=-]+")


def place_of(item: pytest.Item, name: str | Path | None) -> Path:
    """Return the path of the recording of a test.

    A plain `name` is that of a recording among those of the test's module; one with a folder or a suffix, and a `Path`,
    is a path as seen from the test's folder.
    """
    if isinstance(name, Path) or (name and ("/" in name or Path(name).suffix)):
        return item.path.parent / name
    folder = item.path.parent / FOLDER / item.path.stem
    return folder / f"{_safe(name or _name_of(item))}.jsonl"


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
