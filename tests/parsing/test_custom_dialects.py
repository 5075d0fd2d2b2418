"""Custom dialects: the ready-made form of a name and JSON, the reads of a custom grammar, and mistakes."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import pytest

from streamtools import parse
from streamtools.errors import Code
from streamtools.parsing import (
    ENDED,
    OPEN,
    SPACES,
    Body,
    Closing,
    Dialect,
    OneOf,
    Opener,
    ParseResult,
    Pattern,
    Some,
    Span,
    Tag,
    Word,
    json_calls,
    named_json,
    text_calls,
)
from streamtools.parsing.dialects.neutralizing import neutralize
from streamtools.testing import assert_laws
from streamtools.testing.laws import assert_chunk_invariant
from tests.support.cases import cases, together
from tests.support.ways_to_cut import usual_ways

FORMS = [
    ("CALL(", ")", "END"),
    ("[CALL:", "]", ""),
    ("@", " ", "\n"),
    ("<call name=", ">", "</call>"),
    ("call: ", ": ", ";"),
    ("<|call|>", "<|args|>", "<|done|>"),
    ("CALL ", " WITH ", " END"),
    ("TOOL<<", ">>", "<<DONE>>"),
    ("${", "}", "$"),
    ("!", "", ""),
]
"""The texts before the name, between the name and the JSON, and after the JSON."""
VALUES: list[dict[str, Any]] = [
    {},
    {"city": "Paris"},
    {"a": "END ) ]</call>", "b": [1, {"CALL(now)": None}], "": '\n\\"'},
]


def read(text: str, dialect: Dialect) -> ParseResult:
    """Return the result of parsing a text, which is the same at every cut."""
    assert_chunk_invariant(text, usual_ways(text), dialects=[dialect])
    return parse(text, dialects=[dialect])


def test_the_form_of_the_issue() -> None:
    dialect = named_json("marked", "CALL(", ")", "END")
    text = 'So: CALL(get_weather){"city": "Paris"}END now.'
    (call,) = (answer := read(text, dialect)).calls

    assert ("get_weather", {"city": "Paris"}, "marked") == (call.name, call.arguments, call.dialect)
    assert ("So:  now.", 'CALL(get_weather){"city": "Paris"}END') == (answer.content, call.raw)
    assert 'CALL(now){"a":1}END' == dialect.write_call("now", {"a": 1})


@together("form", FORMS)
def test_names_before_json_are_read_at_every_cut(form: tuple[str, str, str]) -> None:
    """Several calls, a call without its end, broken JSON, a cut answer, and text about the marker."""
    dialect = named_json("marked", *form)
    before, between, _ = form
    calls = [dialect.write_call(f"get_{at}", value) for at, value in enumerate(VALUES)]
    text = f"a {calls[1]} b {calls[2]}{calls[0]}c"
    answer = read(text, dialect)
    assert [("get_1", VALUES[1]), ("get_2", VALUES[2]), ("get_0", {})] == [(c.name, c.arguments) for c in answer.calls]
    assert ("a  b c", []) == (answer.content, answer.errors)
    for tail, code in (('{"a" 1}', Code.INVALID_JSON), ('{"a": ', Code.TRUNCATED)):
        broken = f"a {before}now{between}{tail}"
        answer = read(broken, dialect)
        assert ("a ", [], [code]) == (answer.content, answer.calls, [error.code for error in answer.errors])
    open_call = f'a {before}now{between}{{"a": 1}}'
    answer = read(open_call, dialect)
    assert ("a ", [{"a": 1}]) == (answer.content, [call.arguments for call in answer.calls])
    about = "text" if before[0] in "<[" else f"the marker {before} is"
    assert about == read(about, dialect).content
    assert [] == read(neutralize(text, [dialect]), dialect).calls


@pytest.mark.deep
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_the_laws_hold_for_names_before_json(form: tuple[str, str, str]) -> None:
    assert_laws(named_json("marked", *form), examples=15)


def grammar(end: Any, closing: Any, name: Any) -> Body:
    """Return a custom grammar for `CALL(name){...}END`."""

    def read(span: Span) -> Generator[None, None, None]:
        span.set_name((yield from span.word(name)))
        yield from span.accept(")")
        state = yield from span.arguments()
        yield from span.peek()
        if state is ENDED and (yield from span.choose("STOP", end)) >= 0:
            span.close()
        elif state is OPEN or span.at_end_in(end):
            span.close(Code.TRUNCATED)
        else:
            yield from span.recover_at(closing)
            span.close(Code.INVALID_JSON)

    return read


def own(body: Body) -> Dialect:
    """Return a custom dialect with this grammar."""
    opener = Opener(("CALL(",), body, ahead=(Some("a-z_", 1, 64), ")", SPACES, "{"))
    return Dialect(
        "own", (opener,), lambda name, arguments: named_json("x", "CALL(", ")", "END").write_call(name, arguments)
    )


def test_reads_accept_texts() -> None:
    """A text means the same as the object that is made of it."""
    bodies = [grammar("END", "END", "a-z_"), grammar(Pattern("END"), Closing("END"), Word("a-z_"))]
    with cases() as case:
        for text in (
            'a CALL(now){"a": 1}END b', 'CALL(now){"a": 1} STOP b', 'CALL(now){"a": 1}E', 'CALL(now){"a" 1} ENEND b',
            'CALL(now){"a": 1} x END b', 'CALL(now){"a": "', "CALL(now", "CALL(9){}",
        ):  # fmt: skip
            with case(text):
                given, made = (read(text, own(body)) for body in bodies)
                assert _brief(given) == _brief(made)
    assert_laws(own(bodies[0]), examples=10)


def _brief(answer: Any) -> tuple[Any, ...]:
    calls = [(call.name, call.arguments) for call in answer.calls]
    return answer.content, calls, [(error.code, error.raw) for error in answer.errors]


def write(name: str, arguments: dict[str, Any]) -> str:
    return "@call"


def reads(read: Callable[[Span], Any]) -> Callable[[], Any]:
    """Return a function that parses a call with a grammar of one read."""

    def body(span: Span) -> Generator[None, None, None]:
        yield from read(span)
        span.close()

    return lambda: parse("@call x", dialects=Dialect("own", (Opener(("@call",), body),), write))


OPENER = Opener(("@call",), json_calls())
MISTAKES: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "a text as parts": (lambda: Opener("@call", json_calls()), TypeError, r"`parts` .* tuple .* write \('@call',\)"),  # type: ignore[arg-type]
    "a text as ahead": (lambda: Opener(("@call",), json_calls(), "{"), TypeError, r"`ahead` .* write \('{',\)"),  # type: ignore[arg-type]
    "nested parts": (lambda: Opener((("@", "call"),), json_calls()), TypeError, "`parts` .* must be a tuple of"),  # type: ignore[arg-type]
    "an empty part": (lambda: Opener(("@", "", "x"), json_calls()), ValueError, "no part may be empty"),
    "an unknown place": (lambda: Opener(("@",), json_calls(), where="end"), ValueError, "`where` must be one of"),  # type: ignore[arg-type]
    "a text as a grammar": (lambda: Opener(("@",), "END"), TypeError, "`body` .* must be a grammar, .* got 'END'"),  # type: ignore[arg-type]
    "a text as a tag": (lambda: Tag("</s>"), TypeError, r"write \('</s>',\)"),  # type: ignore[arg-type]
    "words in a text": (lambda: OneOf("ab"), TypeError, r"`words` of OneOf .* write \('ab',\)"),  # type: ignore[arg-type]
    "one opener": (lambda: Dialect("own", OPENER, write), TypeError, "`openers` .* must be a tuple of Opener"),  # type: ignore[arg-type]
    "a text as an opener": (lambda: Dialect("own", ("@",), write), TypeError, "`openers` .* tuple of Opener"),  # type: ignore[arg-type]
    "a text as tags": (lambda: Dialect("own", (OPENER,), write, tags=("x",)), TypeError, "`tags` .* of Tag"),  # type: ignore[arg-type]
    "a text as reserved": (lambda: Dialect("own", (OPENER,), write, reserved="x"), TypeError, r"write \('x',\)"),  # type: ignore[arg-type]
    "no way to write": (lambda: Dialect("own", (OPENER,), "x"), TypeError, "`write_call` and .* must be functions"),  # type: ignore[arg-type]
    "a pattern of a tuple": (lambda: Pattern(("a", "b")), TypeError, "a Pattern must be a tuple of"),  # type: ignore[arg-type]
    "a closing of a pattern": (lambda: Closing(Pattern("a")), TypeError, "must be a tuple of"),  # type: ignore[arg-type]
    "a closing without an end": (Closing, ValueError, r"a Closing needs an end, such as Closing\('END'\)"),
    "a number to accept": (reads(lambda span: span.accept(3)), TypeError, "expected a str or a Pattern, got 3"),  # type: ignore[arg-type]
    "a list to choose": (reads(lambda span: span.choose(["a"])), TypeError, "expected a str or a Pattern"),  # type: ignore[arg-type]
    "a list to find": (reads(lambda span: span.until(["a"])), TypeError, "expected a str or a Closing, got"),  # type: ignore[arg-type]
    "a number as a word": (reads(lambda span: span.word(7)), TypeError, "expected a str or a Word, got 7"),  # type: ignore[arg-type]
    "no function": (lambda: text_calls("END", None), TypeError, "`read` of text_calls must be a function"),  # type: ignore[arg-type]
    "no marker": (lambda: named_json("own", " "), ValueError, "`before` must have text"),
    "a name that does not end": (lambda: named_json("own", "@", "args"), ValueError, "must not begin as a name"),
    "an unknown field": (lambda: named_json("own", "@", ")", ends="x"), TypeError, "unexpected keyword argument"),
}


def test_mistakes_are_explained() -> None:
    """When the dialect is made, or when the grammar makes the mistake."""
    with cases() as case:
        for name, (make, error, message) in MISTAKES.items():
            with case(name), pytest.raises(error, match=message):
                make()


@pytest.mark.parametrize(
    "plant",
    [
        lambda patch: patch.setattr("streamtools.parsing.dialects.base.Word", lambda characters: Word(r"^ \t\r\n{")),
        lambda patch: patch.setattr("streamtools.parsing.bodies.named_json.GAP", Some(" ", 1, 1)),
    ],
    ids=["the name holds the text after it", "white space is needed"],
)
def test_a_planted_fault_is_caught(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises((AssertionError, ValueError)):
        test_names_before_json_are_read_at_every_cut()  # type: ignore[call-arg]  # `together` passes the form


@pytest.mark.parametrize(
    ("fault", "kind", "message"),
    [
        (lambda span: span.close("oops"), ValueError, "`code` must be one of invalid_json"),
        (lambda span: span.close(Code.SKIPPED), ValueError, "`code` must be one of"),
        (lambda span: span.set_name(None), TypeError, "the name of a call must be a str, got None"),
    ],
)
def test_a_wrong_value_of_a_grammar_gets_a_clear_error(fault: Any, kind: type[Exception], message: str) -> None:
    def body(span: Span) -> Generator[None, None, None]:
        fault(span)
        yield

    dialect = Dialect("own", (Opener(("CALL ",), body),), lambda name, arguments: "CALL x")
    with pytest.raises(kind, match=message):
        parse("CALL x", dialects=dialect)
    with pytest.raises(TypeError, match="must be texts, got"):
        named_json("own", "CALL", None)  # type: ignore[arg-type]
