"""The law of all sources: bytes after the terminator of a stream never change the result, at any cut."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from streamtools import sources
from streamtools.events import ChainCompleted, ProviderCompleted, SourceError, SourceEvent, TextDelta
from streamtools.sources import FrameAdapter, Undecided
from streamtools.sources.adapter import Framed, ReadyEvents
from tests.sources import test_sources_latitude
from tests.sources.adapters import read
from tests.sources.test_every_format import STREAMS, WHOLE
from tests.support.cases import cases
from tests.support.event_streams import event, exception, message
from tests.support.ways_to_cut import some

_LATITUDE = {
    f"latitude, {name}, {envelope.__name__}": [envelope(each) for each in events]
    for name, (events, _) in test_sources_latitude.RUNS.items()
    for envelope in test_sources_latitude.ENVELOPES
}
_FRAMES = {
    name: re.findall(rb"(?s).+?\n\n|.+\Z", stream.frames[0]) if len(stream.frames) == 1 else stream.frames
    for name, stream in STREAMS.items()
} | _LATITUDE
_WITHOUT_EVENTS = {
    "openai, only [DONE]": [b"data: [DONE]\n\n"],
    "latitude, only [DONE]": [b"data: [DONE]\n\n"],
    "ollama, only the end": [b'{"done": true}\n'],
    "gemini, [DONE] after a reason": [b'data: {"candidates": [{"finishReason": "STOP"}]}\n\n', b"data: [DONE]\n\n"],
}


def _until_the_end() -> Iterator[tuple[str, list[bytes]]]:
    """Yield streams that have a terminator or an error, up to the end of that frame: one for each such frame."""
    seen = set()
    for name, frames in (_FRAMES | _WITHOUT_EVENTS).items():
        adapter = sources.adapter(name.partition(",")[0])
        for count, frame in enumerate(frames, 1):
            adapter.feed(frame)
            if adapter._over:
                if (adapter.name, frame, count == 1) not in seen:
                    yield name, frames[:count]
                seen.add((adapter.name, frame, count == 1))
                break


ENDED = dict(_until_the_end())

_SSE_TAILS = [
    *(b"<html>Bad gateway</html>\n\n", b"oops", b"\xff\x00\r\r\n\n", b": keep-alive\n\n"),
    b'data: {"type": "text-delta", "delta": "x", "textDel',
    b"data: [DONE]\n\n",
    b'event: error\ndata: {"type": "error", "error": {"message": "late"}, "errorText": "late"}\n\n',
    b'data: {"choices": [{"index": 0, "delta": {"content": "late"}, "finish_reason": "length"}]}\n\n',
    b'data: {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 9, "total_tokens": 18}}\n\n',
    b"data: " + b"x" * 300 + b"\n\n",
]
_TAILS = {
    "ollama": [
        b"oops", b"oops\n", b'{"error": "late"}\n', b'{"message": {"content": "late"}, "done": false}\n', b'{"done":',
        b'{"done": true, "done_reason": "length", "eval_count": 9}\n',
    ],
    "bedrock": [
        b"oops", b"\x00" * 40, event("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": "late"}}),
        exception("throttlingException", {"message": "late"}), event("messageStop", {"stopReason": "max_tokens"}),
        message(b"{}", {})[:-2] + b"xx", event("metadata", {"usage": {"inputTokens": 9, "outputTokens": 9}}),
    ],
}  # fmt: skip


def _with_more(name: str, frames: list[bytes]) -> Iterator[list[bytes]]:
    """Yield pieces of a stream with more bytes after its end."""
    format, head = name.partition(",")[0], b"".join(frames)
    before = head[: -len(frames[-1])]
    for tail in [*_TAILS.get(format, _SSE_TAILS), frames[-1], *frames[:3], WHOLE.get(format, b"")[:600]]:
        whole = head + tail
        yield [whole]
        yield [before, frames[-1] + tail]
        yield [before, *(whole[at : at + 1] for at in range(len(before), len(whole)))]
        yield [before, *(whole[at : at + 3] for at in range(len(before), len(whole), 3))]
        for at in (len(head) - 2, len(head) - 1, len(head), len(head) + 1, len(head) + len(tail) // 2):
            yield [whole[:at], whole[at:]]


def _same(make: Callable[[], sources.Adapter], name: str) -> None:
    alone = _read(make, [b"".join(ENDED[name])])
    for more in _with_more(name, ENDED[name]):
        assert alone == _read(make, more), more[-3:]


def _read(make: Callable[[], sources.Adapter], chunks: list[bytes]) -> list[SourceEvent]:
    """Return the events of a stream. The connection breaks at its end, which is no error after a terminator."""
    adapter = make()
    events = [event for chunk in chunks for event in adapter.feed(chunk)]
    assert adapter.ended
    return events + adapter.close("reset")


@pytest.mark.parametrize("format", sources.ADAPTERS)
def test_bytes_after_the_end_change_nothing(format: str) -> None:
    """Garbage, a second terminator, text, usage, an error, half a frame and another stream, at any cut."""
    _check(format, 4)


def _check(format: str, share: int) -> None:
    names = [name for name in ENDED if name.startswith(f"{format},")]
    assert any(isinstance(event, ProviderCompleted | ChainCompleted) for name in names for event in _events(name))
    with cases() as case:
        for name in some(names, share):
            with case(name):
                _same(lambda: sources.adapter(format), name)


def _events(name: str) -> list[SourceEvent]:
    return read(lambda: sources.adapter(name.partition(",")[0]), *ENDED[name])


@pytest.mark.deep
def test_bytes_after_the_end_do_not_change_the_detected_format() -> None:
    """The format is that of the stream alone."""
    with cases() as case:
        for name in ENDED:
            with case(name):
                alone = Undecided()
                alone.feed(b"".join(ENDED[name]))
                if alone.ended:
                    _same(Undecided, name)


def test_events_after_the_end_are_dropped() -> None:
    """Those of `sources.events`, also after the end of a chain."""
    for end in (ProviderCompleted(finish_reason="stop"), ChainCompleted(), SourceError("no")):
        adapter = ReadyEvents()
        late: list[SourceEvent] = [TextDelta("late"), ProviderCompleted(ends_run=False), SourceError("late")]
        assert [end] == [event for item in (end, *late) for event in adapter.take(item)] + adapter.close("reset")


def reads_on(patch: pytest.MonkeyPatch) -> None:
    """Read the frames after the end."""
    feed_frames = FrameAdapter.feed_frames

    def read_all(adapter: FrameAdapter, frames: Iterable[Framed]) -> list[SourceEvent]:
        events = []
        for frame in frames:
            adapter._over = False
            events += feed_frames(adapter, [frame])
        return events

    patch.setattr(FrameAdapter, "feed_frames", read_all)


def judges_by_later_lines(patch: pytest.MonkeyPatch) -> None:
    """Let a line after the terminator, in the same piece, decide whether the stream has another format."""
    wrong = FrameAdapter._wrong_format_error

    def judge(adapter: FrameAdapter, events: list[SourceEvent]) -> SourceError | None:
        adapter._note_ignored_line()
        return wrong(adapter, events)

    patch.setattr(FrameAdapter, "_wrong_format_error", judge)


def waits_for_the_transport(patch: pytest.MonkeyPatch) -> None:
    """Keep reading after the end of the response."""
    complete = FrameAdapter._complete_response

    def keep_reading(adapter: FrameAdapter, *args: Any, **more: Any) -> None:
        complete(adapter, *args, **more)
        adapter._over = False

    patch.setattr(FrameAdapter, "_complete_response", keep_reading)


@pytest.mark.parametrize(
    ("plant", "format"),
    [
        *((reads_on, format) for format in sources.ADAPTERS),
        (judges_by_later_lines, "openai"),
        (judges_by_later_lines, "latitude"),
        *((waits_for_the_transport, format) for format in ("anthropic", "cohere", "ollama", "openai", "responses")),
    ],
)
def test_a_planted_fault_is_caught(
    plant: Callable[[pytest.MonkeyPatch], None], format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        _check(format, 1)
