"""The machine: any source events give one run in order, with one truthful end and paired calls.

A body consists of records, a letter and a text each, separated by a control character. They are easy to mutate.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from streamtools import coalesce
from streamtools import events as kinds
from streamtools.calls import ToolChoice
from streamtools.errors import Code
from streamtools.limits import DEFAULT_LIMITS, Limits
from streamtools.outputs import validate
from streamtools.sources import adapter
from streamtools.testing.laws import cut
from tests.fuzz.target import Input, Target, encode, seeds
from tests.fuzz.targets.dialects import CHOICES as READING
from tests.machine.test_machine_laws import NO_CHOICE, REASONS, assert_truthful, run
from tests.support.provider_streams import PROVIDERS
from tests.support.strategies import enabled

_RECORD, _FIELD = "\x1e", "\x1f"

CHOICES: dict[str, Sequence[Any]] = {
    "execute": ("completed", "eager", "never"),
    "native_tool_calls": (None, True, False),
    "self_contained": (False, True),
    "tool_choice": (NO_CHOICE, ToolChoice("tool", "f")),
    "call_deltas": READING["call_deltas"],
    "on_malformed": READING["on_malformed"],
    "after_call": READING["after_call"],
    "reasoning": READING["reasoning"],
    "limits": (*READING["limits"], Limits(text=5), Limits(call=60, calls=2, text=50)),
}
_HOW: dict[str, Sequence[Any]] = {"cancel": (False, False, True), "idle": (False, True)}
_REASONS: dict[str, Any] = {each: each for each in REASONS if each}
_IDS = ("hash_marker", "tilde_fence")


def _native(key: str, name: str, arguments: str, *rest: str) -> kinds.SourceEvent:
    given: Any = arguments
    if arguments.startswith("="):
        try:
            given = json.loads(arguments[1:])
        except (ValueError, RecursionError):
            given = None
    flags = "".join(rest)
    return kinds.NativeToolCall(
        name or None,
        given,
        key,
        "x" if "x" in flags else None,
        provider_executed="p" in flags,
        answerable="n" not in flags,
    )


def _end(reason: str, text: str = "", calls: str = "", *rest: str) -> kinds.SourceEvent:
    return kinds.ProviderCompleted(
        text=text or None,
        tool_calls=[kinds.NativeToolCall(calls, "{}", "0", None)] if calls else None,
        finish_reason=_REASONS.get(reason),
        usage=kinds.Usage(input=1) if rest else None,
        ends_run=not rest,
    )


_READERS: dict[str, tuple[int, Callable[..., kinds.SourceEvent]]] = {
    "t": (1, lambda text, *_: kinds.TextDelta(text)),
    "r": (1, lambda text, *_: kinds.ReasoningDelta(text)),
    "s": (3, lambda key, id, name, *_: kinds.ToolCallStart(key, id or None, name or None)),
    "d": (2, lambda key, text, *_: kinds.ToolCallDelta(key, text)),
    "n": (3, _native),
    "e": (1, _end),
    "c": (1, lambda id, *_: kinds.ChainCompleted(id or None)),
    "x": (1, lambda text, *_: kinds.SourceError(text, Code.STREAM_INTERRUPTED if "i" in text else Code.UPSTREAM_ERROR)),
    "w": (1, lambda text, *_: kinds.SourceWarning(Code.SKIPPED if "s" in text else Code.BAD_FRAME, text)),
    "u": (1, lambda text, *_: kinds.SourceUsage(kinds.Usage(input=len(text)))),
    "j": (1, lambda text, *_: kinds.SourceRaw({"odd": text})),
}
"""The letters of records: how many fields each has at least, and what it makes of them."""


def read(text: str) -> list[kinds.SourceEvent]:
    """Return the source events of a body. An invalid record is text, and a record in braces is an event as JSON."""
    events: list[kinds.SourceEvent] = []
    for record in text.split(_RECORD):
        if record.startswith("{"):
            try:
                events.append(kinds.read_source_event(record))
            except (ValueError, RecursionError):
                events.append(kinds.TextDelta(record))
        elif record:
            least, make = _READERS.get(record[0], (1, lambda *fields: kinds.TextDelta(_FIELD.join(fields))))
            fields = record[1:].split(_FIELD)
            events.append(make(*fields, *[""] * (least - len(fields))))
    return events


def check(given: Input) -> Iterator[object]:
    """Check the laws for one run."""
    source = read(given.text)
    options = given.choose_all(CHOICES) | {"dialects": enabled(_IDS)}
    cancel, idle = given.choose(9, _HOW["cancel"]), given.choose(10, _HOW["idle"])
    events = run(source, cancel=cancel, idle=idle, **options)
    validate(events)
    for event in events:
        assert type(event) is type(kinds.read_ui_event(event.to_json()))
    if not cancel and options["tool_choice"] == NO_CHOICE and options["after_call"] == "show":
        assert_truthful(source, events)
    calm = idle or options["execute"] == "eager"  # what runs beside the stream runs beside other deltas
    whole = coalesce(run(source, cancel=cancel, idle=calm, **options))
    for cuts in (given.places(200), range(200)):
        pieces = [piece for event in source for piece in _cut(event, list(cuts))]
        assert whole == coalesce(run(pieces, cancel=cancel, idle=calm, **options)), f"cut at {cuts}"
    yield from _outcome(events, options)


def _cut(event: kinds.SourceEvent, places: list[int]) -> Iterator[kinds.SourceEvent]:
    """Yield the pieces of a text delta. Other events are unchanged."""
    if isinstance(event, kinds.TextDelta) and event.text:
        yield from (replace(event, text=piece) for piece in cut(event.text, places))
    else:
        yield event


def _outcome(events: list[kinds.UIEvent], options: dict[str, Any]) -> Iterator[object]:
    policy = *(options[name] for name in ("execute", "native_tool_calls", "after_call")), options["tool_choice"].mode
    for one, other in itertools.pairwise(events):
        yield type(one), getattr(one, "code", 0), type(other), getattr(other, "code", 0)
        yield policy, type(other), getattr(other, "code", 0)
    done = events[-1]
    yield isinstance(done, kinds.Done) and (done.reason, done.finish_reason, min(len(done.pending), 3))


def _bodies() -> Iterator[str]:
    call, fenced = '###:{"name":"f","args":{"a":1}}', '~~~tool_call\n{"name":"g"}\n~~~\n'
    runs: list[list[str]] = [
        ["tHello ", "tworld", "estop"],
        [f"tA {call} b", "estop", "cu-1"],
        [f"t{fenced}", f"estop{_FIELD}{fenced}and more{_FIELD * 2}x", "tbye", "estop"],
        ["s0\x1fx\x1ff", 'd0\x1f{"a":', "d0\x1f1}", "n0\x1ff\x1f", "etool_calls"],
        ['n0\x1ff\x1f={"a":1}\x1fx', f"t{call}", "etool_calls", "c"],
        ["n0\x1ff\x1f{}\x1fp", "n1\x1fg\x1f[1]\x1fn", "elength"],
        ["rHm. ", "tHi", "u12", "wbad", "j1", "xno"],
        ["t###:", 't{"name":', "wskipped", 't"f"}', "eother"],
        [f"estop{_FIELD}All at once {call}", "c"],
        [f"t{call}", f"estop{_FIELD}{call}{_FIELD}f"],
        ["tA", "estop\x1f\x1f\x1fx", "tB", "xinterrupted"],
        ["econtent_filter"], ["eerror"], ["epause"], ["ecancelled"], [],
    ]  # fmt: skip
    yield from map(_RECORD.join, runs)
    for provider in PROVIDERS:
        reader = adapter(provider.adapter)
        yield _RECORD.join(event.to_json() for event in [*reader.feed(provider.body), *reader.close()])


def make() -> Target:
    """Return the target."""
    words = [_RECORD + letter for letter in _READERS] + [_FIELD, _RECORD, "\x1e{"]
    words += [
        *('###:{"name":"f"}', "~~~tool_call\n", '{"name":"g"}', "\n~~~", "###:{", '"name":"f"', "<think>"),
        "</think>",
    ]
    words += [f"\x1ee{reason}" for reason in _REASONS] + ["n0\x1ff\x1f{}", '={"a":1}', "s0\x1fx\x1ff", "d0\x1f{"]
    words += ["}", '"', "\n\n", "###result f: {}", "~~~tool_result f\n", " "]
    return Target("machine", check, lambda: list(seeds(_bodies(), CHOICES | _HOW)), [encode(word) for word in words])


assert len(CHOICES) == 9, "the places of `_HOW` follow"
assert DEFAULT_LIMITS in CHOICES["limits"]
