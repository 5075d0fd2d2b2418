"""The command `streamtools demo`."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamtools.apps.cli import main
from streamtools.recording.format import EndKind
from tests.recording.exchanges import ask, request, write


def test_three_answers_are_shown_with_their_calls_executed(capsys: pytest.CaptureFixture[str]) -> None:
    """The model answers to the results. Headings that look like calls stay text. The text of calls is hidden."""
    assert 0 == main(["demo", "--speed", "20"])
    shown = capsys.readouterr()
    assert "" == shown.err
    assert "Recorded answers of gemma-3-270m. The tools run here" in shown.out
    assert "their weather is invented" in shown.out
    assert "❯ What is the weather in Paris?\n\nI will look up the weather in Paris.\n\n" in shown.out
    assert "🔧 Executed get_weather: Paris: light rain, 14 °C (" in shown.out
    assert "\n\nIt is 14 °C in Paris, with light rain.\n\n✔ finished (stop) · 1 call: 1 executed · " in shown.out
    assert "🔧 Executed add → 41.5 (" in shown.out
    assert "\n\n17.5 plus 24 is 41.5.\n\n✔ finished (stop)" in shown.out
    assert "\n\n###### Note\n\nDo not let it boil.\n\n### Summary\n\n" in shown.out
    hidden = [line for line in shown.out.splitlines() if line.startswith("  hidden from users: ")]
    for place in (str(hidden), shown.out):
        assert [1, 1, 4] == [place.count(text) for text in ("~~~tool_call", "###:", '{"')]
    assert 3 == shown.out.count("✔ finished (stop)")


def test_a_failed_answer_has_status_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The other answers are shown."""
    paths = {}
    ends: dict[str, tuple[EndKind, bytes]] = {"good": ("end", b'"stop"'), "bad": ("reset", b"null")}
    for name, (end, finish) in ends.items():
        data = b'data: {"choices":[{"index":0,"delta":{"content":"Be"},"finish_reason":%b}]}\n\n' % finish
        paths[name] = write(tmp_path / name, (request(ask("Why?", user=name)), [data]), end=end, response=None)
    monkeypatch.setattr("streamtools.apps.cli.demo.shipped", lambda: paths)
    monkeypatch.setattr("streamtools.apps.cli.demo.FEATURED", ("bad", "good"))
    assert 1 == main(["demo", "--speed", "0"])
    shown = capsys.readouterr()
    assert "✘ failed (stream_interrupted)" in shown.out
    assert "✔ finished (stop)" in shown.out
    assert shown.err.startswith("streamtools: bad: the stream failed: the connection to the provider was lost: ")
