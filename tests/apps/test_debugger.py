"""The debugger of `serve`: the steps of a recorded answer, and the requests for them."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest

from streamtools import coalesce
from streamtools.apps.cli import main
from streamtools.apps.cli.answerers import RecordedAnswers
from streamtools.apps.web.dissection import MAX_STEPS, Dissection, dissect
from streamtools.errors import RecordingError
from streamtools.events import read_ui_event
from streamtools.recording import ExchangeHead, read_recording, shipped
from streamtools.recording.files import RecordingWriter, open_exchange
from streamtools.recording.format import Chunk, StreamEnd
from streamtools.recording.playback import Cut
from tests.apps.test_cli_bad_input import error_line
from tests.apps.test_serve import serve, start_server
from tests.support.answering import calling, opened, saying
from tests.support.provider import serving


def dissect_file(path: Path, cut: Cut = "recorded") -> Dissection:
    """Return the data for the debugger of a file."""
    with open_exchange(path) as recording:
        return dissect(recording, cut)


def slice_utf16(text: str, begin: int, end: int) -> str:
    """Return a slice of a text. Positions count UTF-16 code units."""
    return text.encode("utf-16-le")[2 * begin : 2 * end].decode("utf-16-le")


def record_chunks(tmp_path: Path, *deltas: dict[str, Any], end: StreamEnd | None = None) -> Path:
    """Return a recording of chat completions."""
    path = tmp_path / "made.jsonl"
    with path.open("wb") as file:
        writer = RecordingWriter(file, ExchangeHead(source="openai"))
        for at, delta in enumerate(deltas):
            chunk = json.dumps({"choices": [{"index": 0, "delta": delta}]})
            writer.chunk(f"data: {chunk}\n\n".encode(), float(at))
        if end is None:
            writer.chunk(b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n', 99.0)
        writer.end(*(end or StreamEnd("end", 100.0)))
    return path


def test_cuts_change_only_the_steps() -> None:
    for name, path in shipped().items():
        body = read_recording(path).data.decode()
        whole = dissect_file(path, "whole")
        expected = coalesce(map(read_ui_event, whole.events))
        for cut in ("recorded", "frame", 7, *(["byte"] if name in ("unicode-call", "cut-call") else [])):
            made = dissect_file(path, cut)  # type: ignore[arg-type]
            assert (body, whole.written, whole.marks) == (made.body, made.written, made.marks), (name, cut)
            assert expected == coalesce(map(read_ui_event, made.events))
            assert all(
                one.body <= other.body and one.written <= other.written and one.events <= other.events
                for one, other in pairwise(made.steps)
            )
            last = made.steps[-1]
            assert (body, whole.written) == (
                slice_utf16(body, 0, last.body),
                slice_utf16(made.written, 0, last.written),
            )
            assert (len(made.events), 0) == (last.events, last.buffered)


def test_marks_are_the_parts_of_the_text_that_are_not_shown_as_text() -> None:
    """A near miss is marked, but stays in the visible text."""
    for path in shipped().values():
        made = dissect_file(path)
        events = [*map(read_ui_event, made.events)]
        calls = [event.call.raw for event in events if event.type == "call"]
        assert calls == [slice_utf16(made.written, *mark[:2]) for mark in made.marks if mark.kind == "call"]
        near = [event.raw for event in events if event.type == "warning"]
        assert near == [slice_utf16(made.written, *mark[:2]) for mark in made.marks if mark.kind == "near"]
        shown, at = "", 0
        for mark in made.marks:
            if mark.kind != "near":
                shown, at = shown + slice_utf16(made.written, at, mark.begin), mark.end
        shown += slice_utf16(made.written, at, made.steps[-1].written)
        assert shown == "".join(event.text for event in events if event.type == "text")


def test_a_marker_is_buffered_until_it_is_certain() -> None:
    made = dissect_file(shipped()["tilde-call"], "byte")
    buffered = [
        slice_utf16(made.written, step.written - step.buffered, step.written) for step in made.steps if step.buffered
    ]
    assert {"~~~", "~~~tool", "~~~tool_", "~~~tool_call"} <= {*buffered}
    assert ["tilde_fence"] == made.dialects
    assert "What is the weather in Paris?" in made.question


def test_reasoning_native_calls_and_errors_are_marked(tmp_path: Path) -> None:
    call = {"index": 0, "id": "c1", "function": {"name": "add", "arguments": '{"a":'}}
    path = record_chunks(
        tmp_path,
        *({"reasoning_content": "Hm "}, {"reasoning_content": "🧑"}, {"content": "See 🧑:\n"}),
        *({"content": '~~~tool_call\n{"name": 5}\n~~~'}, {"content": "\nSo."}),
        *({"tool_calls": [call]}, {"tool_calls": [{"index": 0, "function": {"arguments": "1}"}}]}),
    )
    made = dissect_file(path, "frame")
    marks = [(slice_utf16(made.written, begin, end), kind, label) for begin, end, kind, label in made.marks]
    assert ("Hm 🧑", "reasoning", "") == marks[0]
    assert ('{"a":1}', "native", "native") in marks
    assert [("error", "tilde_fence")] == [(kind, label) for _, kind, label in marks if kind == "error"]
    assert "openai" == made.format


def test_an_incomplete_answer_ends_with_an_error(tmp_path: Path) -> None:
    made = dissect_file(record_chunks(tmp_path, {"content": "Hi ~~"}, end=StreamEnd("reset", 5.0)))
    assert ("reset", "Hi ~~") == (made.end, made.written)
    assert '"failed"' in made.events[-1]


def test_the_number_of_steps_is_limited(tmp_path: Path) -> None:
    path = tmp_path / "long.jsonl"
    with path.open("wb") as file:
        writer = RecordingWriter(file, ExchangeHead(source="openai"))
        writer.chunk(*Chunk(0.0, b":" * (MAX_STEPS + 1))[::-1])
        writer.end("end", 1.0)
    assert 2 == len(dissect_file(path).steps)
    with pytest.raises(RecordingError, match="choose a coarser cut"):
        dissect_file(path, "byte")


@pytest.mark.asyncio_only
async def test_steps_of_an_answer_are_sent_only_to_its_browser() -> None:
    """All browsers get the steps of the recordings."""
    async with opened(answerer=RecordedAnswers(speed=0)) as page:
        run = (await page.post("/runs", {"question": "?", "suggestion": "hash-call"})).json()["run"]
        await page.events(run)
        first = (await page.client.get("/dissection")).json()
        own = (await page.client.get(f"/dissection?of={run}&cut=5")).json()
        file = await page.client.get(f"/recording?of={run}")
        unknown = await page.events(await page.ask("Who are you?"))
        refused = [
            await page.client.get(f"/dissection?{query}")
            for query in (
                *("cut=x", f"cut={'9' * 5000}", "exchange=x", "exchange=2", "of=nothing"),
                f"of={unknown[0]['run_id']}",
            )
        ]
        document = await page.client.get("/debugger")
        turns = (await page.state())["turns"]
        page.client.cookies.clear()
        foreign = await page.client.get(f"/dissection?of={run}")

    assert "tilde-call" == first["names"][0]
    assert (1, ["hash_marker"]) == (own["exchanges"], own["dialects"])
    assert shipped()["hash-call"].read_bytes() == file.content
    assert [400, 400, 400, 422, 404, 404] == [each.status_code for each in refused]
    assert "tilde-call.jsonl has no exchange 2: it has 1" == refused[3].text
    assert "What the model writes" in document.text
    assert 404 == foreign.status_code
    assert [True, False] == [turn["recorded"] for turn in turns]


def test_the_last_answers_of_a_model_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The recording has one exchange for each request, and no keys."""
    responses: list[Any] = []
    monkeypatch.setattr("streamtools.apps.cli.answerers.MAX_RECORDINGS", 1)

    def visit(client: httpx.Client) -> None:
        run = client.post("/runs", json={"question": "Oslo?"}).json()["run"]
        client.get(f"/runs/{run}/events")
        responses.extend(client.get(f"/dissection?of={run}&exchange={number}").json() for number in (1, 2))
        responses.append(client.get(f"/recording?of={run}").text)
        responses.append([turn["recorded"] for turn in client.get("/conversation").json()["turns"]])
        later = client.post("/runs", json={"question": "And now?"}).json()["run"]
        client.get(f"/runs/{later}/events")
        responses.append([client.get(f"/dissection?of={each}").status_code for each in (run, later)])

    monkeypatch.setenv("OPENAI_API_KEY", "sk-SECRET")
    with serving(saying(calling("get_weather", city="Oslo")), saying("Cold."), saying("Warm.")) as provider:
        options = ("--tools", "streamtools.apps.cli.demo:TOOLS", "--dialect", "tilde_fence")
        assert 0 == serve(monkeypatch, visit, "--model", "m", "--url", provider.url, *options)
    first, second, file, records, kept = responses
    assert (2, ["tilde_fence"], "Oslo?") == (first["exchanges"], first["dialects"], first["question"])
    assert "Cold." == second["written"]
    assert "SECRET" not in file
    assert [True] == records
    assert [404, 200] == kept


def test_the_command_prints_the_address_of_the_debugger(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capture = tmp_path / "capture.txt"
    capture.write_bytes(read_recording(shipped()["hash-call"]).data)
    with start_server(str(shipped()["headings"])) as (_, line):
        assert "/debugger?of=headings.jsonl (Ctrl-C" in line
        url = line.partition("/debugger")[0]
        assert "headings.jsonl" in httpx.get(f"{url}/dissection", trust_env=False).json()["names"]

    assert ["hash_marker"] == dissect_file(capture).dialects
    assert 2 == main(["serve", str(tmp_path / "none.jsonl")])
    assert "none.jsonl is not a file" in error_line(capsys)
    assert 2 == main(["serve", str(capture), "--model", "m"])
    assert "pass either FILE or --model" in error_line(capsys)
