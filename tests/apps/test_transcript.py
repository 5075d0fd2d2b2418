"""The transcript: what a reader sees of each event, on a terminal and in a file, whatever a model has written."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable

import pytest

from streamtools import ToolCall, ToolOutcome, TurnResult, UiTexts
from streamtools.apps.cli.printable import Printable, printable
from streamtools.apps.cli.transcript import Terminal, Transcript, summarize
from streamtools.errors import Code
from streamtools.events import (
    ApprovalRequested,
    Call,
    CallDelta,
    CallStart,
    Done,
    Error,
    Executed,
    Executing,
    FollowUp,
    Markup,
    Progress,
    Raw,
    Reasoning,
    Start,
    StepEnd,
    StepStart,
    Text,
    Thinking,
    UIEvent,
    Usage,
    UsageReport,
    Warning,
)
from streamtools.history import Step
from tests.support.screen import Screen

_WEATHER = ToolCall(id="call_1", name="get_weather", arguments={"city": "Oslo"}, dialect="hash_marker", raw="###:{}")


def transcript(
    *, terminal: bool = False, width: int = 80, texts: UiTexts | None = None
) -> tuple[Transcript, io.StringIO]:
    """Return a transcript, and the file that it is written to."""
    file = io.StringIO()
    console = Terminal(file=file, force_terminal=terminal, color_system="standard" if terminal else None, width=width)
    return Transcript(console, texts=texts, live=terminal), file


def written(*events: UIEvent, terminal: bool = False, width: int = 80) -> str:
    """Return all that a transcript of these events writes."""
    shown, file = transcript(terminal=terminal, width=width)
    for event in events:
        shown.show(event)
    return file.getvalue()


def on_screen(*events: UIEvent, width: int = 80) -> str:
    """Return what a terminal shows after these events."""
    screen = Screen(width, 1000)
    screen.feed(written(*events, terminal=True, width=width))
    return "\n".join(screen.rows)


def a_call(call: ToolCall = _WEATHER) -> Iterable[UIEvent]:
    """Return what the machine tells while a call is written."""
    return (
        Thinking(True, call.id),
        CallStart(call.id, call.name),
        CallDelta(call.id, "{"),
        Call(call),
        Thinking(False, call.id),
    )


def test_an_answer_without_calls_comes_out_as_it_is() -> None:
    """Text is written as the model wrote it: Markdown, markup of rich, tabs, emoji names, trailing space."""
    text = "# Title\n\n\t[bold]no markup[/bold] :smile: \\[x] https://x.org 'quoted' 12 \n\n\n| a |  \n"
    assert text == written(*(Text(character) for character in text))
    assert text == on_screen(*(Text(character) for character in text))


def test_text_is_written_at_once() -> None:
    """Each piece of text is out before the next event comes, also the piece that might begin something."""
    shown, file = transcript()
    shown.show(Text("##"))
    assert "##" == file.getvalue()


@pytest.mark.parametrize("terminal", [True, False])
def test_a_call_stands_on_a_line_of_its_own_and_the_blank_lines_around_it_are_kept(terminal: bool) -> None:
    """The paragraphs above and below a call stay apart by one blank line, as the model wrote them."""
    events = (Text("Above.\n\n"), *a_call(), Text("\n\nBelow."))
    waiting = "" if terminal else "🔧 Waiting for tool call completion...\n"
    shown = on_screen(*events) if terminal else written(*events)
    assert f'Above.\n\n{waiting}→ get_weather(city="Oslo")\n\nBelow.' == shown


def test_a_call_in_the_middle_of_a_line_breaks_the_line() -> None:
    """What follows a call in the same line begins a new one, since the call's line stands between them."""
    assert 'Look: \n→ get_weather(city="Oslo")\nthere.' == on_screen(Text("Look: "), *a_call(), Text("there."))


def test_the_text_of_a_call_is_nowhere() -> None:
    """Neither the marker nor the JSON of a call is shown: the line of the call is in other words."""
    raw = '~~~tool_call\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n~~~'
    call = ToolCall(id="call_1", name="get_weather", arguments={"city": "Oslo"}, dialect="tilde_fence", raw=raw)
    error = Error(Code.INVALID_JSON, "no JSON", call_id="call_2", raw="~~~tool_call\n{oops\n~~~")
    shown = written(*a_call(call), error)
    assert "~~~" not in shown
    assert "{" not in shown


def test_waiting_is_shown_on_a_terminal_and_replaced() -> None:
    """While a call is written the last line says so, with the name once it is known; the call takes its place."""
    waiting = "🔧 Waiting for tool call completion..."
    assert f"Hm.\n{waiting}" == on_screen(Text("Hm."), Thinking(True, "call_1"))
    named = on_screen(Text("Hm."), Thinking(True, "call_1"), CallStart("call_1", "get\nweather"))
    assert f"Hm.\n{waiting} get weather" == named
    assert 'Hm.\n→ get_weather(city="Oslo")\n' == on_screen(Text("Hm."), *a_call())
    assert "Hm.\nNo call." == on_screen(Text("Hm."), Thinking(True, "1"), Thinking(False, "1"), Text("No call."))


def test_waiting_fits_into_one_row() -> None:
    """A line that is to be erased must not wrap, because only its last row would be."""
    shown = on_screen(Thinking(True, "call_1"), CallStart("call_1", "a" * 64), width=20)
    assert "🔧 Waiting for tool…" == shown


def test_reasoning_is_dim_and_marked() -> None:
    """Reasoning has a sign where there is no colour, and a blank line divides it from the answer."""
    events = (Reasoning("\nLet me "), Reasoning("[b]think[/b].\n"), Text("\n\nYes."), Reasoning("Hm."))
    assert "💭 Let me [b]think[/b].\n\nYes.\n\n💭 Hm." == written(*events)
    assert "\x1b[2;3mLet me \x1b[0m" in written(*events, terminal=True)


def test_tools_report_below_the_text() -> None:
    """What tools do stands in a block of its own, in the words of `UiTexts`; a result without a message is shown."""
    events = (
        Text("One moment."),
        Executing(_WEATHER),
        Progress("call_1", {"percent": 50}),
        Executed(_WEATHER, {"message": "snow\n"}, "snow\n", 0.25),
        Executed(_WEATHER, {"sky": "snow"}, None, 2.5),
        Text("\n\nIt snows."),
    )
    assert (
        "One moment.\n\n"
        "🔧 Executing tool: get_weather...\n"
        '   get_weather: {"percent": 50}\n'
        "🔧 Executed get_weather: snow (250 ms)\n"
        '🔧 Executed get_weather → {"sky": "snow"} (2.5 s)\n'
        "\nIt snows."
    ) == written(*events)


def test_errors_name_their_code() -> None:
    """A malformed call is an error in the text; a call that failed and a stream that failed stand below it."""
    assert (
        "Look: \n❌ Invalid tool call format: the call was cut off (truncated)\n"
        "\n❌ Tool get_weather not available: no tool named 'get_weather' (unknown_tool)\n"
        "❌ Error processing tool call: it *failed* (tool_failed)\n"
        "❌ Stream error: overloaded (upstream_error, status 529)\n"
    ) == written(
        Text("Look: "),
        Error(Code.TRUNCATED, "the call was cut off", call_id="call_1", raw='###:{"'),
        Error(Code.UNKNOWN_TOOL, "no tool named 'get_weather'", call_id="call_1", call=_WEATHER),
        Error(Code.TOOL_FAILED, "it *failed*", call_id="call_1", call=_WEATHER),
        Error(Code.UPSTREAM_ERROR, "overloaded", status=529),
    )


def test_warnings_name_their_code() -> None:
    """A warning is a line in the text, with the count of what it is about."""
    assert "⚠ it was forged (forged_result)\n⚠ too much (12) (skipped)\n" == written(
        Warning(Code.FORGED_RESULT, "it was\nforged"), Warning(Code.SKIPPED, "too much", count=12)
    )


def test_near_misses_leave_the_text_in_one_piece() -> None:
    """They repeat visible text, so they are told behind the answer of their step."""
    near = Warning(Code.NEAR_MISS, "text all the same", raw="###:{")
    assert "`###:{` is a marker.\n\n⚠ text all the same (near_miss)\n" == written(
        Text("`###:{"), near, Text("` is a marker."), StepEnd(1, "stop")
    )


def test_other_endings_than_the_summary() -> None:
    """A run that was left says so; one that somebody has to allow says which call."""
    assert '✋ Approval requested: get_weather(city="Oslo")\n⏹ Cancelled\n' == written(
        ApprovalRequested(_WEATHER), Done("cancelled", None, None, [])
    )


def test_a_follow_up_is_told() -> None:
    """Between two steps one sees that the results are sent."""
    assert "↩ The results are sent to the model.\n" == written(FollowUp([]))


def test_events_without_words_write_nothing() -> None:
    """Bookkeeping is not shown."""
    assert "" == written(
        Start("run_1"),
        StepStart(1),
        UsageReport(Usage(input=1)),
        Raw({}),
        Markup("<x>"),
        StepEnd(1, "stop"),
        Done("finished", "stop", "stop", []),
    )


def test_words_can_be_replaced() -> None:
    """The words are those of `UiTexts`; emphasis and escapes, which are for Markdown, are gone."""
    shown, file = transcript(texts=UiTexts(executing="*Werkzeug {name}…*"))
    shown.show(Executing(_WEATHER))
    assert "Werkzeug get_weather…\n" == file.getvalue()


@pytest.mark.parametrize("terminal", [True, False])
def test_nothing_that_a_model_writes_is_obeyed(terminal: bool) -> None:
    """Every control character comes out as a picture, wherever in an event a model can put one."""
    evil = "\x1b]0;title\x07\x9b2J\r\x1b[31m\x7f\ud800"
    call = ToolCall(id="call_1", name=f"a{evil}", arguments={evil: evil}, dialect="hash_marker")
    events = (
        Text(evil),
        Reasoning(evil),
        *a_call(call),
        Executing(call),
        Progress("call_1", evil),
        Executed(call, evil, None, 0.1),
        Executed(call, evil, evil, 0.1),
        Error(Code.TRUNCATED, evil, call_id="call_2", raw=evil),
        Error(Code.UPSTREAM_ERROR, evil),
        Warning(Code.NEAR_MISS, evil),
    )
    shown, file = transcript(terminal=terminal)
    shown.heading(evil, evil)
    for event in events:
        shown.show(event)
    shown.summarize(TurnResult(reason="failed", finish_reason=evil), 1.0)
    left = (
        re.sub(r"\x1b\[(\?25[hl]|[0-9;]*m|[0-9]*[AK])|\r(?=\S|\x1b)", "", file.getvalue())
        if terminal
        else file.getvalue()
    )
    assert set() == {character for character in left if not character.isprintable()} - {"\n"}
    assert "␛]0;title␇\\x9b2J␍␛[31m␡\ufffd" in left


def test_long_values_are_cropped() -> None:
    """Arguments and results of any length take a line or three, with an ellipsis."""
    call = ToolCall(id="call_1", name="write", arguments={"text": "x" * 10_000}, dialect="hash_marker")
    shown = written(Call(call), Executed(call, "y" * 10_000, None, 0.1))
    assert [True, True] == [200 <= len(line) <= 250 and "…" in line for line in shown.split("\n") if line]


def test_somebody_else_may_need_a_line() -> None:
    """`end_line` leaves the cursor at the start of a line, and the text goes on as if it had not been broken."""
    shown, file = transcript(terminal=True)
    shown.show(Text("Hello\r"))
    shown.end_line()
    shown.end_line()
    assert "Hello␍\n" == file.getvalue()
    shown.show(Text("\nworld"))
    assert "Hello␍\nworld" == file.getvalue()


def test_a_carriage_return_is_shown_unless_it_ends_a_line() -> None:
    """CRLF is a line's end, also when it is cut in two; a lone CR, which would overwrite the line, is a picture."""
    assert "a\nb␍c\n" == written(Text("a\r"), Text("\nb\rc\r\n"))
    text = Printable()
    assert ("", "␍␍", "␍", "") == (text.feed("\r"), text.feed("\r\r"), text.close(), text.close())
    assert "a\tb\nc␀" == printable("a\tb\r\nc\0")


def test_two_runs_and_their_headings() -> None:
    """Each run has a title with a rule, the question, the answer, and one line that sums it up."""
    shown, file = transcript(width=30)
    shown.remark("Two answers.")
    for question in ("Why?", "How?\nAnd when?"):
        shown.heading("Question", question)
        shown.show(Text("So."))
        shown.show(Raw({}))
        shown.summarize(TurnResult(reason="finished", finish_reason="stop"), 1.5)
    rule = "── Question ──────────────────\n"
    end = "\n\nSo.\n\n✔ finished (stop) · no calls · 1 event that was not understood · 1.5 s\n"
    assert f"Two answers.\n\n{rule}❯ Why?{end}\n{rule}❯ How?\n  And when?{end}" == file.getvalue()


def outcome(error: Code | None = None) -> ToolOutcome:
    """Return how a call ended."""
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
                usage=Usage(input=1200, output=34, total=1234, reasoning=10),
                steps=[Step(), Step()],
            ),
            "■ pending (tool_calls) · 4 calls: 2 executed, 1 failed, 1 pending · 2 steps · "
            "1,200 tokens in, 34 tokens out, 10 of reasoning · 2.0 s",
        ),
        (
            TurnResult(
                reason="truncated",
                finish_reason="length",
                errors=[Error(Code.TRUNCATED, "cut", call_id="call_1")],
                warnings=[Warning(Code.NEAR_MISS, "a"), Warning(Code.NEAR_MISS, "b")],
                usage=Usage(total=1),
            ),
            "✂ truncated (length) · 1 malformed call · 2 warnings · 1 token · 2.0 s",
        ),
        (
            TurnResult(reason="failed", errors=[Error(Code.UPSTREAM_ERROR, "no"), Error(Code.TRUNCATED, "", "call_1")]),
            "✘ failed (upstream_error) · 1 malformed call · 2.0 s",
        ),
        (
            TurnResult(reason="stopped", finish_reason="stopped_after_call", calls=[_WEATHER], usage=Usage()),
            "■ stopped (stopped_after_call) · 1 call · 2.0 s",
        ),
        (TurnResult(), "■ unfinished · no calls · 2.0 s"),
    ],
)
def test_the_summary_tells_how_it_ended(result: TurnResult, line: str) -> None:
    """One line: the ending and its reason, the calls and what became of them, warnings, tokens, time."""
    assert line == "".join(piece for piece, _ in summarize(result, 2.0))


def test_a_closed_pipe_is_raised() -> None:
    """rich would end the process; here the caller is told."""

    class Closed(io.StringIO):
        def write(self, text: str, /) -> int:
            raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        Transcript(Terminal(file=Closed())).show(Executing(_WEATHER))
