"""What was said so far, in one form that every provider's can be written from.

A history is a list of messages: what the system, the user and the model said, and the results of its calls.
It holds what the model wrote, calls in its text included, and never the words that an interface puts in between.

Providers refuse a history in which a call has no answer, or in which something stands between the two. So `settle` puts
each answer behind its call, and answers those that nobody has run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any, Literal, TypeAlias, get_args

import msgspec

from streamtools.calls import NATIVE, ToolCall
from streamtools.errors import check_word
from streamtools.history.content import given
from streamtools.history.parts import (
    NOBODY,
    Assistant,
    CallResult,
    Message,
    Origin,
    Part,
    ProviderItem,
    Results,
    System,
    TextPart,
    Thought,
    User,
    fault_of,
)
from streamtools.json_values import compact, writable
from streamtools.limits import TOOL_NAME

NOT_RUN = "this call was not run"
"""What the model reads as the result of a call that nobody has run."""

NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")
"""Characters that providers take neither in a name nor in an id."""

Unanswered: TypeAlias = Literal["cancelled", "leave"] | None
"""What becomes of calls without an answer: they get one that says so, or stay as they are. None: they get one where the
history goes on after them; where it ends with them, who runs them puts the answers in.
"""


def fit(name: str) -> str:
    """Return a name as providers take it: at most 64 of `[A-Za-z0-9_-]`."""
    return NOT_IN_NAMES.sub("_", name)[:TOOL_NAME]


def system_prompt(history: Iterable[Message]) -> str:
    """Return what the system says, for providers that want it outside of the messages; "" if it says nothing."""
    return "\n\n".join(message.text for message in history if isinstance(message, System) and message.text)


def settle(history: Iterable[Message], unanswered: Unanswered = None) -> list[Message]:
    """Return the history with one `Results` behind each turn that has calls, which answers native ones in their order.

    What stood between a call and its answer follows them. Raises ValueError for the answer to a native call that the
    last turn before it does not hold, and for a second answer to one.
    """
    settled: list[Message] = []
    turn = _Turn(Assistant())
    for message in history:
        if isinstance(message, Assistant):
            settled += turn.end(unanswered, goes_on=True)
            turn = _Turn(message)
            settled.append(message)
        elif isinstance(message, Results):
            for result in message.results:
                turn.add(result)
        else:
            turn.later.append(message)
    settled += turn.end(unanswered, goes_on=False)
    return settled


class _Turn:
    """The answers to the calls of one turn, and what was said between them and the next."""

    def __init__(self, said: Assistant) -> None:
        self._native = {call.id: call for call in said.calls}
        self._in_text = said.in_text
        self._answers: dict[str, CallResult] = {}
        self._answers_in_text: dict[str, CallResult] = {}
        self.later: list[Message] = []

    def add(self, result: CallResult) -> None:
        if result.dialect != NATIVE:
            self._answers_in_text[result.call_id] = result
        elif result.call_id not in self._native:
            raise ValueError(f"a result answers call {result.call_id!r}, which the turn before it does not hold")
        elif result.call_id in self._answers:
            raise ValueError(f"call {result.call_id!r} is answered twice")
        else:
            name = self._native[result.call_id].name  # whatever the result says: Gemini and Ollama compare them
            self._answers[result.call_id] = result._replace(name=name)

    def end(self, unanswered: Unanswered, *, goes_on: bool) -> Iterator[Message]:
        for id, call in self._native.items() if unanswered != "leave" else ():
            if id not in self._answers and (fault := fault_of(call)):  # nobody can run it
                self._answers[id] = CallResult(NATIVE, call.name, fault, id, is_error=True)
        if unanswered == "cancelled" or (unanswered is None and (goes_on or self.later)):
            for calls, answers in ((self._native.values(), self._answers), (self._in_text, self._answers_in_text)):
                for call in calls:
                    answers.setdefault(call.id, CallResult(call.dialect, call.name, NOT_RUN, call.id, is_error=True))
        results = [self._answers[id] for id in self._native if id in self._answers]
        if results or self._answers_in_text:
            yield Results((*results, *self._answers_in_text.values()))
        yield from self.later


# What is for one provider alone.

_STRICT = {"api.openai.com": (), ".openai.azure.com": (), "api.mistral.ai": ("content",)}
"""Hosts that refuse members which are not their own, and the fields of reasoning that they send. Those that send none,
OpenAI's, read malformed arguments back; servers that render a template with them, such as vLLM, answer 400.
"""


def sent_by(host: str | None) -> tuple[str, ...] | None:
    """Return the fields of reasoning that this host alone sends, and takes; None if it may be any."""
    return next((names for end, names in _STRICT.items() if (host or "").endswith(end)), None)


def for_provider(history: Iterable[Message], provider: Origin) -> list[Message]:
    """Return the history as this provider may see it.

    What another provider has put into a turn stays out of it: provider items, what stood beside its texts and calls,
    signatures, hidden reasoning. A provider is another if its format is, or its host where both are known.
    """
    return [_for_provider(message, provider) for message in history]


def _for_provider(message: Message, provider: Origin) -> Message:
    if isinstance(message, Assistant):
        same = message.origin.is_same(provider)
        parts = (_part_for(part, provider, same) for part in message.parts)
        return replace(message, parts=tuple(part for part in parts if part is not None))
    if isinstance(message, Results):
        return Results(tuple(each._replace(own=_beside(each.own, provider, result=True)) for each in message.results))
    message = replace(message, own=_beside(message.own, provider))
    if _is_strict(provider) and isinstance(message, User) and not isinstance(message.content, str):
        message = replace(message, content=_uncached(message.content))
    return message


def _is_strict(provider: Origin) -> bool:
    """Return whether a provider refuses what is not its own."""
    return provider.format == "cohere" or (provider.format == "openai" and sent_by(provider.host) is not None)


def _beside(own: ProviderItem | None, provider: Origin, *, result: bool = False) -> ProviderItem | None:
    """Return what stands beside a text or a result as the provider takes it: Mistral wants names of tools alone."""
    own = _own_for(own, provider.format)
    if own is None or provider.format != "openai" or not _is_strict(provider):
        return own
    named = result == bool(sent_by(provider.host))
    data = {name: own.data[name] for name in own.data if name != "name" or named}
    return own._replace(data=data | {"content": _uncached(data["content"])} if "content" in data else data)


def _uncached(parts: list[Any]) -> list[Any]:
    return [{name: part[name] for name in part if name != "cache_control"} for part in parts if isinstance(part, dict)]


def _part_for(part: Part, provider: Origin, same: bool) -> Part | None:
    format = provider.format if same else None
    if isinstance(part, ProviderItem):
        return _own_for(part, format)
    if isinstance(part, TextPart):
        return part._replace(own=_own_for(part.own, format))
    if isinstance(part, Thought):
        return part._replace(own=_own_for(part.own, format)) if same else Thought(part.text)
    own = (part.own or {}).get(format) if format else None
    takes_any = provider.host is None or sent_by(provider.host) == ()
    return msgspec.structs.replace(
        part,
        signature=part.signature if same and sent_by(provider.host) is None else None,
        own={format: own} if own else None,
        raw=part.raw if same and takes_any else "",
    )


def _own_for(own: ProviderItem | None, format: str | None) -> ProviderItem | None:
    return own if own is not None and own.format == format else None


def with_names_that_fit(history: Sequence[Message]) -> list[Message]:
    """Return the history with the names of native calls and of their results as a provider takes them.

    A model may call what does not exist, by names that its provider then refuses to read. The name of a tool that has
    answered is one that the provider has taken, and stays.
    """
    results = [result for message in history if isinstance(message, Results) for result in message.results]
    taken = {result.name for result in results if result.name.strip() and not result.is_error}

    def fitting(name: str) -> str:
        return name if name in taken else fit(name) or "unknown"

    def renamed(part: Part) -> Part:
        return msgspec.structs.replace(part, name=fitting(part.name)) if isinstance(part, ToolCall) else part

    named: list[Message] = []
    for message in history:
        if isinstance(message, Results):
            message = Results(tuple(each._replace(name=fitting(each.name)) for each in message.results))
        elif isinstance(message, Assistant) and message.calls:
            message = replace(message, parts=tuple(map(renamed, message.parts)))
        named.append(message)
    return named


def without_reasoning(history: Iterable[Message]) -> list[Message]:
    """Return the history without reasoning, signatures, ids and what else is for the provider that gave it."""
    plain: list[Message] = []
    for message in history:
        if isinstance(message, Assistant):
            parts = (_part_for(part, NOBODY, False) for part in message.parts if not isinstance(part, Thought))
            message = replace(message, parts=tuple(part for part in parts if part is not None), response_id=None)
        plain.append(message)
    return plain


# What all formats write alike.


def in_order(message: Assistant) -> Iterator[Part]:
    """Yield what a turn said, one thing after the other; what it thought last and did nothing about is left out.

    A provider that reads its own reasoning again wants it before what it led to.
    """
    parts = message.parts
    end = len(parts)
    while end and (isinstance(last := parts[end - 1], Thought) or (isinstance(last, TextPart) and not last.text)):
        if isinstance(last, TextPart) and last.own:
            break
        end -= 1
    return iter(parts[:end])


def arguments_text(call: ToolCall) -> str:
    """Return arguments as JSON text; those of a malformed call as they were written."""
    return call.raw if call.raw and call.dialect == NATIVE else compact(writable(call.arguments))


def beside(part: TextPart | Thought | CallResult | System | User) -> dict[str, Any]:
    """Return the members of a provider's own beside what is said, or beside a result."""
    return dict(part.own.data) if part.own else {}


def beside_call(call: ToolCall, format: str) -> dict[str, Any]:
    """Return the members of a provider's own beside a call."""
    own = (call.own or {}).get(format)
    return own if isinstance(own, dict) else {}


# Reasoning of chat completions on its way back: in which messages, and in the field in which it came.
#
# Servers that think between calls (DeepSeek, Kimi, GLM, MiniMax, Gemini behind OpenRouter) answer 400, or worse, if it
# is missing from a turn with calls. A turn is what stands between two of the user's messages. So each turn in which
# calls were made keeps its reasoning in all later requests, on each of its messages, and a turn without calls sends
# none. Once a server has sent such a field, a message of such a turn that has none carries an empty one.

SendReasoning: TypeAlias = Literal["with_calls", "always", "since_user", "never"]
"""Which turns get their reasoning back: those in which calls were made; all; the last one; none."""

_CHAT = "openai"
FIELDS = ("reasoning_content", "reasoning", "reasoning_details")
"""Where it stands in a message."""

ReasoningField: TypeAlias = Literal["reasoning_content", "reasoning"]
"""Those that hold a text."""

_HOSTS = {
    **dict.fromkeys(("api.deepseek.com", "api.moonshot.ai", "api.moonshot.cn", "api.z.ai"), "reasoning_content"),
    **dict.fromkeys(("open.bigmodel.cn", "api.minimax.io"), "reasoning_content"),
    "openrouter.ai": "reasoning",
}
"""Which field these want, where no turn of the history says so: it came from a client, or from another provider."""


def choose_reasoning(
    history: Sequence[Message], send: SendReasoning, host: str | None = None, field: ReasoningField | None = None
) -> list[Message]:
    """Return a history with the reasoning of chat completions where it is to be sent, and nowhere else.

    It is one for a provider at this `host` already, so that what it holds came from there; `field` is the one that it
    wants, if no turn shows it.
    """
    turns = list(accumulate(int(isinstance(each, User)) for each in history))  # the number of the turn of each message
    called = {
        turn
        for turn, message in zip(turns, history, strict=True)
        if isinstance(message, Assistant) and (message.calls or message.in_text)
    }
    check_word("send_reasoning", send, get_args(SendReasoning))
    wanted = {"always": {*turns}, "with_calls": called, "since_user": {*turns[-1:]}, "never": set[int]()}[send]
    chosen: list[Message] = []
    names = sent_by(host)
    known = (_field(history) or field or _HOSTS.get(host or "")) if names is None else None
    for turn, message in zip(turns, history, strict=True):
        if isinstance(message, Assistant):
            message = _with(message, known) if turn in wanted else _bare(message)
            message = message if names is None else _bare(message, names)
        chosen.append(message)
    return chosen


def _field(history: Sequence[Message]) -> str | None:
    """Return the field that the server has used last, None if it has used none that can be empty."""
    for message in reversed(history):
        for name in reversed(fields_of(message) if isinstance(message, Assistant) else ()):
            if name in FIELDS[:2]:
                return name
    return None


def _with(message: Assistant, field: str | None) -> Assistant:
    if field is None or fields_of(message):
        return message
    origin = message.origin  # a front end tells what was thought, and not in which field
    unknown = origin.format is None or (origin.client and origin.format == _CHAT)
    text = "".join(each.text for each in message.thoughts) if unknown else ""
    return replace(message, parts=(Thought("", own=ProviderItem(_CHAT, {field: text})), *message.parts))


def _bare(message: Assistant, names: tuple[str, ...] = ()) -> Assistant:
    """Return a turn without the fields of its reasoning, but for these."""
    parts = (_only(each, names) if isinstance(each, Thought) else each for each in message.parts)
    return replace(message, parts=tuple(parts))


def _only(thought: Thought, names: tuple[str, ...]) -> Thought:
    held = {name: value for name, value in (thought.own.data if thought.own else {}).items() if name in names}
    return thought._replace(own=ProviderItem(_CHAT, held) if held else None)


def fields_of(message: Assistant) -> dict[str, Any]:
    """Return the fields in which the reasoning of a turn came, as they were."""
    fields: dict[str, Any] = {}
    for each in message.thoughts:
        if each.own is not None and each.own.format == _CHAT:
            for name, value in each.own.data.items():
                if isinstance(value, list) and isinstance(fields.get(name), list):
                    fields[name].extend(value)
                else:
                    fields[name] = [*value] if isinstance(value, list) else value
    return fields


def text_of(fields: Mapping[str, Any]) -> str:
    """Return what the fields say; where there are several, all say the same."""
    for name in FIELDS[:2]:
        if isinstance(fields.get(name), str):
            return str(fields[name])
    details = fields.get("reasoning_details")
    listed = details if isinstance(details, list) else []
    return "".join(given(each, "text") or given(each, "summary") for each in listed)
