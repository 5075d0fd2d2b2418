"""Scenes for a page with `@streamtools/client`: the answers of the model, and the expected final state of the page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from tests.support.chat_chunks import chunk
from tests.support.loopback import Loopback
from tests.support.talks import calls, ends, native, refuses, says

Answers: TypeAlias = Callable[[], list[Loopback]]
Check: TypeAlias = Callable[[Any, str], None]

PAID = {"to": "Ann", "amount": 50}
DATE = {"title": "Departure"}


def _brief(turn: Any) -> list[Any]:
    """Return the parts of a turn: texts, and calls with their states."""
    return [each["text"] if "text" in each else (each["name"], each["state"]) for each in turn["parts"]]


def _fine(end: Any) -> list[Any]:
    assert end["failure"] is None
    assert end["seqs"] == sorted({*end["seqs"]}), "each event once, and in order"
    assert ("finished", end["seqs"][-1]) == (end["turn"]["state"], end["turn"]["seq"])
    return _brief(end["turn"])


def _talk(end: Any, how: str) -> None:
    assert ["Hello, Ann."] == _fine(end)
    assert {"input": 5, "output": 3} == {name: end["turn"]["usage"][name] for name in ("input", "output")}


def _reasoning(end: Any, how: str) -> None:
    assert ["Who is it? Ann.", "Hello, Ann."] == _fine(end)
    assert ["reasoning", "text"] == [each["kind"] for each in end["turn"]["parts"]]


def _thinks() -> Loopback:
    pieces = [{"reasoning_content": "Who is it? "}, {"reasoning_content": "Ann."}, {"content": "Hello, Ann."}]
    return Loopback([*map(chunk, pieces), *ends("stop", None)])


def _broken(end: Any, how: str) -> None:
    assert ["Hello, Ann."] == _fine(end)
    assert 1 == len(end["asked"]), "it reconnected once, after its last event"
    assert end["asked"][0] in end["seqs"][2:]


def _approve(end: Any, how: str) -> None:
    assert ["I pay.", ("pay", "executed"), "Paid."] == _fine(end)
    assert "paid 50 to Ann" == end["turn"]["parts"][1]["result"]


def _deny(end: Any, how: str) -> None:
    assert ["I pay.", ("pay", "denied"), "Not paid."] == _fine(end)
    assert "too much" in end["turn"]["parts"][1]["message"]


def _twice(end: Any, how: str) -> None:
    assert ["I pay.", ("pay", "executed"), "Paid."] == _fine(end)
    assert [409 if how == "http" else "wrong_digest"] == end["refused"]


def _own(end: Any, how: str) -> None:
    assert [("pick_date", "executed"), "In March."] == _fine(end)
    assert "Departure: 2027-03-01" == end["turn"]["parts"][0]["result"]


def _failing(end: Any, how: str) -> None:
    assert [("pick_date", "failed"), "Never."] == _fine(end)
    assert "the user has closed it" in end["turn"]["parts"][0]["message"]


def _stop(end: Any, how: str) -> None:
    assert (["On and on"], "cancelled", None) == (_brief(end["turn"]), end["turn"]["state"], end["failure"])


def _error(end: Any, how: str) -> None:
    assert ("failed", None) == (end["turn"]["state"], end["failure"])
    assert "upstream_error" == end["turn"]["failure"]["code"]


def _malformed(end: Any, how: str) -> None:
    assert [("pay", "failed"), "I could not."] == _fine(end)
    assert "{oops" in end["turn"]["parts"][0]["raw"]


def _input(end: Any, how: str) -> None:
    assert [("pay", "executed"), "Paid."] == _fine(end)
    assert ['{"to":', '{"to": "Ann", "amount"', '{"to": "Ann", "amount": 50}'] == end["written"]


def _writes() -> Loopback:
    pieces = ['{"to":', ' "Ann", "amount"', ": 50}"]
    more = [chunk({"tool_calls": [{"index": 0, "function": {"arguments": each}}]}) for each in pieces[1:]]
    return Loopback([chunk({"tool_calls": [native(0, "pay", pieces[0])]}), *more, *ends("tool_calls", None)])


def _gone(end: Any, how: str) -> None:
    assert ("HttpError: 404" if how == "http" else "SocketError: run_not_found") == end["failure"]


def _again(end: Any, how: str) -> None:
    assert ["Hello, Ann."] == _fine(end)
    assert end["first"] == end["turn"]


def _talks(end: Any, how: str) -> None:
    assert [["1"], ["2"], ["3"]] == [_brief(turn) for turn in end["turns"]]


SCENES: dict[str, tuple[Answers, Check]] = {
    "talk": (lambda: [says("Hello, ", "Ann.", usage=(5, 3))], _talk),
    "reasoning": (lambda: [_thinks()], _reasoning),
    "broken": (lambda: [says("Hello, ", "Ann.")], _broken),
    "approve": (lambda: [calls(("pay", PAID), text="I pay."), says("Paid.")], _approve),
    "deny": (lambda: [calls(("pay", PAID), text="I pay."), says("Not paid.")], _deny),
    "twice": (lambda: [calls(("pay", PAID), text="I pay."), says("Paid.")], _twice),
    "own": (lambda: [calls(("pick_date", DATE)), says("In March.")], _own),
    "failing": (lambda: [calls(("pick_date", DATE)), says("Never.")], _failing),
    "stop": (lambda: [Loopback(says("On and on")._script[:1], hold=True)], _stop),
    "error": (lambda: [refuses(400, "No such model.")], _error),
    "malformed": (lambda: [calls(("pay", "{oops")), says("I could not.")], _malformed),
    "input": (lambda: [_writes(), says("Paid.")], _input),
    "gone": (lambda: [says("")], _gone),
    "again": (lambda: [says("Hello, ", "Ann.")], _again),
    "talks": (lambda: [says("1"), says("2"), says("3")], _talks),
}
"""Each is played by the scene of that name in `typescript_scenes.mjs`; some are `talk` with another answer."""
