"""`assert_laws`: good dialects pass, and one fault of each kind is caught by the law that it breaks."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Generator
from typing import Any, TypeAlias

import pytest
from hypothesis import strategies as st

from streamtools import Dialect, Parser, StreamMachine
from streamtools.errors import Code
from streamtools.events import Done, UIEvent
from streamtools.parsing import BROKEN, DIALECTS, ENDED, Body, Opener, Span
from streamtools.testing import assert_laws
from tests.parsing.faults import hold_back_one_too_long, limits_forgotten, thinking_never_ends

Steps: TypeAlias = Generator[None, None, None]


def write_call(name: str, arguments: dict[str, Any]) -> str:
    return "@call " + json.dumps({"name": name, "arguments": arguments})


def body(span: Span) -> Steps:
    """One JSON object, which ends the call."""
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
    """Return a dialect of our own: `@call {"name": …, "arguments": {…}}`."""
    return Dialect(
        id="at_call",
        openers=(Opener(("@call ",), body, ahead=("{",)),),
        write_call=write_call,
        write_result=write_result,
    )


def test_a_dialect_may_be_named() -> None:
    """By its id, as everywhere; one that there is not is told."""
    assert_laws("hash_marker", examples=2)
    with pytest.raises(ValueError, match=r"^no dialect 'at_call'; there are "):
        assert_laws("at_call")


def test_a_body_that_is_no_generator_is_named() -> None:
    """One that returns and never yields: whoever parses with it is told which."""

    def returns(span: Span) -> Any:
        span.close(None)

    told = "the body of the opener '@call ' must be a generator function"
    with pytest.raises(AssertionError, match=f"^dialect 'at_call' breaks the law of totality: {told}$"):
        assert_laws(dialect(returns))
    with pytest.raises(TypeError, match=f"^{told}$"):
        Parser(dialects=[dialect(returns)]).feed("@call {")


@pytest.mark.deep
@pytest.mark.parametrize("name", DIALECTS)
def test_every_dialect_of_the_table_keeps_the_laws(name: str) -> None:
    """What `assert_laws` knows of a dialect is enough for all of ours."""
    assert_laws(DIALECTS[name], examples=25)


def test_a_dialect_of_ones_own_keeps_the_laws() -> None:
    """A short grammar is enough for a good dialect."""
    assert_laws(dialect())


def test_tools_and_calls_can_be_given() -> None:
    """A dialect is tried with the tools that are declared and the calls of a strategy."""
    seen: list[str] = []

    def write(name: str, arguments: dict[str, Any]) -> str:
        seen.append(name)
        return write_call(name, arguments)

    calls = st.tuples(st.just("look_up"), st.fixed_dictionaries({"word": st.text("ab", max_size=2)}))
    tools = [{"name": "look_up", "parameters": {"type": "object", "properties": {"word": {"type": "string"}}}}]

    assert_laws(dialect(write_call=write), tools=tools, calls=calls, examples=10)

    assert {"look_up"} == set(seen)


def test_hypothesis_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has not installed the extra is told to."""
    monkeypatch.setitem(sys.modules, "hypothesis", None)

    with pytest.raises(ImportError, match=r"pip install 'streamtools\[test\]'"):
        assert_laws(dialect())


def raises(span: Span) -> Steps:
    """Broken JSON is too much for it."""
    if (yield from span.json()) is BROKEN:
        raise ValueError("this is no JSON")
    span.close()


def gives_up_at_a_cut(span: Span) -> Steps:
    """Where a delta ends with the brace that makes it certain, the call is taken to end."""
    if len(span.text) - span.at < 2:
        span.close(Code.INVALID_JSON)
    else:
        yield from body(span)


def drops_a_character(span: Span) -> Steps:
    """What follows the call is taken for a part of it, and said nowhere."""
    yield from body(span)
    span.at = min(len(span.text), span.at + 1)


def waits_for_more(span: Span) -> Steps:
    """The call is told with the character behind it."""
    state = yield from span.json()
    while span.at == len(span.text) and not span.ended:
        yield
    span.close(None if state is ENDED else Code.INVALID_JSON)


@pytest.mark.parametrize(
    ("fault", "law"),
    [
        (raises, "totality: this is no JSON"),
        (gives_up_at_a_cut, "chunk invariance"),
        (drops_a_character, "conservation"),
        pytest.param(waits_for_more, "promptness", marks=pytest.mark.deep),  # planted in the parser it is found below
    ],
)
def test_a_faulty_grammar_is_caught(fault: Body, law: str) -> None:
    """The message names the dialect and the law, and the notes below it the shortest text."""
    with pytest.raises(AssertionError, match=f"dialect 'at_call' breaks the law of {law}") as caught:
        assert_laws(dialect(fault))

    assert caught.value.__cause__ is not None
    assert "text=" in "".join(caught.value.__cause__.__notes__)


def test_a_writer_that_nobody_can_read_is_caught() -> None:
    """What a dialect writes, it reads."""
    with pytest.raises(AssertionError, match="law of round trip"):
        assert_laws(dialect(write_call=lambda name, arguments: write_call(name.upper(), arguments)))


def test_a_result_that_calls_is_caught() -> None:
    """What goes back to the model in the form of a call would be run when it is repeated."""
    with pytest.raises(AssertionError, match="law of results"):
        assert_laws(dialect(write_result=lambda name, text: write_call(name, {"result": text})))


def pending_text_is_denied(patch: pytest.MonkeyPatch) -> None:
    """The parser reports no pending text."""
    patch.setattr(Parser, "pending", "")


def end_twice(patch: pytest.MonkeyPatch) -> None:
    """A run has two ends."""
    close = StreamMachine.close
    again = Done("finished", None, None, [])
    patch.setattr(StreamMachine, "close", lambda machine: [*close(machine), again])


def always_finish(patch: pytest.MonkeyPatch) -> None:
    """A run that broke off is said to be finished."""
    close = StreamMachine.close

    def lie(machine: StreamMachine) -> list[UIEvent]:
        *events, done = close(machine)
        assert isinstance(done, Done)
        return [*events, Done("finished", "stop", None, done.pending)]

    patch.setattr(StreamMachine, "close", lie)


@pytest.mark.parametrize(
    ("plant", "law"),
    [
        (hold_back_one_too_long, "promptness: buffered, but not the beginning of a marker"),
        (pending_text_is_denied, "promptness: neither shown nor buffered"),
        (thinking_never_ends, "paired lifecycle"),
        (end_twice, "one ending"),
        (always_finish, "one ending"),
        pytest.param(limits_forgotten, "limits", marks=pytest.mark.deep),  # the laws of parsing catch it sooner
    ],
)
def test_a_fault_around_the_grammar_is_caught(
    plant: Callable[[pytest.MonkeyPatch], None], law: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Laws that no grammar can break alone are checked too."""
    plant(monkeypatch)

    with pytest.raises(AssertionError, match=f"law of {law}"):
        assert_laws(dialect())
