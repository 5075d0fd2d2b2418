"""Recordings: a reader reads or refuses any file."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from streamtools.errors import RecordingError
from streamtools.recording import shipped
from streamtools.recording.files import find_exchanges, open_exchange, read_recordings
from tests.fuzz.target import Input, Target, encode, seeds
from tests.support.provider_streams import PROVIDERS


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory()


def _try(read: Callable[[], Any]) -> Any:
    """Return the recording, or None if it is refused as files are."""
    try:
        return read()
    except RecordingError:
        return None


def _check_files(given: Input) -> Iterator[object]:
    """A file is read or refused. All functions read a valid file in the same way."""
    path = Path(_folder().name, "file")
    path.write_bytes(given.body)
    found = _try(lambda: read_recordings(path))
    places = _try(lambda: find_exchanges(path))
    captured = _try(lambda: open_exchange(path).read())
    if found is not None:
        assert places is not None
        assert [each.head for each in places] == [each.head for each in found]
        assert len(found) != 1 or captured == found[0]
    yield found is not None, places is not None, captured is not None
    yield from ((chunk.data[:4], chunk.at > 0) for chunk in (captured.chunks if captured else [])[:3])


def _make_files() -> Target:
    files = [path.read_bytes()[:1800] for path in shipped().values()]
    whole = [path.read_bytes() for path in shipped().values()]
    bodies = [*files, *(each for each in whole if len(each) < 2000), *(provider.body[:800] for provider in PROVIDERS)]
    bodies += [
        b"".join(each.splitlines(keepends=True)[:count] + each.splitlines(keepends=True)[-1:])
        for each in whole
        for count in (1, 2)
    ]
    words = [
        *('{"streamtools":"recording","version":1}\n', '{"at":0,"data":"x"}\n', '"base64":"AA=="', '"end":"eof"'),
        '"at":-1',
    ]
    words += [
        *('"size":1', '"version":2', '{"end":', "\n", "data: {}\n\n", "\r\n", '"digest":"', '"before":"ff"'),
        "\ufeff",
    ]
    return Target("recordings", _check_files, lambda: list(seeds(bodies, {})), [encode(word) for word in words])


MAKE = {"recordings": _make_files}
