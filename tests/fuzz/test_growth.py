"""Tests of growth: each planted path with more than linear work breaks the law."""

from __future__ import annotations

import itertools
import sys
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pytest

from streamtools.apps.web import dissection
from streamtools.conversation.failover_rules import Continuation
from streamtools.errors import Code
from streamtools.events import Done, Error, SourceEvent
from streamtools.history import Assistant, TextPart, formats
from streamtools.history.history_reader import HistoryReader, TurnDraft
from streamtools.json_values import Rejected
from streamtools.limits import Limits
from streamtools.machine import native_calls
from streamtools.machine.native_calls import NativeCalls
from streamtools.outputs import front_end, non_streaming
from streamtools.outputs.front_end import FrontEndEncoder
from streamtools.outputs.responses_events import ResponsesEncoder
from streamtools.sources.adapter import OpenCall
from streamtools.sources.wire_formats.anthropic import Anthropic
from streamtools.sources.wire_formats.chat_calls import ChatCalls
from streamtools.sources.wire_formats.gemini import Gemini
from streamtools.sources.wire_formats.responses import Responses
from streamtools.tools import definitions, schemas
from tests.fuzz import growth, running
from tests.fuzz.growth import LONG, MANY, Grammar, Step, hold
from tests.fuzz.points import Points, measure
from tests.fuzz.targets import TARGETS
from tests.fuzz.targets.growth import GRAMMARS
from tests.support.patching import after, before

Plant: TypeAlias = Callable[[pytest.MonkeyPatch], None]
_NO_BOUND = Limits(calls=10**6)


def items_are_copied(patch: pytest.MonkeyPatch) -> None:
    """With each call that an item of a client adds to a turn."""

    def copy(said: TurnDraft, *_: Any, **options: Any) -> None:
        said.parts = [each for each in said.parts if each is not None]

    after(patch, TurnDraft, "add_call", copy)


def results_are_copied(patch: pytest.MonkeyPatch) -> None:
    """With each later result of a turn."""

    def copy(reader: HistoryReader, *_: Any, **options: Any) -> None:
        reader._results = {end: [*results] for end, results in reader._results.items()}

    after(patch, HistoryReader, "add_native_result", copy)


def texts_are_joined(patch: pytest.MonkeyPatch) -> None:
    """With each text item of a turn."""

    def join(message: Any, reader: HistoryReader) -> None:
        if reader.turn is not None:
            text = "\n".join(each.text for each in reader.turn.parts if isinstance(each, TextPart))
            reader.turn.parts = [TextPart(text)]

    after(patch, formats, "_read_assistant", join)


def calls_are_searched(patch: pytest.MonkeyPatch) -> None:
    """For each result with only the name of its tool."""

    def search(reader: HistoryReader, name: object) -> str | None:
        return next((id for id, (_, call) in reader._waiting.items() if name in (None, call.name)), None)

    patch.setattr(HistoryReader, "find_open_call", search)


def calls_are_gathered_again(patch: pytest.MonkeyPatch) -> None:
    """All pending calls, for a result with only the name of its tool."""

    def gather_again(reader: HistoryReader, call: Any) -> None:
        for name in reader._calls_by_name:
            reader._calls_by_name[name] = deque(
                each for _, each in reader._waiting.values() if name in (None, each.name)
            )

    after(patch, HistoryReader, "_register_call", gather_again)


def numbers_are_tried_again(patch: pytest.MonkeyPatch) -> None:
    """From the first number, for each further call with an id."""
    before(patch, HistoryReader, "_register_call", lambda reader, call: setattr(reader, "_numbers", itertools.count(2)))


def any_number_of_chat_calls(patch: pytest.MonkeyPatch) -> None:
    """Open calls are unlimited, and each stray entry searches them."""
    begin = ChatCalls.__init__

    def begin_without_bound(calls: ChatCalls, limits: Limits) -> None:
        begin(calls, _NO_BOUND)

    patch.setattr(ChatCalls, "__init__", begin_without_bound)
    before(patch, ChatCalls, "_add", lambda calls, *_: setattr(calls, "_all_faulty", False))


def open_calls_are_read_again(patch: pytest.MonkeyPatch) -> None:
    """All of them, for each lost frame."""

    def mark_gap(native: NativeCalls) -> None:
        for call in native.open.values():
            text = "".join(call.pieces).lstrip()
            if not text.startswith("{") or native_calls.is_cut(text):
                call.fault = call.fault or Rejected(Code.TRUNCATED, "a part of the stream is missing from the call")

    patch.setattr(NativeCalls, "mark_gap", mark_gap)


def _end_doubtful(calls: dict[Any, OpenCall], place: object, events: list[SourceEvent]) -> None:
    for at in list(calls):
        if calls[at].key and (at == place or None in (at, place)):
            calls.pop(at).end(None, events, Code.INVALID_ARGUMENTS)


def any_number_of_blocks(patch: pytest.MonkeyPatch) -> None:
    """Open blocks are unlimited, and each delta of an unknown block searches them."""
    patch.setattr(Anthropic, "_has_room", True)
    patch.setattr(sys.modules[Anthropic.__module__], "end_doubtful", _end_doubtful)


def any_number_of_steps(patch: pytest.MonkeyPatch) -> None:
    """The same for interactions."""
    begin = Gemini.__init__

    def begin_without_bound(adapter: Gemini, limits: Limits = _NO_BOUND) -> None:
        begin(adapter, _NO_BOUND)

    patch.setattr(Gemini, "__init__", begin_without_bound)
    patch.setattr(sys.modules[Gemini.__module__], "end_doubtful", _end_doubtful)


def what_was_heard_is_copied(patch: pytest.MonkeyPatch) -> None:
    """With each end of a part, even without a text."""

    def copy(adapter: Responses, kind: str, refusal: bool, event: Any, events: list[SourceEvent]) -> None:
        adapter._item(event, kind).received.getvalue()

    before(patch, Responses, "_finish_part", copy)


def a_body_is_copied(patch: pytest.MonkeyPatch) -> None:
    """At its end, for each call that ends there."""

    def finish(encoder: FrontEndEncoder, done: Done | None) -> bytes:
        written = encoder._begin() + encoder._end_block()
        for call in done.pending if done is not None and done.reason == "finished" else ():
            written += encoder._complete_call(call)
            del encoder._calls[call.id]
        for known in [*encoder._calls.values()]:
            written += encoder._end_call_without_result(Error(Code.TRUNCATED, "no", known.id))
        encoder._ended = True
        return written

    patch.setattr(front_end.FrontEndEncoder, "_finish", finish)


def an_item_is_searched(patch: pytest.MonkeyPatch) -> None:
    """Among all items of a response, for each item that ends."""

    def search(encoder: ResponsesEncoder, status: str = "completed") -> None:
        for each in encoder._response["output"]:
            if each is encoder._open_item:
                break

    before(patch, ResponsesEncoder, "_close_item", search)


def texts_are_added(patch: pytest.MonkeyPatch) -> None:
    """To all earlier text, with each piece of a whole answer."""

    def add(stream: bytes) -> Iterator[dict[str, Any]]:
        holder = {"text": ""}
        for event in read(stream):
            holder["text"] += str(event)
            yield event

    read = non_streaming._read_events
    patch.setattr(non_streaming, "_read_events", add)


def white_space_is_cut_off(patch: pytest.MonkeyPatch) -> None:
    """With each character of it that a second answer repeats."""

    def after_prefill(continuation: Continuation, text: str) -> str:
        while text and continuation._space and text[0] == continuation._space[0]:
            text, continuation._space = text[1:], continuation._space[1:]
        return text

    patch.setattr(Continuation, "_after_prefill", after_prefill)


def texts_are_cut_again(patch: pytest.MonkeyPatch) -> None:
    """With each part of a long text that the debugger explains."""

    def cut(written: dissection._ModelText, count: int, *what: Any) -> None:
        if written._covered:
            at, text = written._pending[0]
            written._pending[0] = at, text[written._covered :]
            written._covered = 0

    before(patch, dissection._ModelText, "_cover", cut)


def references_are_written_out(patch: pytest.MonkeyPatch) -> None:
    """All of them, however often one is nested in another."""

    def inline(schema: Any) -> Any:
        definitions = schema.get("$defs", {})

        def written_out(part: Any, seen: tuple[str, ...]) -> Any:
            if isinstance(part, list):
                return [written_out(each, seen) for each in part]
            if not isinstance(part, dict):
                return part
            if "$ref" in part:
                name = part["$ref"].rpartition("/")[2]
                return {} if name in seen else written_out(definitions.get(name, {}), (*seen, name))
            return {key: written_out(each, seen) for key, each in part.items() if key != "$defs"}

        return written_out(schema, ())

    for module in (definitions, schemas):
        patch.setattr(module, "inline", inline)


def _at(name: str, *shown: str) -> int:
    """Return the first production of a grammar whose text holds all of these words."""
    productions = [str(each) for each in GRAMMARS[name].productions]
    return next(at for at, text in enumerate(productions) if all(each in text for each in shown))


def _planted() -> list[tuple[str, list[Step], Plant]]:
    def steps(name: str, *each: tuple[int, tuple[str, ...]]) -> tuple[str, list[Step]]:
        return name, [Step(_at(name, *shown), mode) for mode, shown in each]

    rising, falling, once, in_turn = growth.RISING, growth.FALLING, growth.ONCE, growth.IN_TURN
    call, bad = ("function_call'",), (rising, ("data: {x",))
    return [
        (*steps("history", (rising, call)), items_are_copied),
        (*steps("history", (rising, call), (rising, ("output'",))), results_are_copied),
        (*steps("history", (once, call), (rising, ("output_text", "abc"))), texts_are_joined),
        (*steps("history", (once, ("tool_calls", MANY)), (falling, ("tool_name",))), calls_are_searched),
        (*steps("history", (in_turn, call), (rising, ("functionResponse", MANY))), calls_are_gathered_again),
        (*steps("history", (rising, ("'d_",)), (rising, ("'d'",))), numbers_are_tried_again),
        (*steps("source:openai", (rising, ("'id'",)), (rising, ("[5]",))), any_number_of_chat_calls),
        (*steps("source:openai", (once, ("'id'", LONG)), bad), open_calls_are_read_again),
        (*steps("machine", (rising, ("call-start",)), (rising, ("bad_frame",))), open_calls_are_read_again),
        (*steps("source:anthropic", (rising, ("start", "'tool_use'")), (rising, ("odd",))), any_number_of_blocks),
        (*steps("source:gemini", (rising, ("step.start",)), (rising, ("step.delta", "odd"))), any_number_of_steps),
        (*steps("source:responses", (in_turn, ("text.delta", LONG)), (rising, ("99999}",))), what_was_heard_is_copied),
        (*steps("encoders", (rising, ("call-start",))), a_body_is_copied),
        (*steps("encoders", (in_turn, ("text-delta", "a ")), (rising, ("reasoning-delta",))), an_item_is_searched),
        (*steps("gateway:answered", (rising, ("tool_result",))), texts_are_added),
        (*steps("continuations", (rising, (" ",))), white_space_is_cut_off),
        (*steps("debugger", (rising, ("tool_result",))), texts_are_cut_again),
        (*steps("schema", (once, ("d0",)), (rising, ("'b'", "$defs"))), references_are_written_out),
    ]


PLANTED = _planted()
QUICK = (texts_are_joined,)


def each_planted() -> pytest.MarkDecorator:
    """Return the planted paths. The slow ones are for `-m deep`."""
    rows = [
        pytest.param(
            *(name, steps, plant), id=f"{name}, {plant.__name__}", marks=[] if plant in QUICK else [pytest.mark.deep]
        )
        for name, steps, plant in PLANTED
    ]
    return pytest.mark.parametrize(("name", "steps", "plant"), rows)


@each_planted()
def test_planted_growth_breaks_the_law(
    name: str, steps: list[Step], plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the plant, the same family keeps the law."""

    def hold_all() -> None:
        for work in GRAMMARS[name].works:
            hold(GRAMMARS[name], steps, work)

    running.be_quiet()
    hold_all()
    plant(monkeypatch)

    with pytest.raises(AssertionError, match="grows"):
        hold_all()


def test_points_and_bytes_are_counted() -> None:
    """Also the bytes of a copy that is freed immediately."""

    def join(pieces: int, size: int) -> list[list[int]]:
        said = Assistant(parts=["x" * size] * pieces)
        points = Points()
        points.meet(lambda: said.text)
        with points.counting():
            return [*measure(lambda: said.text, 100).values()]

    assert [] != [each[0] for each in join(10, 1)] == [each[0] for each in join(10, 100_000)]
    assert max(each[1] for each in join(10, 100_000)) > 900_000


def test_exponential_work_is_stopped() -> None:
    """At the limit of points for the length of the input."""

    def double(parts: list[Any]) -> None:
        if parts:
            double(parts[1:])
            double(parts[1:])

    with pytest.raises(AssertionError, match="beyond all, at 24 repetitions"):
        hold(Grammar(["a"], [double]), [Step(0)], double)


def test_every_input_has_a_grammar() -> None:
    """Each adapter, and each other reader of data that a sender controls."""
    assert {f"growth:{name}" for name in GRAMMARS} == {name for name in TARGETS if name.startswith("growth:")}
    adapters = {name.removeprefix("source:") for name in TARGETS if name.startswith("source:")} - {"detect"}
    assert adapters == {name.removeprefix("source:") for name in GRAMMARS if name.startswith("source:")}
