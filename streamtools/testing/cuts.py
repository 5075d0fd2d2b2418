"""A test over every way in which a network may cut a recorded stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

if TYPE_CHECKING:
    from streamtools.recording import Cut

TestT = TypeVar("TestT", bound=Callable[..., Any])

_BY_NAME: tuple[Cut, ...] = ("recorded", "frame", "byte", "whole")


@overload
def every_cut(recording: TestT) -> TestT: ...
@overload
def every_cut(recording: str | Path | None = None, *, seeds: Sequence[int] = (1, 2, 3)) -> Callable[[TestT], TestT]: ...
def every_cut(recording: Any = None, *, seeds: Sequence[int] = (1, 2, 3)) -> Any:
    """Run a test once for each way to cut its recording: as recorded, by frame, by byte, whole, and at random.

        @every_cut
        async def test_weather(recording): ...

    The fixture `recording` is cut so in all that it gives, and there is one recording for all of them. It may be named,
    `@every_cut("weather")`, as with the marker. Each of `seeds` is one more way, at random.
    """
    import pytest

    def decorate(test: TestT) -> TestT:
        if recording is not None and not callable(recording):
            test = pytest.mark.recording(recording)(test)
        ids = [f"cut={each}" for each in _BY_NAME] + [f"cut=random{seed}" for seed in seeds]
        marked: TestT = pytest.mark.parametrize("recording", [*_BY_NAME, *seeds], indirect=True, ids=ids)(test)
        return marked

    return decorate(recording) if callable(recording) else decorate
