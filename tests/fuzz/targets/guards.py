"""What stands between the model's text and its reader: a judge, rules in arguments, and a pace, however it is cut."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

from msgspec.structs import force_setattr

from streamtools import Parser, coalesce, rules
from streamtools.events import Text, UIEvent
from streamtools.parsing.segments import SegmentBuffer, _joined
from streamtools.stream.text_judge import Gate, Piece, TextJudge
from tests.fuzz.target import Input, Target, encode, pieces, seeds

RULES = [rules.replace(["secret", "ab", "\U0001f600"], "…"), rules.email(), rules.keys()]
_SIZES = (1, 2, 3, 7)
_JUDGED: dict[str, Any] = {"release": ("sentences", 1, 10, 50), "late": (False, True), "context": (1000, 0, 5)}
_PACES: dict[str, Any] = {"pace": ("words", "graphemes")}


def _is_fine(text: str, before: str) -> bool:
    return "bad" not in text


def _judged(batches: list[list[UIEvent]], judge: TextJudge, *, late: bool) -> tuple[list[Piece], list[UIEvent]]:
    """Return the pieces that were asked about, and what went out; with `late`, the last is decided first."""
    gate, asked, out = Gate(judge), list[Piece](), list[UIEvent]()

    def decide() -> None:
        asked.extend(gate.ended)
        for piece in reversed(gate.ended):
            piece.approved = _is_fine(piece.text, piece.before)
        gate.ended.clear()
        out.extend(gate.take([]))

    for batch in batches:
        out += gate.take(batch)
        if not late:
            decide()
    gate.end_piece()
    decide()
    assert not len(gate), "something waits for ever"
    return asked, out


def check_judge(given: Input) -> Iterator[object]:
    """Show one answer as far as a judge approves it."""
    text, chosen = given.text, given.choose_all(_JUDGED)
    judge = TextJudge(_is_fine, release=chosen["release"], context=chosen["context"])
    known: tuple[list[tuple[str, str]], list[UIEvent]] | None = None
    for size in (len(text) or 1, *_SIZES):
        parser = Parser(("hash_marker", "tilde_fence"), new_id=lambda: "id")
        batches = [parser.feed(each) for each in pieces(text, size)] + [parser.close()]
        written = [event for batch in batches for event in batch]
        for seq, event in enumerate(written):
            force_setattr(event, "seq", seq)
        asked, out = _judged(batches, judge, late=chosen["late"])
        refused = next((at for at, piece in enumerate(asked) if not piece.approved), None)
        approved = asked[:refused]
        whole = "".join(event.text for event in out if isinstance(event, Text))
        asked_about = "".join(piece.text for piece in approved)  # nobody is asked about white space alone
        assert "".join(whole.split()) == "".join(asked_about.split()), "another text was shown"
        if refused is None:
            assert coalesce(out) == coalesce(written), "something was lost"
        kinds = [event.type for event in out if event.type not in ("text", "matched", "raw", "partial")]
        assert kinds == [event.type for event in written if event.type in {*kinds}], "something was lost"
        told = [(piece.text, piece.before) for piece in approved], [each for each in out if isinstance(each, Text)]
        known = known or (told[0], coalesce(told[1]))
        assert known == (told[0], coalesce(told[1])), "it depends on the cut"
        yield len(asked), refused
    yield tuple(min(len(piece.text), 50) // 10 for piece in asked[:3])


def check_pace(given: Input) -> Iterator[object]:
    """Show one text in whole words or graphemes."""
    text = given.text
    pace: Literal["words", "graphemes"] = given.choose(0, _PACES["pace"])
    # White space ends a word at once, and what may be joined to it comes later.
    marked = any(one.isspace() and _joined(text, at + 1, one, text[at + 1]) for at, one in enumerate(text[:-1]))
    known: set[int] = set()
    for size in (1, *_SIZES, len(text) or 1):
        paced = SegmentBuffer(words=pace == "words")
        ends, out = set[int](), ""
        for piece in pieces(text, size):
            out += paced.feed(piece)
            ends.add(len(out))
            assert out + paced.pending == text[: len(out) + len(paced.pending)], "text was changed"
            assert len(paced.pending) < 128, "too much is held"
        assert out + paced.flush() == text, "text was lost"
        known = known or ends
        assert marked or ends <= known | {0}, "it depends on the cut"
    yield pace, min(len(known), 20)


def _use_gate(texts: list[str]) -> None:
    _judged([[Text(each)] for each in texts], TextJudge(lambda text, before: True, context=50), late=True)


USES: dict[str, Callable[[list[str]], object]] = {
    "judge": _use_gate,
    "words": lambda texts: [*map(SegmentBuffer(words=True).feed, texts)],
}


def use(what: str, size: int, parts: list[str]) -> None:
    """Let a text of such parts pass, in pieces of one size."""
    USES[what](pieces("".join(parts), size))


def make_judge() -> Target:
    """Return the target of judges."""
    call = '###:{"name": "f", "arguments": {}}'
    bodies = ["Fine. So is this! bad. Behind", f"One.\nbad {call} b", f"a {call} bad. c\n\nd", "x " * 60 + "bad 。 y"]
    words = ["bad", ". ", "\n", "! ", "。", " ", call, "`", "Fine.", ".) ", "…"]
    return Target("judge", check_judge, lambda: list(seeds(bodies, _JUDGED)), [encode(word) for word in words])


def make_pace() -> Target:
    """Return the target of paces."""
    bodies = [
        "see (a b) now",
        "!x y 👨‍👩‍👧 🇩🇪🇫🇷",
        "漢字 x a",
        "a" * 70 + " u",
    ]
    words = ["(", "!", "\n", " ", "\u0301", "\u200d", "🇩", "漢", "a" * 64]
    return Target("pace", check_pace, lambda: list(seeds(bodies, _PACES)), [encode(word) for word in words])


MAKE = {"judge": make_judge, "pace": make_pace}
"""What makes each target."""
