"""A text judge: text without approval is never shown, and no later event is lost or reordered."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamtools import RunnerOptions, TextJudge, TextOptions, ToolStream, chat, outputs, sources
from streamtools.conversation import Fallback, ScriptedModel
from streamtools.events import (
    Done,
    NativeToolCall,
    Partial,
    ProviderCompleted,
    Reasoning,
    ReasoningDelta,
    Text,
    TextDelta,
    UIEvent,
)
from streamtools.machine import StreamMachine
from streamtools.stream import text_judge
from streamtools.stream.text_judge import Gate
from streamtools.testing.laws import cut
from streamtools.tools import Tool
from tests.support.cases import together
from tests.support.options import grouped
from tests.support.stories import Script, texts

CALL = '###:{"name": "now", "arguments": {"a": "b"}}'
STOP = ProviderCompleted(finish_reason="stop")
ANSWER = f"Hello there. How are you?\n{CALL}Fine, “thanks!” And\n\nno more"


class Judge:
    """Refuses text with a word, and records its arguments."""

    def __init__(self, refused: str = "bad", **options: Any) -> None:
        self.asked: list[tuple[str, str]] = []
        self.refused = refused
        self.judge = TextJudge(self, **options)

    async def __call__(self, text: str, before: str) -> bool:
        self.asked.append((text, before))
        await anyio.lowlevel.checkpoint()
        return self.refused not in text


def shown(events: Sequence[UIEvent]) -> str:
    """Return the text that a reader sees."""
    return "".join(event.text for event in events if isinstance(event, Text))


def noting(ran: list[str]) -> Tool:
    """Return a tool that adds the argument of each call to `ran`."""

    def now(a: str) -> str:
        """Tell the time."""
        ran.append(a)
        return a

    return Tool(now)


async def collect(source: Any, judge: TextJudge, **options: Any) -> tuple[list[UIEvent], list[str]]:
    """Return the events of a run, and the arguments of its tool calls."""
    ran: list[str] = []

    async with ToolStream(source, tools=[noting(ran)], **grouped(text_judge=judge, **options)) as stream:
        events = [event async for event in stream]
    outputs.validate(events)
    assert shown(events) == stream.result.text
    return events, ran


async def test_approved_text_is_shown_sentence_by_sentence() -> None:
    """The sentences do not depend on the cuts. The judge also gets the text before each. Calls run after approval."""
    pieces = ["Hello there. ", "How are you?\n", "Fine, “thanks!” ", "And\n", "no more"]  # and not the empty line
    for size in (1, 2, 3, 7, 100):
        judge = Judge()
        source = sources.text([ANSWER[at : at + size] for at in range(0, len(ANSWER), size)])
        events, ran = await collect(source, judge.judge)

        assert set(pieces) == {text for text, _ in judge.asked}
        assert ("How are you?\n", "Hello there. ") in judge.asked
        assert shown(events) == ANSWER.replace(CALL, "")
        assert ["b"] == ran
        assert [e.type for e in events].index("executing") > [e.type for e in events].index("text")


@together("bad", ["Hello", "How", "Fine", "no more"])
@together("native", [False, True])
async def test_refused_text_and_all_later_text_is_not_shown(bad: str, native: bool) -> None:
    """The run is stopped by the guard, and its calls stay pending."""
    answer = ANSWER.replace(CALL, "") if native else ANSWER
    calls = [NativeToolCall("now", '{"a": "b"}', id="i")] if native else []
    for size in (1, 5, 100):
        deltas = texts(*(answer[at : at + size] for at in range(0, len(answer), size)))
        judge = Judge(bad)
        events, ran = await collect(Script([*deltas, *calls, STOP]), judge.judge)
        done = events[-1]

        assert isinstance(done, Done)
        assert ("stopped", "guard", []) == (done.reason, done.finish_reason, ran)
        assert answer.replace(CALL, "").partition(bad)[0] == shown(events)
        assert ["now"] == [call.name for call in done.pending]


@together("unanswered", ["open", "closed"])
@together("how", ["raises", "hangs", "says nothing", "is no coroutine"])
async def test_the_policy_decides_if_the_judge_gives_no_answer(how: str, unanswered: Any) -> None:

    async def ask(text: str, before: str) -> Any:
        if how == "raises":
            raise OSError("no judge")
        await anyio.sleep(0 if how == "says nothing" else 3600)

    given: Any = (lambda text, before: 1) if how == "is no coroutine" else ask
    judge = TextJudge(given, timeout=0.01, unanswered=unanswered)
    events, ran = await collect(sources.text([f"Hello. {CALL}"]), judge)

    assert ("Hello. ", ["b"]) == (shown(events), ran) if unanswered == "open" else ("", []) == (shown(events), ran)
    assert ("finished" if unanswered == "open" else "stopped") == getattr(events[-1], "reason", None)


async def test_a_slow_judge_delays_calls_and_reading() -> None:
    """Text is shown in the order in which it arrived."""
    allowed, asked = anyio.Event(), anyio.Event()

    async def ask(text: str, before: str) -> bool:
        if text == "One. ":
            asked.set()
            await allowed.wait()
        return True

    source = Script(texts("One. "), texts("Two. "), *(texts(f"{at}. ") for at in range(9)), [*texts(CALL), STOP])
    ran: list[str] = []

    async with ToolStream(
        source, tools=[noting(ran)], text=TextOptions(judge=TextJudge(ask, at_once=2, timeout=3600))
    ) as stream:
        await asked.wait()
        await anyio.wait_all_tasks_blocked()
        assert ("", [], 2) == (stream.result.text, ran, source.read)
        allowed.set()
        events = [event async for event in stream]
    assert "One. Two. 0. 1. 2. 3. 4. 5. 6. 7. 8. " == stream.result.text
    assert ["b"] == ran
    assert ["start", "step-start", "text"] == [event.type for event in events[:3]]


async def test_text_without_approval_is_dropped_when_the_stream_is_left() -> None:
    """All other events are shown, and the source is closed."""
    asked = anyio.Event()

    async def ask(text: str, before: str) -> bool:
        asked.set()
        await anyio.sleep_forever()
        return True

    source = Script(texts(f"Hello. {CALL}"), hold=True)
    async with ToolStream(source, text=TextOptions(judge=TextJudge(ask, timeout=3600))) as stream:
        await asked.wait()
    events = [event async for event in stream]

    outputs.validate(events)
    assert ("", 1, "cancelled") == (shown(events), source.closed, stream.result.reason)
    assert ["now"] == [call.name for call in stream.result.pending]


async def test_a_long_sentence_is_cut_between_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is cut inside a word only if the word is too long."""
    monkeypatch.setattr(text_judge, "_LONG_SENTENCE", 10)
    judge = Judge()
    events, _ = await collect(sources.text(["One two three four " + "x" * 25]), judge.judge)

    assert ["One two three ", "four xxxxxxxxxxxxxxx", "xxxxxxxxxx"] == sorted(
        (text for text, _ in judge.asked), key=lambda text: (text[0] == "x", text[0] == "f")
    )
    assert shown(events).endswith("x" * 25)


@pytest.mark.parametrize("reads", [True, False])
async def test_reasoning_is_judged_only_with_the_option(reads: bool) -> None:
    """Its signature is shown with its last piece."""
    judge = Judge(reasoning=reads)
    thought = [ReasoningDelta("I think. All is"), ReasoningDelta(" bad.", "signed")]
    events, _ = await collect(Script([*texts("So. "), *thought, *texts("Well."), STOP]), judge.judge)
    thoughts = [event for event in events if isinstance(event, Reasoning)]

    assert ("I think. " if reads else "I think. All is bad.") == "".join(event.text for event in thoughts)
    assert ("So. " if reads else "So. Well.") == shown(events)
    events, _ = await collect(Script([*thought, STOP]), Judge("worse", reasoning=reads).judge)
    assert "signed" in [event.signature for event in events if isinstance(event, Reasoning)]


async def test_partial_values_wait_for_the_approval_of_their_text() -> None:
    text = json.dumps(["good. ", "bad. ", "other"])
    for size in (1, 100):
        source = sources.text([text[at : at + size] for at in range(0, len(text), size)])
        events, _ = await collect(source, Judge().judge, output=list[str])

        assert '["good. ' == shown(events)
        assert "bad" not in "".join(event.to_json() for event in events)
        assert "good. " == "".join(e.value for e in events if isinstance(e, Partial) and isinstance(e.value, str)) or (
            size > 1
        )


async def test_a_chat_ends_when_its_text_is_refused() -> None:
    """The model gets no further request, and the history holds no refused text."""
    for answers, said in (([f"Hi. {CALL}", "Then bad. And so on"], "Hi. "), ([f"Hi. bad. {CALL}", "never"], "Hi. ")):
        model = ScriptedModel(answers)
        called: list[str] = []
        async with chat(
            model, [{"role": "user", "content": "?"}], tools=[noting(called)], text=TextOptions(judge=Judge().judge)
        ) as stream:
            events = [event async for event in stream]
        outputs.validate(events)
        assert (said, "guard") == (stream.result.text, stream.result.finish_reason)
        assert (len(called), model.left) == ((1, 0) if "bad" not in answers[0] else (0, 1))
        assert "bad" not in json.dumps(stream.messages())


async def test_another_model_continues_after_text_that_waits_for_the_judge() -> None:
    """No text is lost or repeated."""
    first = ScriptedModel([[TextDelta("Hello there. How are"), OSError("broken")]], format="openai")
    second = ScriptedModel([" you? Fine, I hope."])
    judge = Judge()
    async with chat(
        Fallback(first, second), [{"role": "user", "content": "?"}], text=TextOptions(judge=judge.judge)
    ) as stream:
        events = [event async for event in stream]

    outputs.validate(events)
    assert "Hello there. How are you? Fine, I hope." == stream.result.text
    assert "How are you? " in [text for text, _ in judge.asked]


def test_an_invalid_judge_is_refused_when_it_is_created() -> None:
    fine = Judge().judge
    with pytest.raises(ValueError, match="eager"):
        ToolStream(sources.text([]), tools=[print], text=TextOptions(judge=fine), runner=RunnerOptions(execute="eager"))
    for wrong in ({"wait": 0}, {"timeout": -1}, {"unanswered": "yes"}, {"at_once": 0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            Judge(**wrong)
    with pytest.raises(TypeError, match=r"ask\(text, before\)"):
        TextJudge("no")  # type: ignore[arg-type]


# The gate alone.

_parts = st.sampled_from(
    ["a", " ", ". ", ".", "!”", "\n", "。", "word ", "x" * 30, CALL, "?)", "…", "<think>b. c</think>"]
)
_texts = st.lists(_parts, max_size=14).map("".join)
_places = st.lists(st.integers(0, 200), max_size=8)


def judged(text: str, at: list[int], approve: Callable[[str], bool], late: bool, long: int = 400) -> list[UIEvent]:
    """Return the shown text. The judge decides about each piece immediately, or at the end."""
    gate = Gate(TextJudge(lambda text, before: True, reasoning=True))
    machine = StreamMachine(run_id="r", new_id=map(str, count()).__next__, reasoning="anywhere")
    out, waiting = list[UIEvent](), list[Any]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_judge, "_LONG_SENTENCE", long)
        for each in [*texts(*cut(text, at)), STOP, None]:
            out += gate.take(machine.close() if each is None else machine.feed(each))
            waiting += gate.unjudged
            gate.unjudged.clear()
            if not late or each is None:
                for piece in waiting:
                    piece.approved = approve(piece.text)
                out += gate.take(())
                waiting.clear()
    return out


@given(_texts, _places, st.sampled_from(["", "x", "a", "。"]), st.booleans(), st.sampled_from([20, 400]))
def test_the_shown_text_does_not_depend_on_the_cuts(text: str, at: list[int], bad: str, late: bool, long: int) -> None:

    def approve(piece: str) -> bool:
        return not bad or bad not in piece

    whole = judged(text, [], approve, False, long)
    out = judged(text, at, approve, late, long)

    outputs.validate(out)
    assert _told(whole) == _told(out)
    assert not bad or bad not in shown(out)
    if bad == "":
        machine = StreamMachine(run_id="r", new_id=map(str, count()).__next__, reasoning="anywhere")
        plain = machine.feed(TextDelta(text)) + machine.feed(STOP) + machine.close()
        assert shown(plain) == shown(out)


def _told(events: Sequence[UIEvent]) -> list[str]:
    kinds = [event.type for event in events if event.type not in ("text", "reasoning", "warning")]
    return [shown(events), "".join(e.text for e in events if isinstance(e, Reasoning)), *kinds]


def sentences_end_with_their_delta(patch: pytest.MonkeyPatch) -> None:
    """The gate forgets the beginning of the end of a sentence."""
    patch.setattr(text_judge, "_LONGEST_END", 1)


def waiting_text_is_released_at_the_end(patch: pytest.MonkeyPatch) -> None:
    """The judge has not approved it."""
    take = Gate.take

    def taken(gate: Gate, events: Sequence[UIEvent]) -> list[UIEvent]:
        if any(isinstance(event, Done) for event in events):
            for _, piece in gate._queue:
                if piece is not None and piece.approved is None:
                    piece.approved = True
        return take(gate, events)

    patch.setattr(Gate, "take", taken)


@pytest.mark.parametrize("plant", [sentences_end_with_their_delta, waiting_text_is_released_at_the_end])
def test_a_planted_fault_is_caught(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the law above, in one text."""
    text = "Hello!” bad x"

    def check() -> None:
        whole, out = (judged(text, at, lambda piece: "bad" not in piece, True) for at in ([], list(range(14))))
        assert "Hello!” " == shown(whole) == shown(out)

    check()
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        check()


def test_a_long_text_is_cut_into_pieces_in_linear_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each search is limited to a bounded part of the text."""
    searched: list[int] = []

    class Counting:
        def __init__(self, pattern: Any) -> None:
            self._pattern = pattern

        def search(self, text: str, begin: int = 0, end: int | None = None) -> Any:
            searched.append((len(text) if end is None else end) - begin)
            return self._pattern.search(text, begin, len(text) if end is None else end)

    monkeypatch.setattr(text_judge, "_SENTENCE", Counting(text_judge._SENTENCE))
    monkeypatch.setattr(text_judge, "_SPACE", Counting(text_judge._SPACE))
    gate = Gate(TextJudge(lambda text, before: True))
    gate.take([Text("a. " * 20_000)])

    assert 20_000 == len(gate.unjudged)
    assert sum(searched) < 20_000 * 1000
