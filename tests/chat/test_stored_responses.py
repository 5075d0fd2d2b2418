"""A lost run continues with the background response that its crashed process was reading."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from anyio.abc import SocketStream

from streamtools import RunnerOptions, TextOptions, chat, outputs, rules, tool
from streamtools.conversation import Fallback, OpenAIResponses
from streamtools.errors import Code
from streamtools.events import Raw, Reasoning, StepEnd, StepStart, Text, UIEvent, UsageReport, Warning
from streamtools.machine.logged_run import LoggedRun
from streamtools.runs import LostRun
from streamtools.tools import MemoryLedger
from tests.support.loopback import Loopback, _request
from tests.support.loops import ONE_LOOP
from tests.support.provider_streams import BY_NAME, REASONING, TEXT

pytestmark = pytest.mark.anyio

ASK = [{"role": "user", "content": "How late is it?"}]
END = "It is late in Zurich."
RUN = "run_1"
RAN: list[str] = []
WHOLE = BY_NAME["responses"].body.replace(b'"object":"response"', b'"object":"response","background":true')
"""The first response, which thinks, writes and calls two tools."""


def _answer(text: str, **fields: Any) -> bytes:
    """A response with a text."""
    part = {"type": "output_text", "text": text}
    item = {"id": "msg_9", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
    response = {"id": "resp_9", "object": "response", "status": "completed", "output": [item], **fields}
    created = {"type": "response.created", "response": {**response, "status": "queued", "output": []}}
    return b"".join(
        b"data: %s\n\n" % json.dumps(each).encode()
        for each in (
            created,
            {"type": "response.output_text.delta", "item_id": "msg_9", "delta": text[:9]},
            {"type": "response.output_text.delta", "item_id": "msg_9", "delta": text[9:]},
            {"type": "response.completed", "response": response},
        )
    )


class Storing(Loopback):
    """Sends `first`, its rest if a request asks to continue its text, and `END` for results.

    `stored` is what it sends for a GET, or a status.
    """

    def __init__(self, first: bytes, stored: bytes | int) -> None:
        super().__init__()
        self.first, self.stored = first, stored

    async def _serve(self, stream: SocketStream) -> None:
        async with stream:
            request = await _request(stream)
            head, _, body = request.partition(b"\r\n\r\n")
            self.requests.append(head.partition(b" HTTP")[0])
            answer: bytes | int = self.first
            if request.startswith(b"GET"):
                answer = self.stored
            elif b"function_call_output" in body:
                answer = _answer(END, background=True)
            elif b"was interrupted" in body:
                shown = json.loads(body)["input"][-2]["content"]
                answer = _answer(
                    TEXT.removeprefix(shown if isinstance(shown, str) else shown[0]["text"]), background=True
                )
            status, sent = (answer, b"{}") if isinstance(answer, int) else (200, answer)
            kind = b"text/event-stream" if status == 200 else b"application/json"
            await stream.send(b"HTTP/1.1 %d Status\r\nConnection: close\r\nContent-Type: %s\r\n\r\n" % (status, kind))
            await stream.send(sent)


@tool
async def weather(city: str) -> str:
    """Tell the weather."""
    RAN.append("weather")
    return "sunny"


@tool
async def clock(zone: str, seconds: bool) -> str:
    """Tell the time."""
    RAN.append("clock")
    return "23:59"


class Site:
    """Runs a chat with a provider, which keeps `stored`, and continues it after a crash."""

    def __init__(self, stored: bytes | int = WHOLE, *, fallback: bool = False, **options: Any) -> None:
        self.stored, self.fallback, self.options = stored, fallback, options
        self.requests: list[bytes] = []

    async def run(self, lost: LostRun | None = None) -> list[UIEvent]:
        RAN.clear()
        async with Storing(WHOLE, self.stored) as server:
            model: Any = OpenAIResponses("gpt", base_url=server.url, background=True, native_tool_calls=True)
            model = Fallback(model, model) if self.fallback else model
            async with chat(
                model,
                ASK,
                tools=[weather, clock],
                runner=RunnerOptions(ledger=MemoryLedger()),
                continue_from=lost,
                **self.options,
            ) as stream:
                events = [event async for event in stream]
            self.requests = server.requests
        return events

    async def crash(self, log: Sequence[UIEvent]) -> list[UIEvent]:
        """Continue the run from this log. Returns the whole log."""
        log = [*log, Warning(Code.OWNER_LOST, "lost", seq=log[-1].seq + 1)]
        return log + await self.run(LostRun(RUN, "ann", None, None, 1, log))


def check(log: Sequence[UIEvent], *, may_end: bool = False) -> None:
    """Check that a run is whole, and that each tool ran once.

    With `may_end`, the model may have continued the text without calls.
    """
    outputs.validate(log)
    assert [event.seq for event in log] == list(range(1, len(log) + 1))
    text = "".join(event.text for event in log if isinstance(event, Text))
    assert (text, sorted(RAN)) in [(TEXT + END, ["clock", "weather"]), *([(TEXT, [])] if may_end else [])]


async def begun(site: Site) -> list[list[UIEvent]]:
    """Return the beginnings of the log of a run, up to the end of its first turn."""
    log = await site.run()
    check(log)
    ends = [at for at, event in enumerate(log) if isinstance(event, UsageReport)]
    return [log[:cut] for cut in range(1, ends[0] + 1)]


@ONE_LOOP
@pytest.mark.parametrize("fallback", [False, True])
async def test_the_answer_is_not_requested_again(fallback: bool) -> None:
    site = Site(fallback=fallback)
    for beginning in await begun(site):
        log = await site.crash(beginning)
        check(log)
        assert REASONING == "".join(event.text for event in log if isinstance(event, Reasoning))
        is_known = any(isinstance(event, Raw) for event in beginning)
        first = b"GET /responses/resp_1?stream=true" if is_known else b"POST /responses"
        assert [first, b"POST /responses"] == site.requests
        assert ["owner_lost"] == [event.code.value for event in log if isinstance(event, Warning)]


@ONE_LOOP
@pytest.mark.parametrize("share", [4, pytest.param(1, marks=pytest.mark.deep)])
@pytest.mark.parametrize("stored", [404, 410, WHOLE[: len(WHOLE) // 3], WHOLE[: len(WHOLE) // 2]])
async def test_a_response_that_the_provider_has_lost(stored: bytes | int, share: int) -> None:
    """The model continues, as it does without a stored response, also after a second crash."""
    site = Site(stored)
    for beginning in (await begun(site))[2:]:
        log = await site.crash(beginning)
        check(log, may_end=True)
        assert b"POST /responses" in site.requests[1:2]
        again = Site()
        first = len(beginning) + 1
        end = next((at for at, event in enumerate(log[first:], first) if isinstance(event, UsageReport)), len(log))
        for cut in range(first, end, share):
            check(await again.crash(log[:cut]), may_end=True)
            assert not any(b"resp_9" in request for request in again.requests)


ONE, TWO = (Raw({"type": "response.created", "response": {"id": id}}) for id in ("1", "2"))
FAILED = Warning(Code.FAILED_OVER, "a failed")


@pytest.mark.parametrize(
    ("id", "log"),
    [
        ("1", [ONE, StepStart(1), Text("a")]),
        ("1", [ONE, StepStart(1), ONE]),
        (None, [ONE, StepStart(1), TWO]),
        ("2", [ONE, TWO]),
        (None, [ONE, FAILED, StepStart(1)]),
        (None, [ONE, StepStart(1), FAILED, TWO]),
        ("2", [ONE, FAILED, TWO, StepStart(1)]),
        (None, [ONE, StepStart(1), StepEnd(1, "tool_calls")]),
    ],
)
def test_the_open_step_is_the_beginning_of_one_response(id: str | None, log: list[UIEvent]) -> None:
    assert id == LoggedRun(log).response_id


@ONE_LOOP
async def test_text_that_rules_change_is_not_compared() -> None:
    site = Site(text=TextOptions(rules=[rules.replace("both", "all")]))
    log = await site.run()
    assert not any(isinstance(event, Raw) for event in log)
    cut = next(at for at, event in enumerate(log) if isinstance(event, Text))
    await site.crash(log[: cut + 1])
    assert not any(request.startswith(b"GET") for request in site.requests)
