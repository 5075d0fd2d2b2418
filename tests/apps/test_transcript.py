"""The transcript of a run, on a terminal and in a file."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable

import pytest

from streamtools import ToolCall, ToolOutcome, TurnResult
from streamtools import events as ui
from streamtools.apps.cli.printable import printable
from streamtools.apps.cli.transcript import Terminal, Transcript, summarize
from streamtools.errors import Code

_WEATHER = ToolCall(id="call_1", name="get_weather", arguments={"city": "Oslo"}, dialect="hash_marker", raw="###:{}")
_EVIL = "\x1b]0;title\x07\x9b2J\r\x1b[31m\x7f\ud800"


def transcript(*, terminal: bool = False, width: int = 80) -> tuple[Transcript, io.StringIO]:
    """Return a transcript, and the file that it is written to."""
    file = io.StringIO()
    console = Terminal(file=file, force_terminal=terminal, color_system="standard" if terminal else None, width=width)
    return Transcript(console), file


def written(*events: ui.UIEvent, terminal: bool = False) -> str:
    """Return the transcript of these events, without colours."""
    shown, file = transcript(terminal=terminal)
    for event in events:
        shown.show(event)
    return re.sub(r"\x1b\[[0-9;]*m", "", file.getvalue())


def call_events(call: ToolCall = _WEATHER) -> Iterable[ui.UIEvent]:
    """Return the events of the machine while the model writes a call."""
    return (
        *(ui.Thinking(True, call.id), ui.CallStart(call.id, call.name), ui.CallDelta(call.id, "{"), ui.Call(call)),
        ui.Thinking(False, call.id),
    )


@pytest.mark.parametrize("terminal", [True, False])
def test_an_answer_without_calls_is_written_unchanged(terminal: bool) -> None:
    text = "# Title\n\n\t[bold]no markup[/bold] :smile: \\[x] https://x.org 'quoted' 12 \n\n\n| a |  \n"
    assert text == written(*(ui.Text(character) for character in text), terminal=terminal)


def test_text_is_written_immediately() -> None:
    shown, file = transcript()
    shown.show(ui.Text("##"))
    assert "##" == file.getvalue()


WRITTEN: dict[str, tuple[tuple[ui.UIEvent, ...], str]] = {
    "a call between paragraphs keeps their blank lines": (
        (ui.Text("Above.\n\n"), *call_events(), ui.Text("\n\nBelow.")),
        "Above.\n\n🔧 Waiting for tool call completion...\n"
        '  hidden from users: ###:{}\n→ get_weather(city="Oslo")\n\nBelow.',
    ),
    "a call in a line breaks the line": (
        (ui.Text("Look: "), ui.Call(_WEATHER), ui.Text("there.")),
        'Look: \n  hidden from users: ###:{}\n→ get_weather(city="Oslo")\nthere.',
    ),
    "tools are reported below the text": (
        (
            ui.Text("One moment."),
            ui.Executing(_WEATHER),
            ui.Progress("call_1", {"percent": 50}),
            ui.Executed(_WEATHER, {"message": "snow\n"}, "snow\n", 0.25),
            ui.Executed(_WEATHER, {"sky": "snow"}, None, 2.5),
            ui.Text("\n\nIt snows."),
        ),
        "One moment.\n\n"
        "🔧 Executing tool: get_weather...\n"
        '   get_weather: {"percent": 50}\n'
        "🔧 Executed get_weather: snow (250 ms)\n"
        '🔧 Executed get_weather → {"sky": "snow"} (2.5 s)\n'
        "\nIt snows.",
    ),
    "a malformed call is reported in the text, and failed tools and streams below it": (
        (
            ui.Text("Look: "),
            ui.Error(Code.TRUNCATED, "the call was cut off", call_id="call_1", raw='###:{"'),
            ui.Error(Code.UNKNOWN_TOOL, "no tool named 'get_weather'", call_id="call_1", call=_WEATHER),
            ui.Error(Code.TOOL_FAILED, "it *failed* <b>", call_id="call_1", call=_WEATHER),
            ui.Error(Code.UPSTREAM_ERROR, "overloaded", status=529),
        ),
        "Look: \n❌ Invalid tool call format: the call was cut off (truncated)\n"
        "\n❌ Tool get_weather not available: no tool named 'get_weather' (unknown_tool)\n"
        "❌ Error processing tool call: it *failed* <b> (tool_failed)\n"
        "❌ Stream error: overloaded (upstream_error, status 529)\n",
    ),
    "warnings have their code and count": (
        (ui.Warning(Code.FORGED_RESULT, "it was\nforged"), ui.Warning(Code.SKIPPED, "too much", count=12)),
        "⚠ it was forged (forged_result)\n⚠ too much (12) (skipped)\n",
    ),
    "a near miss is reported after the step": (
        (
            ui.Text("`###:{"),
            ui.Warning(Code.NEAR_MISS, "all the same"),
            ui.Text("` is a marker."),
            ui.StepEnd(1, "stop"),
        ),
        "`###:{` is a marker.\n\n⚠ all the same (near_miss)\n",
    ),
    "an approval and a cancellation": (
        (ui.ApprovalRequested(_WEATHER), ui.Done("cancelled", None, None, [])),
        '✋ Approval requested: get_weather(city="Oslo")\n⏹ Cancelled\n',
    ),
    "a follow-up": ((ui.FollowUp([]),), "↩ The results are sent to the model.\n"),
    "events about the run are not shown": (
        (
            *(
                *(ui.Start("run_1"), ui.StepStart(1), ui.UsageReport(ui.Usage(input=1)), ui.Raw({})),
                *(ui.Markup("<x>"), ui.StepEnd(1, "stop")),
            ),
            ui.Done("finished", "stop", "stop", []),
        ),
        "",
    ),
    "carriage returns are removed": ((ui.Text("a\r"), ui.Text("\nb\rc\r\n")), "a\nbc\n"),
}


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize(("events", "expected"), WRITTEN.values(), ids=WRITTEN)
def test_events_are_reported(events: tuple[ui.UIEvent, ...], expected: str, terminal: bool) -> None:
    assert expected == written(*events, terminal=terminal)


def test_reasoning_is_dim_and_has_a_sign() -> None:
    events = (ui.Reasoning("\nLet me "), ui.Reasoning("[b]think[/b].\n"), ui.Text("\n\nYes."), ui.Reasoning("Hm."))
    assert "💭 Let me [b]think[/b].\n\nYes.\n\n💭 Hm." == written(*events)
    shown, file = transcript(terminal=True)
    shown.show(events[0])
    assert "\x1b[2;3mLet me \x1b[0m" in file.getvalue()


@pytest.mark.parametrize("terminal", [True, False])
def test_control_characters_of_a_model_are_shown_as_symbols(terminal: bool) -> None:
    call = ToolCall(id="call_1", name=f"a{_EVIL}", arguments={_EVIL: _EVIL}, dialect="hash_marker")
    events = (
        ui.Text(_EVIL),
        ui.Reasoning(_EVIL),
        *call_events(call),
        ui.Executing(call),
        ui.Progress("call_1", _EVIL),
        ui.Executed(call, _EVIL, None, 0.1),
        ui.Executed(call, _EVIL, _EVIL, 0.1),
        ui.Error(Code.TRUNCATED, _EVIL, call_id="call_2", raw=_EVIL),
        ui.Error(Code.UPSTREAM_ERROR, _EVIL),
        ui.Warning(Code.NEAR_MISS, _EVIL),
        ui.StepEnd(1, "stop"),
    )
    shown, file = transcript(terminal=terminal)
    shown.heading(_EVIL, _EVIL)
    for event in events:
        shown.show(event)
    shown.summarize(TurnResult(reason="failed", finish_reason=_EVIL), 1.0)
    text = re.sub(r"\x1b\[[0-9;]*m", "", file.getvalue()) if terminal else file.getvalue()
    assert {"\n"} == {character for character in text if not character.isprintable()}
    assert "␛]0;title␇\\x9b2J␛[31m\\x7f\\ud800" in text


def test_long_values_are_shortened() -> None:
    call = ToolCall(id="call_1", name="write", arguments={"text": "x" * 10_000}, dialect="hash_marker")
    shown = written(ui.Call(call), ui.Executed(call, "y" * 10_000, None, 0.1))
    assert [True, True] == [200 <= len(line) <= 250 and "…" in line for line in shown.split("\n") if line]


def test_control_characters_are_printed() -> None:
    assert "a\tb\nc␀" == printable("a\tb\r\nc\0")


def test_two_runs_with_headings() -> None:
    shown, file = transcript(width=30)
    shown.remark("Two answers.")
    for question in ("Why?", "How?\nAnd when?"):
        shown.heading("Question", question)
        shown.show(ui.Text("So."))
        shown.show(ui.Raw({}))
        shown.summarize(TurnResult(reason="finished", finish_reason="stop"), 1.5)
    rule = "── Question ──────────────────\n"
    end = "\n\nSo.\n\n✔ finished (stop) · no calls · 1.5 s\n"
    assert f"Two answers.\n\n{rule}❯ Why?{end}\n{rule}❯ How?\n  And when?{end}" == file.getvalue()


def outcome(error: Code | None = None) -> ToolOutcome:
    """Return the outcome of a call."""
    return ToolOutcome(call=_WEATHER, result=None, text="", error=error, message=None, elapsed=0.0)


@pytest.mark.parametrize(
    ("result", "line"),
    [
        (TurnResult(reason="finished", finish_reason="stop"), "✔ finished (stop) · no calls · 2.0 s"),
        (
            TurnResult(
                reason="finished",
                finish_reason="tool_calls",
                calls=[_WEATHER] * 4,
                outcomes=[outcome(), outcome(), outcome(Code.TOOL_FAILED)],
                pending=[_WEATHER],
                usage=ui.Usage(input=1200, output=34, total=1234, reasoning=10),
            ),
            "■ pending (tool_calls) · 4 calls: 2 executed, 1 failed, 1 pending · "
            "1,200 tokens in, 34 tokens out · 2.0 s",
        ),
        (
            TurnResult(
                reason="truncated",
                finish_reason="length",
                errors=[ui.Error(Code.TRUNCATED, "cut", call_id="call_1")],
                usage=ui.Usage(total=1),
            ),
            "✂ truncated (length) · 1 call: 1 malformed · 2.0 s",
        ),
        (
            TurnResult(
                reason="failed", errors=[ui.Error(Code.UPSTREAM_ERROR, "no"), ui.Error(Code.TRUNCATED, "", "call_1")]
            ),
            "✘ failed (upstream_error) · 1 call: 1 malformed · 2.0 s",
        ),
        (
            TurnResult(reason="stopped", finish_reason="stopped_after_call", calls=[_WEATHER], usage=ui.Usage()),
            "■ stopped (stopped_after_call) · 1 call · 2.0 s",
        ),
        (TurnResult(), "■ unfinished · no calls · 2.0 s"),
    ],
)
def test_the_summary_is_one_line(result: TurnResult, line: str) -> None:
    parts = summarize(result, 2.0)
    assert line == "".join(text for text, _ in parts)
    assert ("✔" in line) == ("green" in parts[0][1])


def test_a_broken_pipe_raises() -> None:
    class Closed(io.StringIO):
        def write(self, text: str, /) -> int:
            raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        Transcript(Terminal(file=Closed())).show(ui.Executing(_WEATHER))
