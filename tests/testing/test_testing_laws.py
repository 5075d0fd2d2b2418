"""The function `assert_laws`: correct dialects pass, and each planted fault breaks the expected law."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any, TypeAlias

import pytest

from streamtools import Dialect, Parser, StreamMachine
from streamtools.errors import Code
from streamtools.events import Done, UIEvent
from streamtools.parsing import BROKEN, DIALECTS, ENDED, Body, Opener, Span
from streamtools.testing import assert_laws
from tests.parsing.faults import a_failed_candidate_is_late, limits_are_ignored, thinking_never_ends

Steps: TypeAlias = Generator[None, None, None]


def write_call(name: str, arguments: dict[str, Any]) -> str:
    return "@call " + json.dumps({"name": name, "arguments": arguments})


def body(span: Span) -> Steps:
    """Read one JSON object, which ends the call."""
    state = yield from span.json()
    if state is BROKEN:
        yield from span.recover()
        span.close(Code.INVALID_JSON)
    else:
        span.close(None if state is ENDED else Code.TRUNCATED)


def write_result(name: str, text: str) -> str:
    return f"@result {name}: {text}"


def dialect(
    body: Body = body,
    write_call: Callable[[str, dict[str, Any]], str] = write_call,
    write_result: Callable[[str, str], str] = write_result,
) -> Dialect:
    """Return a custom dialect: `@call {"name": …, "arguments": {…}}`."""
    return Dialect(
        id="at_call",
        openers=(Opener(("@call ",), body, ahead=("{",)),),
        write_call=write_call,
        write_result=write_result,
    )


def test_a_dialect_can_be_chosen_by_its_id() -> None:
    assert_laws("hash_marker", examples=2)
    with pytest.raises(ValueError, match=r"^no dialect 'at_call'; pass a dialect of your own "):
        assert_laws("at_call")
    with pytest.raises(ValueError, match="dialect 'at_call' has no openers for the tools f, get_weather"):
        assert_laws(replace(dialect(), openers=(), openers_for=lambda names: ()))


def test_a_body_that_is_not_a_generator_is_reported() -> None:
    def returns(span: Span) -> Any:
        span.close(None)

    message = "the body of the opener '@call ' must be a generator function"
    with pytest.raises(AssertionError, match=f"^dialect 'at_call' breaks the law of totality: {message}$"):
        assert_laws(dialect(returns))
    with pytest.raises(TypeError, match=f"^{message}$"):
        Parser(dialects=[dialect(returns)]).feed("@call {")


@pytest.mark.deep
@pytest.mark.parametrize("name", DIALECTS)
def test_every_dialect_of_the_table_keeps_the_laws(name: str) -> None:
    assert_laws(DIALECTS[name], examples=25)


def test_a_custom_dialect_keeps_the_laws() -> None:
    assert_laws(dialect())


def raises(span: Span) -> Steps:
    """Fault: invalid JSON raises an exception."""
    if (yield from span.json()) is BROKEN:
        raise ValueError("this is no JSON")
    span.close()


def ends_at_a_cut(span: Span) -> Steps:
    """Fault: a call ends at the delta that ends with its first brace."""
    if len(span.text) - span.at < 2:
        span.close(Code.INVALID_JSON)
    else:
        yield from body(span)


def drops_a_character(span: Span) -> Steps:
    """Fault: the character after the call is in no event."""
    yield from body(span)
    span.at = min(len(span.text), span.at + 1)


def reports_late(span: Span) -> Steps:
    """Fault: the call is reported only with the next character."""
    state = yield from span.json()
    while span.at == len(span.text) and not span.ended:
        yield
    span.close(None if state is ENDED else Code.INVALID_JSON)


@pytest.mark.parametrize(
    ("fault", "law"),
    [
        (raises, "totality: this is no JSON"),
        (ends_at_a_cut, "chunk invariance"),
        (drops_a_character, "conservation"),
        pytest.param(reports_late, "promptness", marks=pytest.mark.deep),  # also planted in the parser below
    ],
)
def test_a_faulty_body_breaks_the_expected_law(fault: Body, law: str) -> None:
    """The message contains the dialect, the law and the shortest text."""
    with pytest.raises(AssertionError, match=f"dialect 'at_call' breaks the law of {law}") as caught:
        assert_laws(dialect(fault))
    assert caught.value.__cause__ is not None
    assert "text=" in "".join(caught.value.__cause__.__notes__)


def test_a_written_call_must_be_readable() -> None:
    with pytest.raises(AssertionError, match="law of round trip"):
        assert_laws(dialect(write_call=lambda name, arguments: write_call(name.upper(), arguments)))


def test_a_written_result_must_contain_no_call() -> None:
    with pytest.raises(AssertionError, match="law of results"):
        assert_laws(dialect(write_result=lambda name, text: write_call(name, {"result": text})))


def hide_pending_text(patch: pytest.MonkeyPatch) -> None:
    """Fault: the parser reports no pending text."""
    patch.setattr(Parser, "pending", "")


def end_twice(patch: pytest.MonkeyPatch) -> None:
    """Fault: a run has two ends."""
    close = StreamMachine.close
    again = Done("finished", None, None, [])
    patch.setattr(StreamMachine, "close", lambda machine: [*close(machine), again])


def always_finish(patch: pytest.MonkeyPatch) -> None:
    """Fault: an incomplete run is reported as finished."""
    close = StreamMachine.close

    def lie(machine: StreamMachine) -> list[UIEvent]:
        *events, done = close(machine)
        assert isinstance(done, Done)
        return [*events, Done("finished", "stop", None, done.pending)]

    patch.setattr(StreamMachine, "close", lie)


@pytest.mark.parametrize(
    ("plant", "law"),
    [
        (a_failed_candidate_is_late, "(promptness: buffered, but not the beginning of a marker|chunk invariance)"),
        (hide_pending_text, "promptness: neither shown nor buffered"),
        (thinking_never_ends, "paired lifecycle"),
        (end_twice, "one ending"),
        (always_finish, "one ending"),
        pytest.param(limits_are_ignored, "limits", marks=pytest.mark.deep),  # other laws find it sooner
    ],
)
def test_a_fault_of_the_parser_breaks_the_expected_law(
    plant: Callable[[pytest.MonkeyPatch], None], law: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dialect alone cannot break these laws."""
    plant(monkeypatch)
    with pytest.raises(AssertionError, match=f"law of {law}"):
        assert_laws(dialect())
