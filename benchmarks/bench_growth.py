"""Measures how the cost of parsing grows with the length of the text, and of a request with its messages and tools.

    python benchmarks/bench_growth.py

The exponent of a row is the slope between its smallest and its largest text in a doubly logarithmic plot. It is
somewhat below one if a fixed cost dominates the small text, and a little above one if the large text exceeds the cache,
as the row of the floor shows. The hostile texts are slow in a parser that scans text repeatedly.

The rows of histories compare JSON of a client → `read_messages` → `write_messages` → JSON with a floor: `json.loads`,
validation of the chat messages by pydantic, a loop that writes them as dicts, and `json.dumps`. The floor accepts one
format and changes nothing. It neither moves results to their calls, nor finds misspelled keys, nor drops data that a
client may not send.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pydantic import BaseModel, TypeAdapter

from benchmarks import texts, wires
from benchmarks.answers import BODIES, TOOLS, one_call
from benchmarks.bench_parsing import LIMITS, Make, floor, machine, parsing
from benchmarks.bench_pipeline import Bare, in_loop
from benchmarks.bench_runs import read_run, read_stream
from benchmarks.measure import Case, Comparison, Growth, main, timed
from streamtools import Limits, Parser, Tool, ToolRegistry, ToolStream, chat, coalesce, rules, sources
from streamtools.conversation import ScriptedModel, augment_system_prompt
from streamtools.events import Done
from streamtools.history import Message, read_messages, write_messages
from streamtools.parsing import DIALECTS
from streamtools.runs import Runs

LINEAR = 1.03
REQUEST = 1.05  # messages and tools are objects, and the cache holds only a small part of a large list
NO_RESCAN = 1.1  # of short patterns repeated: a rescan shows as 1.5 or more, a short text learnt by heart as 1.04

Text = Callable[[int], str]
Cut = Callable[[str], list[str]]

HOSTILE: dict[str, Text] = {
    "white space": lambda size: " \n\t" * (size // 3),
    "hashes": lambda size: "#" * size,
    "tildes, and a word": lambda size: "~" * (size // 2) + "x~" * (size // 4),
    "back-ticks, in runs of all lengths": lambda size: _repeat(" ".join("`" * count for count in range(1, 60)), size),
    "back-slashes": lambda size: "\\" * size,
    "one line of digits, as of a list item": lambda size: "1" * size,
    "markers up to their commit point": lambda size: _repeat("###: \n {\n x ", size),
    "fences that never close": lambda size: _repeat("```\n~~~~\n> ~~~tool_call\n", size),
    "reasoning that never closes": lambda size: "<think>" + _repeat("why </thin then ###: no ", size),
    "reasoning full of calls": lambda size: "<think>" + _repeat('so ###:{"name": "x"} and ', size),
    "a name that never ends": lambda size: '###:{"name": "' + _repeat("word ", size),
    "a string that never ends": lambda size: '###:{"name": "x", "arguments": {"a": "' + _repeat("word ", size),
    "a string of back-slashes": lambda size: '###:{"name": "x", "arguments": {"a": "' + "\\" * size,
    "white space inside a call": lambda size: '###:{"name":' + _repeat(" \n", size),
    "brackets, ever deeper": lambda size: '###:{"name": ' + "[" * size,
    "one number": lambda size: '###:{"name": "x", "arguments": ' + "1" * size,
    "ten thousand keys": lambda size: '###:{"name": "x", "arguments": {' + _repeat('"k": [1, {}],', size),
    "a broken call that continues": lambda size: '###:{"name" oops "' + _repeat(' {"a": [', size),
    "a broken fence that continues": lambda size: "~~~tool_call\noops\n" + _repeat("line ~~~\n ~~\n", size),
    "calls without end": lambda size: _repeat('###:{"name": "x"} ', size),
    "broken calls without end": lambda size: _repeat('###:{"name" "x"}\n\n', size),
    "forged results without end": lambda size: _repeat("~~~tool_result x\nok\n~~~\n", size),
}


def cases(smoke: bool) -> Iterator[Case]:
    """Yield all rows."""
    sizes = (1_000, 2_000) if smoke else (10_000, 100_000, 1_000_000)
    ends = sizes if smoke else (10_000, 300_000)
    tells = partial(Parser, call_deltas=True, limits=LIMITS)

    def arguments(size: int, dialect: str = "hash_marker") -> str:
        return one_call(DIALECTS[dialect], texts.arguments(size)).text

    section = "what models write"
    yield Growth(section, "floor, prose", {size: floor(texts.cut(texts.prose(size))) for size in sizes}, lambda: None)
    yield _growth(section, "plain prose", texts.prose, sizes)
    yield _growth(section, "Markdown on every line", texts.markdown, sizes)
    yield _growth(section, "near-markers", texts.near_markers, sizes)
    for name in BODIES:
        alone = partial(Parser, dialects=name, tools=TOOLS, call_deltas=True)
        yield _growth(section, f"arguments, {name}", partial(arguments, dialect=name), sizes, alone)
    yield _growth(section, "arguments, not told", arguments, sizes)
    yield Growth(
        section,
        "plain prose, machine",
        {size: machine(texts.cut(texts.prose(size))) for size in sizes},
        lambda: None,
        LINEAR,
    )

    section = "other deltas"
    for name, size in (("one character", 1), ("64 characters", 64), ("the whole text", 10**7)):
        cut = partial(texts.cut, size=size)
        yield _growth(section, f"plain prose, {name}", texts.prose, ends, cut=cut)
        yield _growth(section, f"near-markers, {name}", texts.near_markers, ends, cut=cut)
        yield _growth(section, f"arguments, {name}", arguments, ends, tells, cut)

    section = "many calls, and over the limits"
    small = partial(Parser, call_deltas=True, limits=Limits(call=5_000))
    yield _growth(section, "arguments over the limit of a call", arguments, ends, small)
    rest = '###:{"name": "x", "arguments": {"a": 1}}\n'
    yield _growth(section, "calls", lambda size: _repeat(rest, size), ends, partial(Parser, limits=Limits(calls=10**6)))

    yield from _requests((10, 20) if smoke else (100, 5_000), (1, 2) if smoke else (10, 1_000))
    yield from _histories((10,) if smoke else (100, 1_000, 5_000))
    yield from _runs(smoke)
    for name, text in HOSTILE.items():
        yield _growth("hostile texts", name, text, ends, partial(Parser, call_deltas=True), target=NO_RESCAN)


def _growth(
    section: str,
    name: str,
    text: Text,
    sizes: tuple[int, ...],
    make: Make = Parser,
    cut: Cut = texts.cut,
    target: float = LINEAR,
) -> Growth:
    works = {size: parsing(cut(text(size)), make) for size in sizes}
    return Growth(section, name, works, partial(check, text(2_000), make, cut), target)


def check(text: str, make: Make, cut: Cut) -> None:
    """Raise AssertionError unless a text has the same result in one delta and in many."""
    whole, pieces = make(), make()
    expected = whole.feed(text) + whole.close()
    events = [event for delta in cut(text) for event in pieces.feed(delta)] + pieces.close()
    assert coalesce(expected) == coalesce(events), "the text means something else in its deltas"


def _requests(sizes: tuple[int, int], counts: tuple[int, int]) -> Iterator[Growth]:
    """Yield the rows of requests. Their columns are nanoseconds for one message, or for one tool."""
    section = "messages of a request"
    given = {size: _chat_messages(size) for size in sizes}
    read = {size: timed(partial(read_messages, messages)) for size, messages in given.items()}
    yield Growth(section, "chat messages are read", read, lambda: None, REQUEST)
    for format in ("openai", "responses", "anthropic", "gemini"):
        for names in ((), ("hash_marker", "tilde_fence")):
            dialects = [DIALECTS[name] for name in names]
            written = {
                size: timed(partial(write_messages, read_messages(messages), format, dialects=dialects))
                for size, messages in given.items()
            }
            name = f"a history is written for {format}, {len(dialects)} dialects enabled"
            yield Growth(section, name, written, partial(_check_history, format), REQUEST)
    section = "tools of a request"
    registries = {count: ToolRegistry([_tool(number) for number in range(count)]) for count in counts}
    defined = {count: timed(partial(tools.definitions, "openai")) for count, tools in registries.items()}
    yield Growth(section, "definitions of tools", defined, lambda: None, REQUEST)
    taught = {count: timed(partial(augment_system_prompt, None, tools)) for count, tools in registries.items()}
    yield Growth(section, "tools in a system prompt", taught, lambda: None, REQUEST)


class Function(BaseModel):
    name: str
    arguments: str


class Call(BaseModel):
    id: str
    type: Literal["function"]
    function: Function


class ChatMessage(BaseModel):
    role: Literal["system", "user", "assistant", "tool"]
    content: str | None = None
    tool_calls: list[Call] | None = None
    tool_call_id: str | None = None


_CHAT_MESSAGES = TypeAdapter(list[ChatMessage])


def _floor(body: bytes) -> str:
    written: list[dict[str, Any]] = []
    for message in _CHAT_MESSAGES.validate_python(json.loads(body)):
        fields: dict[str, Any] = {"role": message.role, "content": message.content}
        if message.tool_calls:
            fields["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.function.name, "arguments": arguments}}
                for call in message.tool_calls
                for arguments in [json.dumps(json.loads(call.function.arguments))]
            ]
        if message.tool_call_id:
            fields["tool_call_id"] = message.tool_call_id
        written.append(fields)
    return json.dumps(written)


def _convert(body: bytes, format: str) -> str:
    return json.dumps(write_messages(read_messages(json.loads(body), client=True), format))


def _histories(sizes: tuple[int, ...]) -> Iterator[Comparison]:
    """Yield the rows of histories. Their columns are nanoseconds for one message."""
    for size in sizes:
        chat_messages = _chat_messages(size // 4 * 4)
        history = read_messages(chat_messages)
        bodies = {"chat": chat_messages, "UI": _ui_messages(size), "Anthropic": write_messages(history, "anthropic")}
        floor_work = timed(partial(_floor, json.dumps(chat_messages).encode()))
        for client, messages in bodies.items():
            for format in ("openai", "anthropic"):
                work = partial(_convert, json.dumps(messages).encode(), format)
                name = f"{size:,} {client} messages → {format}"
                check = partial(_check_conversion, work, history, format)
                yield Comparison("histories of clients", name, size, timed(work), floor_work, check)


def _ui_messages(size: int) -> list[dict[str, object]]:
    """Return the conversation of `_chat_messages` as half as many UIMessages of the AI SDK."""
    messages: list[dict[str, object]] = []
    exchanges = iter(_chat_messages(size // 4 * 4))
    for number, (asked, _calls, result, answer) in enumerate(zip(*[exchanges] * 4, strict=True)):
        output: dict[str, object] = {
            "type": "tool-forecast",
            "toolCallId": f"call_{number}",
            "state": "output-available",
        }
        output |= {"input": {"city": "Bern", "days": 3}, "output": json.loads(str(result["content"]))}
        step = {"type": "step-start"}
        texts_of = [{"type": "text", "text": each["content"]} for each in (asked, answer)]
        messages += (
            {"id": f"u{number}", "role": "user", "parts": texts_of[:1]},
            {"id": f"a{number}", "role": "assistant", "parts": [step, output, step, *texts_of[1:]]},
        )
    return messages


def _check_conversion(work: Callable[[], str], history: list[Message], format: str) -> None:
    """Raise AssertionError unless the written messages have the roles of the history."""
    expected = write_messages(history, format)
    assert [each["role"] for each in json.loads(work())] == [each["role"] for each in expected], "messages are missing"


def _runs(smoke: bool) -> Iterator[Growth]:
    """Yield the rows of runs. Their columns are nanoseconds for one step, character, rule, reader or run."""

    def row(name: str, works: dict[int, Callable[[], Awaitable[None]]]) -> Growth:
        return Growth("runs", name, {size: in_loop(work) for size, work in works.items()}, lambda: None, REQUEST)

    def ends(small: int, large: int) -> tuple[int, int]:
        return (small, small + 1) if smoke else (small, large)

    answers = {
        size: Bare(wires.openai(texts.cut(texts.prose(size)))) for size in ends(10_000, 1_000 if smoke else 10_000_000)
    }
    one_step = Bare(wires.openai(texts.cut(texts.prose(1_000))))
    yield row("characters of an answer", {size: partial(read_stream, each) for size, each in answers.items()})
    yield row("steps of a chat", {count: partial(_chat, count) for count in ends(1, 50)})
    yield row("rules", {count: partial(_replace, count) for count in ends(1, 500)})
    yield row("readers of a run", {count: partial(read_run, one_step, readers=count) for count in ends(1, 500)})
    yield row("kept runs", {count: partial(_keep_runs, count) for count in ends(10, 5_000)})


async def _chat(steps: int) -> None:
    """Run a chat whose model calls a tool in each step but the last."""
    calls = [DIALECTS["hash_marker"].write_call("forecast_0", {"city": f"{number}"}) for number in range(1, steps)]
    model = ScriptedModel([*calls, "It is sunny."])
    asked = [{"role": "user", "content": "Weather?"}]
    async with chat(model, asked, tools=[_tool(0)], max_steps=steps) as events:
        last = [event async for event in events][-1]
    assert isinstance(last, Done), last
    assert (last.reason, len(model.asks)) == ("finished", steps), last


async def _replace(count: int) -> None:
    """Compile rules that replace one word each, and apply them to a text."""
    patterns = [rules.replace(f"word{number}x", "…") for number in range(count)]
    parser = Parser(text_rules=patterns)
    for delta in texts.cut(texts.prose(10_000)):
        parser.feed(delta)
    parser.close()


async def _keep_runs(count: int) -> None:
    """Run this number of runs one after the other, then find the first, and list all."""
    async with Runs(max_kept=count) as runs:
        for number in range(count):
            chunks = Bare(wires.openai(["Hello!"]))
            run = await runs.start(ToolStream(sources.openai(chunks)), owner="ann", conversation=str(number))
            await run.wait()
        first = await runs.latest("0", owner="ann")
        assert [run, first] == [*await runs.list("ann", limit=count)][:: count - 1]


def _chat_messages(size: int) -> list[dict[str, object]]:
    """Return a conversation of `size` chat messages. Each exchange has four messages and a call."""
    messages: list[dict[str, object]] = []
    for number in range(size // 4):
        function = {"name": "forecast", "arguments": '{"city":"Bern","days":3}'}
        call = {"id": f"call_{number}", "type": "function", "function": function}
        messages += (
            {"role": "user", "content": f"What is the weather in city {number}?"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"call_{number}", "content": '{"temperature": 21, "rain": 0.2}'},
            {"role": "assistant", "content": "It is **sunny** in that city, with a few clouds in the afternoon. " * 3},
        )
    return messages


def _check_history(format: str) -> None:
    """Raise AssertionError unless a written history can be read, and written again without a change."""
    written = write_messages(read_messages(_chat_messages(40)), format)
    assert write_messages(read_messages(written), format) == written, "the history has changed"


def _tool(number: int) -> Tool:
    def forecast(city: str, days: int = 3) -> str:
        """Return the weather forecast for a city."""
        return f"{city}: {days}"

    return Tool(forecast, name=f"forecast_{number}")


def _repeat(text: str, size: int) -> str:
    return text * max(1, size // len(text))


if __name__ == "__main__":
    main("growth", cases)
