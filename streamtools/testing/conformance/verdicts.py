"""How an answer misses what is right: a leak and a loss are different faults, and each has a name of its own.

An answer is judged by what the parser tells: the text of one that gives calls alone is not judged, nor are the codes of
one that has none. Where several outcomes are right, that one counts which the answer misses least.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, Final

from streamtools.testing.conformance.cases import Case, Outcome, WrittenCall

FAULTS: Final = {
    "leak": "characters of a call, a tag or a thought stand in the visible text",
    "lost text": "visible text has vanished",
    "lost call": "a call has vanished, though all of it came",
    "false call": "something would be executed that is no call: it is cut off, malformed, or only shown in code",
    "wrong arguments": "a call would be executed with other arguments than were written",
    "white space": "white space inside a section of text is not as it was written",
    "reasoning": "what the model thought is not told as that",
    "code": "the code of an error is missing, or another one",
    "raised": "the parser raised an exception, or gave no answer",
}
"""The faults, the gravest for a reader first."""


@dataclass(frozen=True)
class Reported:
    """What a parser made of a text; None stands for what it does not tell of any text."""

    text: str | None = None
    calls: Sequence[tuple[str, Any]] = ()
    """Names, and arguments: an object, or the JSON of one as it came."""
    reasoning: str | None = None
    errors: Sequence[str] | None = None

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> Reported:
        """Return what an adapter answered: `text`, `reasoning`, `calls`, `errors`, each of them or not.

        Raises ValueError for an answer of another form.
        """
        try:
            calls = tuple((str(call["name"]), call.get("arguments")) for call in answer.get("calls") or ())
            errors = answer.get("errors")
            return cls(answer.get("text"), calls, answer.get("reasoning"), None if errors is None else list(errors))
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"not an answer: {answer!r} ({type(error).__name__}: {error})") from error


def judge(case: Case, reported: Reported) -> Counter[str]:
    """Return the faults of an answer: names of `FAULTS`, with how many characters or calls each is about."""
    return min(
        (_faults(outcome, reported) for outcome in case.expected), key=lambda faults: (len(faults), faults.total())
    )


def _faults(outcome: Outcome, reported: Reported) -> Counter[str]:
    found: Counter[str] = Counter()
    if reported.text is not None:
        found.update(_text_faults(outcome.text, reported.text))
    found.update(_call_faults(outcome.calls, reported.calls))
    if reported.reasoning is not None:
        found["reasoning"] = sum(_text_faults(outcome.reasoning, reported.reasoning).values())
    if reported.errors is not None:
        wanted, got = Counter(outcome.errors), Counter(reported.errors)
        found["code"] = max((wanted - got).total(), (got - wanted).total())
    return +found


def _text_faults(sections: Sequence[str], got: str) -> dict[str, int]:
    rest = got.lstrip()
    for section in sections:
        core = section.strip()
        if not rest.startswith(core):
            break
        rest = rest[len(core) :].lstrip()
    else:
        if not rest:
            return {}
    wanted, shown = _bare("".join(sections)), _bare(got)
    if wanted == shown:
        return {"white space": 1}
    at = 0
    for section in map(_bare, sections):  # all of it is there, in order: then nothing is lost
        at = shown.find(section, at)
        if at < 0:
            break
        at += len(section)
    else:
        return {"leak": len(shown) - len(wanted)}
    same = sum(block.size for block in SequenceMatcher(None, wanted, shown, autojunk=False).get_matching_blocks())
    return {"lost text": len(wanted) - same, "leak": len(shown) - same}


def _bare(text: str) -> str:
    return "".join(text.split())


def _call_faults(wanted: Sequence[WrittenCall], reported: Sequence[tuple[str, Any]]) -> dict[str, int]:
    written = [(call.name, _canonical(call.arguments)) for call in wanted]
    got: list[tuple[str, str]] = []
    for name, arguments in reported:
        value = _object(arguments, empty=(name, "{}") in written)
        if value is not None:  # what cannot be read is never executed, so it is no call
            got.append((name, _canonical(value)))
    blocks = SequenceMatcher(None, written, got, autojunk=False).get_matching_blocks()
    missing, more = list(written), list(got)
    for at, there, size in reversed(blocks):
        del missing[at : at + size], more[there : there + size]
    names = (Counter(name for name, _ in missing) & Counter(name for name, _ in more)).total()
    return {"wrong arguments": names, "lost call": len(missing) - names, "false call": len(more) - names}


def _object(arguments: Any, *, empty: bool) -> dict[str, Any] | None:
    """Return the arguments; of none at all an empty object, if one was written: else they may not have come yet."""
    if arguments is None or arguments == "":
        return {} if empty else None
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return None
    return arguments if isinstance(arguments, dict) else None


def _canonical(value: Any) -> str:
    """Return JSON in which 1.0 is 1, as most languages have it."""
    return json.dumps(_plain(value), sort_keys=True)


def _plain(value: Any) -> Any:
    match value:
        case dict():
            return {key: _plain(each) for key, each in value.items()}
        case list():
            return [_plain(each) for each in value]
        case float() if value.is_integer():
            return int(value)
    return value
