"""S4: JSON bombs are refused with the name of the limit that they exceed, wherever a model can write them."""

from __future__ import annotations

import itertools
import json
from typing import Any

import anyio
import pytest

from streamtools import ToolRegistry, ToolStream, parse, sources
from streamtools.errors import ToolInputError
from streamtools.events import Error
from tests.support.cases import cases
from tests.support.variants import KNOWN

DEEP = "[" * 100_000
BOMBS = {
    "depth": ("[" * 65 + "]" * 65, "too_deep"),
    "depth that never closes": (DEEP, "too_deep"),
    "depth of objects": ('{"a":' * 65 + "1" + "}" * 65, "too_deep"),
    "digits": ("1" * 301, "number_too_long"),
    "digits that Python refuses": ("9" * 5_000, "number_too_long"),
    "digits after a point": ("0." + "1" * 301, "number_too_long"),
    "digits of an exponent": ("1e" + "9" * 301, "number_too_long"),
    "an exponent": ("1e400", "not_a_number"),
    "a negative one": ("-1e400", "not_a_number"),
    "NaN": ("NaN", "not_a_number"),
    "Infinity": ("Infinity", "not_a_number"),
    "-Infinity": ("-Infinity", "not_a_number"),
    "half a character": ('"\\ud83d"', "lone_surrogate"),
    "a key twice": ('{"a":1,"a":2}', "duplicate_key"),
    "size": (f'"{"x" * (2 * 1024 * 1024)}"', "too_large"),
}
"""A value, and the code that it is refused with."""

bombs = pytest.mark.parametrize(("value", "code"), BOMBS.values(), ids=BOMBS.keys())


class Ran(Exception):
    """Raised if a tool runs that must not run."""


def f(a: Any = None) -> str:
    """Never runs."""
    raise Ran


FORMS = ["hash_marker", "tilde_fence", "hermes_json", "mistral_list"]


@bombs
def test_a_bomb_in_text_is_one_error(value: str, code: str) -> None:
    """The text after it is read."""
    with cases() as case:
        for dialect, cut in itertools.product(FORMS, [False, True]):
            with case(dialect, "in pieces" if cut else "whole"):
                text = KNOWN[dialect].write_call("f", {"a": "bomb"}).replace('"bomb"', value) + "\n\nafter"
                deltas = [text[at : at + 997] for at in range(0, len(text), 997)] if cut else text
                result = parse(deltas, dialects=[dialect])

                assert [code] == [each.code for each in result.errors]
                assert [] == result.calls
                assert value == DEEP or result.content.endswith("after")


@bombs
@pytest.mark.parametrize("as_text", [True, False], ids=["text", "object"])
def test_a_bomb_in_a_native_call_is_an_error(as_text: bool, value: str, code: str) -> None:
    """It is JSON in a string, or part of the frame. The tool does not run."""
    arguments = json.dumps(f'{{"a":{value}}}') if as_text else f'{{"a":{value}}}'
    call = f'{{"index":0,"id":"c","function":{{"name":"f","arguments":{arguments}}}}}'
    frames = [
        f'data: {{"choices":[{{"delta":{{"tool_calls":[{call}]}}}}]}}\n\n'.encode(),
        b'data: {"choices":[{"delta":{},"finish_reason":"tool_calls"}]}\n\ndata: [DONE]\n\n',
    ]

    async def run() -> tuple[list[str], list[str]]:
        async with ToolStream(sources.openai(iter(frames)), tools=[f]) as events:
            told = [event async for event in events]
        return [event.type for event in told], [event.code for event in told if isinstance(event, Error)]

    kinds, codes = anyio.run(run)

    assert "done" == kinds[-1]
    assert ("executing" in kinds) is (not as_text and value in PLAIN)
    if as_text and value != DEEP:
        assert [code] == codes


PLAIN = (BOMBS["digits after a point"][0], BOMBS["a key twice"][0])
"""What a provider's own frame may hold: a float has as many digits as a float has, and of a key that stands twice there
the last counts, for everybody who sees the call. Frames are written by servers, and not by models.
"""


@bombs
async def test_execute_refuses_bombs(value: str, code: str) -> None:
    if code != "too_large":  # the caller of `execute` holds the text already
        with pytest.raises(ToolInputError):
            await ToolRegistry(f).execute("f", f'{{"a":{value}}}')
