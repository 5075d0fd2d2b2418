"""The content of the shipped recordings. Other cuts give the same events."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import anyio
import pytest

from streamtools import StreamMachine, coalesce, replay, sources
from streamtools.errors import Code
from streamtools.events import Call, Done, Error, Executed, Reasoning, Text, UIEvent, Warning
from streamtools.recording import Recording, read_recording, shipped
from streamtools.recording.playback import Cut, recut
from tests.families import MARKERS
from tests.support.cases import cases
from tests.support.options import grouped
from tests.support.reference import begins_with


def get_weather(city: str) -> dict[str, str]:
    """Tell the weather."""
    return {"city": city, "message": f"Rain in {city}"}


async def add(a: float, b: float) -> float:
    """Add two numbers."""
    return a + b


TOOLS: list[Callable[..., Any]] = [get_weather, add]


class Content(NamedTuple):
    """The expected content of a recording. `text` is the visible text without `calls` and `cut`."""

    text: str
    calls: tuple[tuple[str, str, dict[str, Any]], ...] = ()
    cut: str | None = None
    end: str = "stop"
    near: tuple[str, ...] = ()


def weather(city: str) -> tuple[str, str, dict[str, Any]]:
    """Return a call in the dialect `tilde_fence`."""
    return "tilde_fence", "get_weather", {"city": city}


RECORDINGS = {
    "cut-call": Content(
        "I will look up the weather in Paris.\n\n", cut='~~~tool_call\n{"name": "get_weather", "arguments', end="length"
    ),
    "hash-call": Content(
        "I will add 17.5 and 24.\n\n\n\nThe sum will follow.", (("hash_marker", "add", {"a": 17.5, "b": 24}),)
    ),
    "headings": Content(
        "# Coffee\n\nCoffee is a drink made from roasted coffee beans.\n\n## Where it comes from\n\n"
        "Most coffee comes from Africa.\n\n### How it is made\n\nThe beans are roasted and ground.\n\n"
        "#### What you need\n\nYou need coffee, water and a pot.\n\n##### Temperature\n\nKeep it at 12 degrees.\n\n"
        "###### Note\n\nDo not let it boil.\n\n### Summary\n\nNow you know what coffee is."
    ),
    "headings-and-call": Content(
        "### Plan\n\nA day in Vienna.\n\n### Weather\n\n\n\n### Food\n\nEat well in Vienna.",
        (("hash_marker", "get_weather", {"city": "Vienna"}),),
    ),
    "no-call": Content("The capital of France is Paris. It lies on the river Seine."),
    "quoted-markers": Content(
        "It can write the call in two ways. Here, in code blocks, they are only examples.\n\nA fence of tildes:\n\n"
        '```\n~~~tool_call\n{"name": "search", "arguments": {"a": 1, "b": 2}}\n~~~\n```\n\n'
        'Three hashes and a colon:\n\n```json\n###:{"toolName": "search", "parameters": {"a": 1, "b": 2}}\n```\n\n'
        'In a sentence, `###:{"toolName": "search"}` is an example too.',
        near=("~~~tool_call\n", '###:{"', '###:{"'),
    ),
    "tilde-call": Content("I will look up the weather in Paris.\n\n\n\nOne moment, please.", (weather("Paris"),)),
    "two-calls": Content("I will look up both.\n\n\n\n\n\nOne moment, please.", (weather("Paris"), weather("Tokyo"))),
    "two-tools": Content(
        "First the weather in Lima:\n\nThen the sum of 8 and 9:\n\nThese are two calls.",
        (("hash_marker", "get_weather", {"city": "Lima"}), ("hash_marker", "add", {"a": 8, "b": 9})),
    ),
    "unicode": Content(
        "**Night 🌙**\n\n- おやすみ\n- 晚安\n- 잘 자요\n- سلام\n- De\u0301ja\u0300 vu, Zürich\n- 🧑\u200d🌾 🇧🇷"
    ),
    "unicode-call": Content("調べます。🔎\n\n\n\nお待ちください。", (weather("東京"),)),
}

every_recording = pytest.mark.parametrize("name", RECORDINGS)


def test_every_recording_is_described() -> None:
    assert set(shipped()) == set(RECORDINGS)


def read(recording: Recording, chunks: Iterable[bytes]) -> list[UIEvent]:
    """Return the coalesced events of these bytes, without I/O."""
    adapter, machine = sources.adapter(recording.head.source), StreamMachine()
    source = [event for chunk in chunks for event in adapter.feed(chunk)] + adapter.close()
    return coalesce([*(said for event in source for said in machine.feed(event)), *machine.close()])


@every_recording
def test_the_calls_and_the_text_of_a_recording(name: str) -> None:
    """Calls are hidden."""
    expected, recording = RECORDINGS[name], read_recording(shipped()[name])
    events = read(recording, [recording.data])

    calls = [event.call for event in events if isinstance(event, Call)]
    assert expected.text == "".join(event.text for event in events if isinstance(event, Text))
    assert list(expected.calls) == [(call.dialect, call.name, call.arguments) for call in calls]
    cut = [(event.code, event.raw) for event in events if isinstance(event, Error)]
    assert cut == ([(Code.TRUNCATED, expected.cut)] if expected.cut else [])
    warnings = [event for event in events if isinstance(event, Warning)]
    assert list(expected.near) == [event.raw for event in warnings if event.code is Code.NEAR_MISS]
    assert len(expected.near) == len(warnings)
    assert not [event for event in events if isinstance(event, Reasoning)]
    done = events[-1]
    assert isinstance(done, Done)
    reason = "finished" if expected.end == "stop" else "truncated"
    assert (reason, expected.end, expected.end) == (done.reason, done.finish_reason, done.raw_finish_reason)
    assert calls == done.pending


@every_recording
def test_no_marker_is_shown(name: str) -> None:
    """Only one recording quotes markers."""
    text = RECORDINGS[name].text
    markers = [marker for each in MARKERS.values() for marker in each]
    seen = any(begins_with(text[at:], marker.parts) for at in range(len(text)) for marker in markers)
    assert seen == (name == "quoted-markers")


OTHER_CUTS: list[Cut] = ["recorded", "byte", "frame", *range(5)]


@every_recording
def test_other_cuts_give_the_same_events(name: str) -> None:
    with cases() as case:
        for cut in OTHER_CUTS:
            with case(cut):
                recording = read_recording(shipped()[name])
                pieces = [data for _, data in recut(recording.chunks, cut)]
                assert read(recording, [recording.data]) == read(recording, pieces)


@pytest.mark.deep
async def test_all_options_give_the_same_events() -> None:
    played: dict[tuple[str, str], list[UIEvent]] = {}

    async def play(name: str, how: str, **options: Any) -> None:
        played[name, how] = coalesce(await replay(shipped()[name], tools=TOOLS, **grouped(**options)))

    async with anyio.create_task_group() as group:
        for name in RECORDINGS:
            group.start_soon(play, name, "immediately")
            group.start_soon(lambda name: play(name, "byte by byte", cut="byte"), name)
            group.start_soon(lambda name: play(name, "as recorded", speed=1), name)

    for name, content in RECORDINGS.items():
        expected = played[name, "immediately"]
        assert expected == played[name, "byte by byte"] == played[name, "as recorded"]
        executed = [event.call.arguments for event in expected if isinstance(event, Executed)]
        assert executed == [arguments for _, _, arguments in content.calls]
