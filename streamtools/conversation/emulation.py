"""Emulates tool calls for a model that makes none, with up to three requests for each turn.

1. The *normal request* offers the tools. If its answer contains a call, or an error other than a refusal of tools, this
   answer is the turn. The mode `"force"` omits the normal request.
2. The *decision request* asks the model which tools it needs. If the model names offered tools, their calls are the
   turn. An error, or the lack of a required call, ends the run. If the tool choice forbids calls, this request is
   omitted.
3. The *final request* offers no tools. Its answer is the turn.

The state machine of the run reads only the turn. The other answers are not shown, but their usage is reported.

The decision request instructs the model to answer with one JSON object. Models also write this object in a code fence,
after a sentence, between markers or as a JSON string. Some first write a decision and then correct it. Therefore every
JSON value in the answer is read, and the last decision is used. Text that is not JSON is ignored.

A model may also quote text that looks like a decision. Therefore the decision request neutralizes tool results, tool
descriptions and earlier calls. `neutralize_quotations` selects the earlier turns whose text is also neutralized. A
quotation of neutralized text is not read as a decision.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

from msgspec.structs import replace

from streamtools import events
from streamtools.calls import EMULATED as ID_PREFIX
from streamtools.calls import NAME_FIELDS, read_envelope, unwrap
from streamtools.conversation.models.model import AUTO, Ask, Model
from streamtools.conversation.reply import Replies, Reply, Write, paired
from streamtools.errors import Code
from streamtools.history import System, calls_as_text
from streamtools.history.calls_in_text import neutralize_quotations
from streamtools.json_values import Rejected, compact, decode_json
from streamtools.machine.state_machine import StreamMachine
from streamtools.parsing import parse
from streamtools.parsing.dialects import Dialect
from streamtools.parsing.dialects.neutralizing import neutralize_all, restore
from streamtools.parsing.dialects.writing import write_json
from streamtools.tools import Tool, ToolChoice

MAX_LENGTH = 256 * 1024
"""The number of characters of an answer that are read. Later characters are ignored."""
_MAX_FAILURES = 256  # after this many brackets that begin no valid JSON value, the rest is ignored

_begins = re.compile(r"[{\[]")
_decoder = json.JSONDecoder(strict=False)

_DECISIONS = Dialect(
    id="decisions",
    openers=(),
    write_call=write_json,
    # A key of a decision such as `"tool`, or a key with an escape such as `"to\u006fl`.
    reserved_patterns=(('"', r"(?:name|tool|function)|[A-Za-z_]{0,8}\\+u"),),
)
"""A dialect that reserves the keys of decisions. `neutralize` changes them, so that no decision is read."""

_FORM = '{"tools":[{"tool":"NAME","arguments":{}}]}'
_NO_TOOLS = '{"tools":[]}'


class DecidedCall(NamedTuple):
    """One call in a decision. `arguments` is the value that the model wrote, before validation."""

    name: str
    arguments: Any


class ModelDecision(NamedTuple):
    """The calls in the last decision of an answer.

    `readable` is False if the answer contains no decision. Then there are no calls. `differs` is True if the answer
    contains another decision that is not equal to the last one.
    """

    calls: list[DecidedCall]
    readable: bool
    differs: bool = False


# The decision request offers no native tools. Providers refuse native calls in the history of a request without tools,
# so calls and results become plain text. The results are kept: without them, the model would call the tools again. The
# model's default options are unknown here. So each unwanted option gets the value None, which removes it from the body.


def write_question(tools: Sequence[Tool], choice: ToolChoice) -> str:
    """Return the system prompt of a decision request."""
    defined = [{"name": tool.name, "description": tool.description, "parameters": tool.parameters} for tool in tools]
    described = neutralize_all(defined, [_DECISIONS])
    lines = [
        "You decide whether tools have to be called before the conversation below can be answered.",
        "Ask for a tool only where the answer needs information or an action that the conversation does not hold yet.",
        f"Reply with one JSON object and nothing else, no prose and no code fence: {_FORM}",
        f"If no tool is needed, reply {_NO_TOOLS}",
        "`tool` is the name of one of these tools, `arguments` an object that fits its parameters.",
        "These rules come before anything that the conversation says about tools or formats.",
        f"Tools: {compact(described)}",
    ]
    if choice.mode == "required":
        lines.append("At least one tool has to be called.")
    elif choice.mode == "tool":
        lines.append(f"Exactly one tool has to be called, once: {json.dumps(choice.name)}.")
    return "\n".join(lines)


_TOOL_OPTIONS = (
    "tools", "tool_choice", "toolConfig", "tool_config", "parallel_tool_calls", "functions", "function_call",
)  # fmt: skip
_ANSWER_OPTIONS = (
    "stop", "stop_sequences", "stopSequences", "max_tokens", "max_completion_tokens", "max_output_tokens",
    "maxOutputTokens", "num_predict", "response_format", "format", "text", "responseMimeType", "responseSchema",
)  # fmt: skip
"""Options that would cut off a decision or change its format, in the spellings of all providers."""
_NESTING = ("options", "generationConfig")  # the objects in which Ollama and Gemini expect options


def ask_for_decision(ask: Ask, _model: Model) -> Ask:
    """Return the decision request for `ask`, a request that offers all tools.

    The application's system prompt, and the tool and answer options of `ask`, are left out.
    """
    question = write_question(ask.tools, ask.tool_choice)
    history = neutralize_quotations(paired(ask), [_DECISIONS])
    history = calls_as_text(history, reserved=[_DECISIONS])
    return Ask(
        history=(System(question), *(message for message in history if not isinstance(message, System))),
        options=without(ask.options, _TOOL_OPTIONS + _ANSWER_OPTIONS),
        dialects=(*ask.dialects, _DECISIONS),
        hide=ask.hide,
    )


def ask_without_tools(ask: Ask, _model: Model) -> Ask:
    """Return `ask` without tools. Calls and results in its history become text."""
    history = tuple(calls_as_text(paired(ask), reserved=ask.dialects))
    options = without(ask.options, _TOOL_OPTIONS)
    return dataclasses.replace(ask, history=history, tools=(), tool_choice=AUTO, options=options)


def without(options: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """Return `options` with the value None for each of `names`. None also removes the model's defaults.

    Nested options with these names are also None.

    >>> without({"options": {"stop": "b", "seed": 1}}, ("stop",))
    {'options': {'stop': None, 'seed': 1}, 'stop': None}
    """
    removed = dict.fromkeys(names)
    nested = {name: options[name] for name in _NESTING if isinstance(options.get(name), Mapping)}
    return {**options, **{name: {**value, **removed} for name, value in nested.items()}, **removed}


# Statuses with another cause than missing support for tools.
_UNRELATED_STATUSES = (401, 402, 403, 408, 409, 429)
# "tools", "tool_choice", "tool calling", "function calls"
_TOOLS = r"\b(?:tool(?:s|[ _-]?(?:use|call|calls|calling|choice))?|function(?:s|[ _-]?(?:call|calls|calling))?)\b"
_refusal = re.compile(
    rf"{_TOOLS}[^.\n]{{0,60}}(?:\bnot|n't|\bun)[ -]?(?:\w+ ){{0,2}}(?:support|available|enabled)"  # "tools are not …"
    rf"|(?:\b(?:not|no)\b|n't|\bun(?=support))[^.\n]{{0,60}}support[^.\n]{{0,60}}{_TOOLS}"  # "does not support tools"
    rf"|{_TOOLS}[^.\n]{{0,20}} requires? --",  # the name of a server's command-line option
    re.IGNORECASE,
)


def refuses_tools(error: events.SourceError) -> bool:
    """Return whether a provider reports that its model or server does not support tools.

    >>> refuses_tools(events.SourceError("registry.ollama.ai/library/phi3:latest does not support tools", status=400))
    True
    """
    if error.status in _UNRELATED_STATUSES or "schema" in error.message.lower():
        return False
    return _refusal.search(error.message) is not None


# Read the answer.


def read_decision(answer: str) -> ModelDecision:
    """Return the last decision in the text of an answer."""
    text = parse(answer[:MAX_LENGTH], dialects=(), reasoning="anywhere").content.strip()
    decisions = [calls for value in _values(text) if (calls := _read_calls(value)) is not None]
    if not decisions:
        return ModelDecision([], False)
    last = decisions[-1]
    calls = [call._replace(arguments=restore(call.arguments, [_DECISIONS])) for call in last]
    return ModelDecision(calls, True, any(other != last for other in decisions))


def _values(text: str) -> Iterator[Any]:
    """Yield the outermost JSON objects and arrays in `text`.

    If `text` is a JSON string, its content is searched instead. Values that `decode_json` rejects, such as an object
    with a duplicate key, are skipped.
    """
    with contextlib.suppress(ValueError, RecursionError):
        whole = json.loads(text, strict=False)
        text = whole if isinstance(whole, str) else text
    end = failures = 0
    while failures < _MAX_FAILURES and (found := _begins.search(text, end)):
        begin = found.start()
        try:
            end = _decoder.raw_decode(text, begin)[1]
        except (ValueError, RecursionError):
            end, failures = begin + 1, failures + 1
            continue
        with contextlib.suppress(Rejected):
            yield decode_json(text[begin:end]).value


def _read_calls(value: Any) -> list[DecidedCall] | None:
    """Return the calls in the decision `value`. Returns None if `value` is not a decision."""
    if isinstance(value, dict) and "tools" in value:  # the requested form
        value = [] if value["tools"] is None else value["tools"]
        if not isinstance(value, list):
            return None
    listed = value if isinstance(value, list) else [value]  # the list of calls, or a single call
    calls = [call for item in listed if (call := _read_call(item)) is not None]
    return [call for call in calls if call.name] if calls or not listed else None


def _read_call(value: Any) -> DecidedCall | None:
    """Parse `value` as a call. Returns None if it is not one; a call without a name means "no tool needed"."""
    try:
        written = unwrap(value)
        if len(written.arguments) > 1:
            read_envelope(value)  # raises Rejected if the arguments differ
    except Rejected as fault:
        names = [value[key] for key in NAME_FIELDS if key in value] if fault.code is Code.MISSING_TOOL_NAME else []
        names_no_tool = names and all(name is None or (isinstance(name, str) and not name.strip()) for name in names)
        return DecidedCall("", None) if names_no_tool else None
    return DecidedCall(written.name.strip(), next(iter(written.arguments), None))


# The three requests of a turn.

Emulation: TypeAlias = Literal["off", "fallback", "force"]
"""When the decision request is sent. `"off"`: never. `"fallback"`: if the normal answer contains no call. `"force"`:
always, without a normal request. If the tool choice forbids calls, it is never sent.
"""


EMULATED = "tool calls emulated"
UNKNOWN = "unknown tool calls dropped"
NOT_EMULATED = "there are no function tools, and calls of other tools are not emulated"
DIFFERENT = "the answer has different decisions; the last one counts, without calls that must be approved or trusted"
UNREADABLE = "the decision about tools is unreadable; no tool is called"


@dataclass(eq=False, repr=False)
class EmulatedReply(Replies):
    """A source of the events of one turn. It sends up to three requests.

    `normal` is the normal request, which `write` adapts to the model. `write` may teach a dialect and omit the tools.
    If it is None, this request is omitted. `ask` offers all tools and teaches no dialect. The other two requests are
    made from `ask`. `probe` creates a state machine with the same parser options as the machine of the run. `think` is
    called with True when the decision request begins, and with False when it ends.
    """

    model: Model
    normal: Ask
    write: Write | None
    ask: Ask
    probe: Callable[[], StreamMachine]
    think: Callable[[bool], None]

    def __post_init__(self) -> None:
        self._batches = self._run()
        self._hidden_usage: events.Usage | None = None  # usage of answers that are not shown, until it is reported

    async def _run(self) -> AsyncGenerator[Sequence[events.SourceEvent]]:
        """Send the requests in order, and yield the batches of the turn."""
        ask = self.ask
        if self.write is not None:
            self._reply = reply = Reply(self.model, self.normal, self.write)
            beginning = await self._read_until_call(reply)
            if beginning is not None:
                yield beginning
                async for batch in reply:
                    yield batch
                return
            await reply.aclose()
        yield [events.ReasoningDelta("")]  # begins the turn without visible output
        warnings: list[events.SourceEvent] = []
        if ask.tool_choice.mode != "none":
            self.think(True)
            try:
                decision, usage = await self._ask_for_decision()
            finally:
                self.think(False)
            if usage is not None:
                self._hidden_usage = usage + self._hidden_usage
            if isinstance(decision, events.SourceError):
                yield [*self._usage_events(), decision]
                return
            # Maps each tool name to whether its calls may run if the answer contains different decisions.
            safe = {tool.name: not tool.requires_approval and tool.trust == "text" for tool in ask.tools}
            calls = [call for call in decision.calls if call.name in safe]
            warnings.append(events.SourceWarning(Code.EMULATED, EMULATED))
            if len(calls) < len(decision.calls):
                warnings.append(events.SourceWarning(Code.UNKNOWN_DROPPED, UNKNOWN))
            if decision.differs:
                warnings.append(events.SourceWarning(Code.DECISIONS_DIFFER, DIFFERENT))
                calls = [call for call in calls if safe[call.name]]
            if not decision.readable:
                warnings.append(events.SourceWarning(Code.DECISION_UNREADABLE, UNREADABLE))
            if calls or ask.tool_choice.mode != "auto":
                # If the tool choice requires a call and there is none, the state machine reports the violation.
                prefix = f"{ID_PREFIX}{time.time_ns()}_"
                native = [
                    events.NativeToolCall(call.name, call.arguments, f"emulated {at}", f"{prefix}{at}", emulated=True)
                    for at, call in enumerate(calls)
                ]
                reason: events.FinishReason = "tool_calls" if native else "stop"
                yield [*warnings, *native, events.ProviderCompleted(finish_reason=reason, usage=self._hidden_usage)]
                return
        self._reply = reply = Reply(self.model, ask, ask_without_tools)
        yield [*warnings, *self._usage_events()]
        async for batch in reply:
            yield [self._with_hidden_usage(event) for event in batch]

    async def _read_until_call(self, reply: Reply) -> list[events.SourceEvent] | None:
        """Read the normal answer until it contains a call or an error, and return the events up to that point.

        If the tool choice forbids calls, the first text ends the reading. Returns None if the complete answer lacks a
        call, or if the provider refuses tools. Without tools to emulate, reads no event.
        """
        if not self.ask.tools:
            has_other_tools = bool(self.model.body(dataclasses.replace(self.ask, history=())).get("tools"))
            return [events.SourceWarning(Code.NOT_EMULATED, NOT_EMULATED)] if has_other_tools else []
        machine = self.probe()
        buffered: list[events.SourceEvent] = []
        needs_no_call = self.ask.tool_choice.mode == "none"
        async for batch in reply:
            buffered += batch
            for event in batch:
                if isinstance(event, events.SourceError):
                    return None if reply.offers_tools and refuses_tools(event) else buffered
                is_answer = needs_no_call and isinstance(event, events.TextDelta)
                if is_answer or any(map(_shows_call_or_error, machine.feed(event))):
                    return buffered
        if needs_no_call or any(map(_shows_call_or_error, machine.close())):
            return buffered
        self._hidden_usage = machine.usage
        return None

    async def _ask_for_decision(self) -> tuple[ModelDecision | events.SourceError, events.Usage | None]:
        """Send the decision request. Returns the decision or the error that ends the run, and the request's usage."""
        self._reply = reply = Reply(self.model, self.ask, ask_for_decision)
        machine = StreamMachine(dialects=(), execute="never", reasoning="off")
        read: list[events.UIEvent] = []
        async for batch in reply:
            for event in batch:
                if isinstance(event, events.SourceError):
                    machine.close()  # updates the usage
                    return event, machine.usage
                read += machine.feed(event)
        read += machine.close()
        await reply.aclose()
        fault = next((event for event in read if isinstance(event, events.Error) and event.call_id is None), None)
        if fault is not None:
            return events.SourceError(fault.message, fault.code), machine.usage
        end = read[-1]
        if isinstance(end, events.Done) and end.reason == "truncated":  # a call may be incomplete
            return ModelDecision([], False), machine.usage
        return read_decision("".join(event.text for event in read if isinstance(event, events.Text))), machine.usage

    # The usage of hidden answers is added to the usage of the answer that is shown.

    def _usage_events(self) -> list[events.SourceEvent]:
        return [] if self._hidden_usage is None else [events.SourceUsage(self._hidden_usage)]

    def _with_hidden_usage(self, event: events.SourceEvent) -> events.SourceEvent:
        if self._hidden_usage is None:
            return event
        if isinstance(event, events.SourceUsage):
            return events.SourceUsage(self._hidden_usage + event.usage)
        if isinstance(event, events.ProviderCompleted):
            # If the stream contains several turns, only the first one reports the hidden usage.
            hidden, self._hidden_usage = self._hidden_usage, None
            return replace(event, usage=hidden + event.usage) if event.usage is not None else event
        return event


def _shows_call_or_error(event: events.UIEvent) -> bool:
    return isinstance(event, events.Call | events.Error) or (isinstance(event, events.Thinking) and event.active)
