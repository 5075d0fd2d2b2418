"""A call whose arguments are cut off, misspelled or without a name never runs without arguments, in any dialect."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Iterator

import pytest

from streamtools import Parser, coalesce
from streamtools.events import Call, UIEvent
from streamtools.parsing import span_calls
from streamtools.parsing.bodies import invocations, parameter_tags, xml
from tests.support.variants import KNOWN
from tests.support.ways_to_cut import some

ARGUMENTS = {"a": "x", "n": 3}
TOOLS = [{"name": "f", "parameters": {"properties": {"a": {"type": "string"}, "n": {"type": "integer"}}}}]
_find_tokens = re.compile(r"\w+|\W").finditer
_find_tag = re.compile(r"""[<="]f"?>""").search
_find_key = re.compile(r"""["'](?:arguments|parameters|args)["']: ?{""").search


def _parts(dialect: str) -> tuple[str, str, str]:
    """Return the text of a call before, in and after its arguments."""
    full, empty = (KNOWN[dialect].write_call("f", arguments) for arguments in (ARGUMENTS, {}))
    begin = _common(full, empty)
    end = len(full) - _common(full[:begin:-1], empty[:begin:-1])
    return full[:begin], full[begin:end], full[end:]


def _common(one: str, other: str) -> int:
    """Return how many characters of two texts are equal at their beginning."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _damaged(dialect: str) -> Iterator[str]:
    before, arguments, after = _parts(dialect)
    for token in _find_tokens(arguments):
        yield f"{before}{arguments[: token.end()]}"  # cut off
        if arguments[: token.end()].strip():
            yield f"{before}{arguments[: token.end()]}{after}"  # the rest is missing
        if (rest := arguments[: token.start()] + arguments[token.end() :]).strip():
            yield f"{before}{rest}{after}"  # for example the name of an argument is missing
            yield f"{before}{rest}"
    if found := _find_tag(before):  # the opening tag of the call has a slash, as if it were the whole call
        tag, last = before[: found.end() - 1], before[found.end() :]
        name = re.match(r"\S\w*(?::\w+)?", arguments)
        assert name is not None
        for end in range(name.end(), len(arguments)):
            yield f"{tag}/>{last}{arguments[:end]}"
        yield f"{tag}/>{last}{arguments}{after}"
        yield f"{tag}/>{last}{name[0]}>{after}"
    if (key := _find_key(before)) is not None:
        yield f"{before[: key.start() + 1]}my_{before[key.start() + 1 :]}{arguments}{after}"
        yield f"{before[: key.start()]}{arguments}{after.replace('}', '', 1)}"


def _read(dialect: str, deltas: list[str]) -> list[UIEvent]:
    parser = Parser(KNOWN[dialect], tools=TOOLS)
    return coalesce([event for delta in deltas for event in parser.feed(delta)] + parser.close())


def _always(*_: object, **__: object) -> Generator[None, None, bool]:
    yield from ()
    return True


def _check(texts: Iterable[str], dialect: str) -> None:
    for text in texts:
        whole = _read(dialect, [text])
        assert not [event for event in whole if isinstance(event, Call) and not event.call.arguments], text
        assert whole == _read(dialect, list(text)), text


@pytest.mark.parametrize("dialect", KNOWN)
def test_damaged_arguments_do_not_become_no_arguments(dialect: str) -> None:
    """The text is an error, text, or a call with arguments. This is the same at all cuts."""
    _check(some(_damaged(dialect), 3, [*KNOWN].index(dialect)), dialect)


@pytest.mark.parametrize("dialect", ["anthropic_xml", "qwen3_coder_xml", "minimax_m3_xml", "minicpm5_xml", "morph_xml"])
def test_a_slash_that_always_ends_a_call_is_found(dialect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (invocations, parameter_tags, xml):
        monkeypatch.setattr(module, "is_whole", _always)
    with pytest.raises(AssertionError, match="/>"):
        _check(_damaged(dialect), dialect)


@pytest.mark.parametrize("dialect", ["hermes_json", "sarashina_list", "inkling"])
def test_misspelled_keys_that_are_ignored_are_found(dialect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(span_calls, "reject_misplaced", lambda *_: None)
    with pytest.raises(AssertionError, match="my_"):
        _check(_damaged(dialect), dialect)
