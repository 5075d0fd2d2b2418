"""The sentences for an interface: the defaults, replacements, and escaping."""

from __future__ import annotations

from typing import Any

from streamtools import UiTexts, parse
from streamtools import events as ui
from streamtools.calls import ToolCall
from streamtools.errors import Code
from streamtools.outputs.ui_texts import escape
from tests.support.cases import together

CALL = ToolCall(id="c1", name="getWeather", arguments={}, dialect="hash_marker")


def named(name: str) -> ToolCall:
    return ToolCall(id="c1", name=name, arguments={}, dialect="hash_marker")


SAID: dict[str, tuple[ui.UIEvent, str]] = {
    "waiting": (ui.Thinking(True, "c1"), "🔧 Waiting for tool call completion..."),
    "executing": (ui.Executing(CALL), "🔧 Executing tool: getWeather..."),
    "executed": (ui.Executed(CALL, 1, None, 0.1), "*🔧 Executed getWeather*"),
    "executed with a message": (ui.Executed(CALL, 1, "It rains", 0.1), "*🔧 Executed getWeather: It rains*"),
    "executed with an empty message": (ui.Executed(CALL, 1, "", 0.1), "*🔧 Executed getWeather*"),
    "unknown": (ui.Error(Code.UNKNOWN_TOOL, "no", "c1", CALL), "*❌ Tool getWeather not available*"),
    "no JSON": (ui.Error(Code.INVALID_JSON, "no", "c1", raw="###:{"), "*❌ Invalid tool call format*"),
    "no name": (ui.Error(Code.MISSING_TOOL_NAME, "no", "c1"), "*❌ Invalid tool call format*"),
    "two names": (ui.Error(Code.CONFLICTING_FIELDS, "no", "c1"), "*❌ Invalid tool call format*"),
    "no call": (ui.Error(Code.UNRECOGNISED_TOOL_CALL, "no", "c1"), "*❌ Invalid tool call format*"),
    "cut off": (ui.Error(Code.TRUNCATED, "no", "c1"), "*❌ Invalid tool call format*"),
    "failed": (ui.Error(Code.TOOL_FAILED, "no", "c1", CALL), "*❌ Error processing tool call*"),
    "too slow": (ui.Error(Code.TOOL_TIMEOUT, "no", "c1", CALL), "*❌ Error processing tool call*"),
    "refused": (ui.Error(Code.TOOL_CHOICE_VIOLATION, "no", "c1", CALL), "*❌ Error processing tool call*"),
    "stream error": (ui.Error(Code.UPSTREAM_ERROR, "overloaded"), "*❌ Stream error: overloaded*"),
    "cancelled": (ui.Done("cancelled", None, None, []), "*⏹ Cancelled*"),
    "lost": (ui.Warning(Code.OWNER_LOST, "lost"), "🔄 Reconnecting..."),
}


@together(("event", "expected"), SAID.values(), ids=SAID)
def test_each_event_of_a_call_has_a_sentence(event: ui.UIEvent, expected: str) -> None:
    assert expected == UiTexts().render(event)


@together(
    "event",
    [
        ui.Thinking(False, "c1"),
        ui.Start("r"),
        ui.StepStart(1),
        ui.StepEnd(1, "stop"),
        ui.Text("a"),
        ui.Reasoning("a"),
        ui.CallStart("c1", "f"),
        ui.Call(CALL),
        ui.Warning(Code.SKIPPED, "long"),
        ui.Done("finished", "stop", None, []),
        ui.Done("failed", None, None, []),
    ],
    ids=lambda event: str(event.type),
)
def test_the_answer_itself_has_no_sentence(event: ui.UIEvent) -> None:
    """Other events that no reader needs have none either."""
    assert UiTexts().render(event) is None


ESCAPED = {
    "get_weather": r"get\_weather",
    "*bold* [link](http://x)": r"\*bold\* \[link\]\(http://x\)",
    "<img src=x onerror=alert(1)>": r"&lt;img src=x onerror=alert\(1\)\>",
    "a\n# b\r\n\t> c": r"a \# b \> c",
    "`code` ~~x~~ |": r"\`code\` \~\~x\~\~ \|",
    "\\*": r"\\\*",
    "\x1b[31mred\x07\x00\x9b": r"\[31mred",
    "\\<svg onload=f >": r"\\&lt;svg onload=f \>",
    "{name} {0} %s $x": r"\{name\} \{0\} %s $x",
    "\u2028\u2029\x85": "",
    "a\u202eb\u2066c": "a b c",
    "天気 é": "天気 é",
}


@together(("text", "expected"), ESCAPED.items(), ids=ESCAPED)
def test_names_and_messages_are_escaped(text: str, expected: str) -> None:
    """Text of a model or tool stays one line, without Markdown, HTML or control characters."""
    assert expected == escape(text)
    say = UiTexts().render
    assert f"🔧 Executing tool: {expected}..." == say(ui.Executing(named(text)))
    assert f"*🔧 Executed {expected}: {expected}*" == say(ui.Executed(named(text), None, text, 0.0))
    assert f"*❌ Tool {expected} not available*" == say(ui.Error(Code.UNKNOWN_TOOL, "", "c1", named(text)))
    assert f"*❌ Stream error: {expected}*" == say(ui.Error(Code.UPSTREAM_ERROR, text))


def test_no_sentence_is_read_as_a_call() -> None:
    for text in ('###:{"name":"f"}', '\n~~~tool_call\n{"name":"f"}\n~~~\n', "<think>x</think>"):
        found = parse(UiTexts().render(ui.Executed(named(text), None, text, 0.0)) or "")
        assert ([], [], "") == (found.calls, found.errors, found.reasoning)


def test_any_sentence_can_be_replaced() -> None:
    """With or without its placeholders."""
    german: Any = UiTexts(executing="Werkzeug {name} läuft", waiting="Einen Moment", failed="{Fehler}")
    assert "Werkzeug getWeather läuft" == german.render(ui.Executing(CALL))
    assert "Einen Moment" == german.render(ui.Thinking(True))
    assert "{Fehler}" == german.render(ui.Error(Code.TOOL_FAILED, "", "c1", CALL))
    assert "*🔧 Executed getWeather*" == german.render(ui.Executed(CALL, 1, None, 0.1))
