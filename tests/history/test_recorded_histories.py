"""The law of round trips: a history that is read and written for the same provider is the same JSON.

The histories have each provider's exact format with each kind of block, or come from streams.
`tests/history/test_history_order.py` tests generated histories.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import anyio

from streamtools.calls import ToolCall
from streamtools.history import (
    Assistant,
    Format,
    Origin,
    ProviderItem,
    Results,
    TextPart,
    Thought,
    User,
    read_messages,
    write_messages,
)
from tests.support.cases import together
from tests.support.exact_histories import EXACT
from tests.support.recorded_histories import history_of, recorded


def again(messages: list[dict[str, Any]], format: str, host: str | None = None) -> list[dict[str, Any]]:
    """Return messages after they have been read and written."""
    copy = json.loads(json.dumps(messages))
    return write_messages(read_messages(copy), format, provider=Origin(host=host))


@together("name", EXACT)
def test_a_recorded_history_is_unchanged(name: str) -> None:
    format, messages = EXACT[name]
    written = again(messages, format)
    for expected, each in zip(messages, written, strict=True):
        assert expected == each


def test_a_history_of_a_stream_is_unchanged() -> None:
    """It is written and read for each provider."""
    results = anyio.run(recorded)
    for name, result in results.items():
        for format in get_args(Format):
            written = write_messages(history_of(result), format, dialects=result.dialects)
            assert written == again(written, format), (name, format)
            assert result.messages(format) == again(result.messages(format), format), (name, format)
    assert len(results) >= 20


# The table of the page.

PAGE = Path(__file__).parents[2] / "docs" / "histories.md"
ROWS = {
    "OpenAI, chat completions": ["openai", "compatible", "mistral"],
    "OpenAI, Responses": ["responses"],
    "Anthropic": ["anthropic", "anthropic, beta"],
    "Gemini": ["gemini"],
    "Gemini, Interactions": ["interactions"],
    "Ollama": ["ollama"],
    "Bedrock, Converse": ["bedrock"],
    "Cohere": ["cohere"],
}


def columns_of(names: list[str]) -> set[str]:
    """Return the columns of the table that these unchanged histories contain."""
    found: set[str] = set()
    for message in (each for name in names for each in read_messages(EXACT[name][1])):
        if isinstance(message, Assistant):
            found |= {COLUMNS[type(part)] for part in message.parts}
        elif isinstance(message, Results):
            found.add("results")
        elif isinstance(message, User) and not isinstance(message.content, str):
            kinds = {each.get("type") or next(iter(each)) for each in message.content}
            found |= {"images"} if kinds & {"image_url", "image"} else set()
            found |= {"files"} if kinds & {"file", "document", "input_file", "inlineData"} else set()
    return found


COLUMNS = {TextPart: "text", Thought: "reasoning", ToolCall: "calls", ProviderItem: "hosted items"}


def test_the_table_of_formats() -> None:
    """The table in the docs matches the histories above."""
    page, always = PAGE.read_text("utf-8"), {"text", "calls", "images"}
    assert "All formats have texts, calls and images," in page
    lines = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("|")]
    head, _, *rows = lines
    told = {row[0]: dict(zip([each.strip() for each in head[-4:]], row[1:], strict=True)) for row in rows}
    assert {*ROWS, "AI SDK, UIMessages", "AG-UI"} == {*told}
    for provider, names in ROWS.items():
        cells = told.pop(provider)
        assert columns_of(names) == always | {key for key, cell in cells.items() if cell.startswith("yes")}, provider
        assert columns_of(names) == always | {key for key, cell in cells.items() if cell != "–"}, provider
    assert {"read", "left out"} == {cell.partition(",")[0] for cells in told.values() for cell in cells.values()}
