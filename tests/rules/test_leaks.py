"""Tests of leaks around rules: spans with content, and answers of a gateway."""

from __future__ import annotations

import json
from typing import Any

import pytest
from structlog.testing import capture_logs

from streamtools import TextOptions, chat, rules, tool
from streamtools.conversation import ScriptedModel
from streamtools.gateway import FallbackUpstream
from tests.support.cases import together
from tests.support.collected import collecting
from tests.support.gateway import CLIENTS, answer, begin, request, stream, whole

SECRET = "bob@example.org"
PART = SECRET[:8]
EMAIL = [rules.email()]
CALL = f'~~~tool_call\n{{"name": "mail", "arguments": {{"to": "{SECRET}"}}}}\n~~~\n'


@tool
def mail(to: str) -> str:
    """Send a letter."""
    assert to == SECRET
    return "sent"


@pytest.mark.parametrize("history", ["as_written", "as_shown"])
async def test_spans_and_logs_hold_no_match(history: Any) -> None:
    """The model and the tool get the original text."""
    said = [f"mail {SECRET}.\n{CALL}", f"wrote {SECRET}, {{{SECRET}"]
    with capture_logs() as logs, collecting(content=True) as collected:
        model = ScriptedModel([[text[at : at + 7] for at in range(0, len(text), 7)] for text in said])
        run = chat(
            model, [{"role": "user", "content": "Hi"}], tools=[mail], text=TextOptions(rules=EMAIL, history=history)
        )
        await run
        reported = [str(dict(span.attributes or {})) + str(span.events) for span in collected.spans]

    assert run.result.outcomes
    assert (f"mail {SECRET}" in str(model.asks[1].history)) is (history == "as_written")
    assert any("[email]" in each for each in reported)
    assert not [each for each in (*reported, str(logs)) if PART in each]


SAID = (
    f"mail {SECRET}. ```\n{SECRET}\n``` and {SECRET}",
    f"###: {{{SECRET} ~~~tool_caller {SECRET}\n~~~tool_call\n{SECRET}\n~~~ {SECRET}",
    f'~~~tool_call\n{{"name": {SECRET}}}\n~~~ {SECRET}',
    f"~~~tool_result get_time\n{SECRET}\n~~~\n{SECRET}",
)


@together("client", CLIENTS)
@together("on", [{}, {"on_malformed": "text"}, {"mode": "native"}, {"fallbacks": [FallbackUpstream(url="http://a")]}])
def test_answers_of_a_gateway_hold_no_match(client: Any, on: Any) -> None:
    """At each cut and break: streamed, whole, and with several choices."""
    for text in SAID:
        for size in (1, 8):
            deltas = [text[at : at + size] for at in range(0, len(text), size)]
            with capture_logs() as logs:
                given = {"text_rules": EMAIL, **on}
                sent = answer(begin(client, request(client), **given), *[stream(deltas)] * 2)
                sent += answer(begin(client, request(client, streamed=False), **given), *[whole(text)] * 2)
                broken = stream(deltas[: len(deltas) * 3 // 4], None, done=False)
                ends = answer(begin(client, request(client), **given), *[broken] * 2, cause="transport")
                if client == "openai" and not on:
                    several = json.loads(whole(text))
                    several["choices"] += [{**several["choices"][0], "index": 1}]
                    asked = request(client, streamed=False, n=2)
                    sent += answer(begin(client, asked, **given), json.dumps(several).encode())
            assert b"[email]" in sent
            assert SECRET.encode() not in ends  # the beginning of one is none, where nothing follows
            reported = sent.decode() + str(logs)
            assert not [reported[at - 200 : at + 30] for at in [reported.find(PART)] if at >= 0], (text, size, on)
