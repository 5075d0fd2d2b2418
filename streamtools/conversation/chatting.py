"""The conversation as one stream: ask the model, run its tools, put the results back, ask again until it is done.

A chat is a `ToolStream` whose source goes on: when an answer has ended, its calls have been run and its step is over,
the follow-up request is sent, and its answer is read as the next turn of the same run. So the events, their order and
the one ending are those of any stream; what is added is the `follow-up` between two steps.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from inspect import isawaitable
from typing import Any, Literal, TypeAlias, Unpack

from streamtools.calls import ToolCall, ToolChoice, is_made_here, new_call_id
from streamtools.conversation.emulation import EmulatedReply, Emulation, Mode
from streamtools.conversation.failover import FailoverReply, Failures, Fallback
from streamtools.conversation.models.model import Ask, Model
from streamtools.conversation.models.output_format import in_words, takes_schema
from streamtools.conversation.prompts import Example, augment_system_prompt
from streamtools.conversation.prompts import few_shot as write_examples
from streamtools.conversation.reply import Reply
from streamtools.errors import Code, check_word
from streamtools.events import FollowUp, SourceWarning, Thinking
from streamtools.history import (
    Assistant,
    CallResult,
    Format,
    Message,
    Results,
    System,
    User,
    calls_as_text,
    close_answered_calls,
    neutralise_quotations,
    pair_results,
    read_messages,
    steps_to_history,
    write_continuation,
    write_messages,
)
from streamtools.logs import Logger
from streamtools.machine.state_machine import StreamMachine
from streamtools.parsing.dialects import TAUGHT_DIALECTS, ByName, enabled_dialects, for_model, unnamed
from streamtools.parsing.dialects.neutralising import neutralise
from streamtools.sources import events
from streamtools.stream.options import OutputOptions, StreamOptions, parser_keywords, refuse_unknown
from streamtools.stream.output import output_type
from streamtools.stream.reading import EventSource
from streamtools.stream.tool_stream import DEFAULT_PARSER, DEFAULT_RUNNER, DEFAULT_TEXT, ToolStream
from streamtools.tools import ToolRegistry
from streamtools.tools.guards import GuardTracker
from streamtools.tools.registry import ToolsLike
from streamtools.tools.tool_choice import parse_choice

log = Logger(__name__)

Review: TypeAlias = Callable[
    [list[dict[str, Any]]], "list[dict[str, Any]] | Awaitable[list[dict[str, Any]] | None] | None"
]
"""Gets the follow-up messages in OpenAI's form, and returns them, changed or not, or None to end the run."""

NOT_EMULATED = "no function tools: calls of other tools are not emulated"


@dataclass(frozen=True, kw_only=True)
class RequestOptions:
    """How each request to the model is made. Raises ValueError for a value that is not allowed."""

    body: Mapping[str, Any] = field(default_factory=dict)
    """Merged into the body of each request."""
    teach: Literal["auto", "always", "never"] = "auto"
    """Whether the system prompt teaches a dialect. `"auto"` teaches models whose `native_tool_calls` is False."""
    few_shot: bool | Sequence[Example] = False
    """Whether the prompt also holds examples, made from the tools or given here. They help base models."""
    emulation: Mode | Emulation = "off"
    """Whether a second request decides which tools are called, for models that make no calls."""

    def __post_init__(self) -> None:
        check_word("teach", self.teach, ("auto", "always", "never"))
        given: Any = self.few_shot
        is_sequence = isinstance(given, Sequence) and not isinstance(given, str)
        if not isinstance(given, bool) and not (is_sequence and all(isinstance(item, Example) for item in given)):
            raise ValueError(f"few_shot must be True, False or a sequence of Example, got {given!r}")
        if not isinstance(self.emulation, Emulation):
            Emulation(mode=self.emulation)

    @classmethod
    def of(cls, given: RequestOptions | Mapping[str, Any] | None) -> RequestOptions:
        """Return `given` as options; a mapping is the body."""
        if isinstance(given, RequestOptions):
            return given
        if given is None or isinstance(given, Mapping):
            return cls(body=given or {})
        raise TypeError(f"request must be a RequestOptions or a mapping, got {given!r}")


_PARAMETERS = ("tools", "follow_up", "max_steps", "request", *StreamOptions.__annotations__)
_MOVED = {
    **{name: f"request=RequestOptions({name}=...)" for name in ("teach", "few_shot", "emulation")},
    "review": "follow_up=review",
    "output_retries": "output=OutputOptions(Type, retries=...)",
}


class Chat(ToolStream):
    """One run of a conversation: an asynchronous context manager that is also the iterator of its events.

    `messages` are those of OpenAI's chat form, or of a `history`. A model whose `native_tool_calls` is False is taught
    the first of the dialects in its system prompt, if that can be taught; others are sent the definitions of the tools.
    Where no dialects are named, they are what models of its name write, and `"auto"`; the first of those with a marker
    is taught, or else `tilde_fence`. After a turn with calls their results are sent back (`follow_up="auto"`), and the
    answer is the next step, at most `max_steps` of them: in the last, calls are not run but pending. A function as
    `follow_up` reviews each follow-up before it is sent. `request` is merged into the body of each request, or is a
    `RequestOptions`. A `tool_choice` that forces a call holds for the first step. A model of which nobody knows whether
    it makes native calls is one that does as soon as the messages hold one; in those of a front end, to which all calls
    are alike, one with an id that a provider has made. With a `Fallback`, the next of its models takes over where one
    fails. An answer that is no `output` is asked for again, `OutputOptions.retries` times. The other parameters are
    those of `ToolStream`. Raises ValueError for values that are not allowed, and for messages that are none; TypeError
    for parameters that there are not.

    Calls in text that nobody has run may be answered by the caller: by a user's message behind them that holds results
    as their dialect writes them (`~~~tool_result get_weather` and so on). If it does not, the model is told that the
    calls were not run, and then what the user says. A user's message that the review returns behind calls in text is
    the answer to them, whatever it says.

    What the review raises ends the run as what a source raises does: with an error, and then it is raised.
    """

    def __init__(
        self,
        model: Model,
        messages: Iterable[Mapping[str, Any] | Message],
        *,
        tools: ToolsLike | None = None,
        follow_up: Literal["auto", "never"] | Review = "auto",
        max_steps: int = 10,
        request: RequestOptions | Mapping[str, Any] | None = None,
        **options: Unpack[StreamOptions],
    ) -> None:
        if not callable(getattr(model, "stream", None)):
            hint = f", such as OpenAIChat({model!r}) of streamtools.conversation" if isinstance(model, str) else ""
            raise TypeError(f"a model is an object that answers{hint}, and not {model!r}")
        if not callable(follow_up):
            check_word("follow_up", follow_up, ("auto", "never"))
        if unknown := [name for name in options if name not in StreamOptions.__annotations__]:
            if unknown[0] in _MOVED:
                raise TypeError(f"chat() has no parameter {unknown[0]!r}; write {_MOVED[unknown[0]]}")
            advice = f"pass an option of the provider to the model, or as request={{{unknown[0]!r}: ...}}"
            refuse_unknown("chat()", unknown, [*_PARAMETERS, *_MOVED], f"; {advice}")
        asked = RequestOptions.of(request)
        runner = options.get("runner", DEFAULT_RUNNER)
        output = OutputOptions.of(options.get("output"))
        if max_steps < 1:
            raise ValueError(f"max_steps is at least 1, not {max_steps!r}")
        self._model = model
        self._registry = ToolRegistry.of(tools if tools is not None else ())
        emulation = asked.emulation
        self._emulation = emulation if isinstance(emulation, Emulation) else Emulation(mode=emulation)
        if self._emulation.mode == "force" and not len(self._registry):
            raise ValueError("emulation is forced, and there are no function tools")
        if self._emulation.mode != "off" and runner.self_contained:
            raise ValueError("a self-contained agent runs its tools itself; its calls cannot be emulated")
        history = read_messages(messages)
        if empty := [at for at, each in enumerate(history) if isinstance(each, User) and not each.content]:
            log.warning("empty_message", messages=empty, advice="providers refuse a user's message without content")
        self._output_retries = output.retries
        self._output = output_type(output.type)
        options["output"] = replace(output, type=self._output)
        self._fallback = model if isinstance(model, Fallback) else None
        self._failures = Failures()
        self._answer_at = 0  # characters of the result's text before the answer that is read
        if self._fallback is not None and self._fallback.is_mixed and options.get("dialects") is None:
            options["dialects"] = "auto"  # whatever an earlier turn was, the next may be that of a model without calls
        self._native = options.setdefault("native_tool_calls", model.native_tool_calls)
        if self._native is None and _calls_natively(history):
            self._native = options["native_tool_calls"] = True
        if asked.teach == "always" and options.get("dialects") is None:
            options["dialects"] = TAUGHT_DIALECTS[::-1]  # the first is taught
        if self._fallback is None and options.get("dialects") is None:
            options["dialects"] = for_model(str(getattr(model, "name", "")), self._native)
        self._named = options.get("dialects")
        self._dialects = enabled_dialects(self._named, self._native)
        usual = [
            each
            for each in self._dialects
            if each.id == "tilde_fence" and (unnamed(self._named) or self._named == "auto")
        ]
        best = [self._named.taught] if isinstance(self._named, ByName) and self._dialects else usual
        self._taught = next(filter(None, [*best, *usual, *self._dialects]), None)
        self._teach_when = asked.teach
        if self._native is False and asked.teach == "auto" and self._taught and not self._taught.teachable and tools:
            log.warning("tools_not_told", dialect=self._taught.id, advice="leave native_tool_calls unset")
        self._few_shot = asked.few_shot
        # The probe of an emulation reads text as it was written, and its calls get ids of their own.
        probed = replace(options.get("parser", DEFAULT_PARSER), new_id=new_call_id)
        self._parsing = parser_keywords(probed, DEFAULT_TEXT)
        self._messages = close_answered_calls(history, self._dialects)
        self._sent = 0  # steps that are among the messages
        self._request = deepcopy(dict(asked.body))
        self._follows_up = follow_up != "never"
        self._review = follow_up if callable(follow_up) else None
        self._steps_left = max_steps
        # The stream makes these two of its options, too; the first request needs them earlier.
        self._guards = options["guards"] = GuardTracker.of(options.get("guards"))
        self._wish = parse_choice(options.get("tool_choice", "auto"))
        begins = events(()) if options.get("resume") is not None else self._next_answer()
        super().__init__(begins, tools=self._registry if tools is not None else None, **options)
        self._run.machine.reserve(call for each in history if isinstance(each, Assistant) for call in each.calls)
        if self._run.resumed is not None:
            _check_open(self._run.resumed.calls, self._messages)

    @property
    def supersedes(self) -> bool:
        """Whether steps that have been shown may be superseded, for which a reader needs a format that can replace."""
        return self._fallback is not None and self._fallback.on_break == "restart_step"

    @property
    def history(self) -> list[Message]:
        """The conversation as it stands, to be gone on with in another chat.

        Calls of a finished run that nobody has run are left to whoever runs them, and so are those of one that waits
        for somebody (`suspension`); in another that did not come to its end, they are answered: they were not run.
        """
        history = [*self._messages, *steps_to_history(self.result.steps[self._sent :])]
        goes_on = self.suspension is not None or self.result.reason in (None, "finished")
        return pair_results(history, None if goes_on else "cancelled")

    def messages(self, format: Format = "openai") -> list[Any]:
        """Return the history in the form of a provider; see `write_messages`, also for its errors."""
        return write_messages(self.history, format, dialects=self._dialects)

    # One request.

    def _next_answer(self) -> EventSource:
        """Return the source of the answer to the conversation as it stands."""
        self._steps_left -= 1
        self._guards.last_turn = self._steps_left == 0
        history = neutralise_quotations(pair_results(self._messages, "cancelled"), self._dialects)
        mode = self._emulation.mode  # whose requests differ in what stands before the history
        ask = Ask(tuple(history), tuple(self._registry), self._wish, self._request, self._dialects, mode != "off")
        if mode == "off" and self._fallback is not None:
            return FailoverReply(self._fallback, lambda model: self._write(ask, model), self._take_back, self._failures)
        first = self._write(ask, self._model)
        if mode == "off":
            return Reply(self._model, first)
        if not ask.tools:
            holds_others = bool(self._model.body(first).get("tools"))
            return Reply(self._model, first, [SourceWarning(Code.NOT_EMULATED, NOT_EMULATED)] if holds_others else ())
        probe = partial(
            StreamMachine,
            tools=self._registry,
            execute="never",
            native_tool_calls=self._native,
            dialects=self._named,
            **self._parsing,
        )
        typed, begun = self._with_type(ask, self._model), None if mode == "force" else first
        return EmulatedReply(self._model, begun, typed, self._emulation, probe=probe, think=self._think)

    def _write(self, ask: Ask, model: Model) -> Ask:
        """Return a request as it is sent to a model, in the way in which that makes its calls."""
        native = self._native if self._fallback is None or model.native_tool_calls is None else model.native_tool_calls
        can = self._taught is not None and self._taught.teachable
        if self._teach_when == "always" or (self._teach_when == "auto" and native is False and can):
            ask = replace(ask, history=tuple(self._teach(list(ask.history))))
        if native is False:
            in_text = calls_as_text(ask.history, self._taught, reserved=self._dialects)
            ask = replace(ask, history=tuple(in_text), tools=())
        return self._with_type(ask, model)

    def _with_type(self, ask: Ask, model: Model) -> Ask:
        """Return a request that says of which type the answer has to be, where one was asked for."""
        if self._output is None:
            return ask
        native = not len(self._registry) or bool(ask.tools)  # calls that are written in text are no such value
        if native and takes_schema(model, self._output, ask.options, tools=bool(ask.tools)):
            return replace(ask, output=self._output)
        return replace(ask, history=in_words(ask.history, self._output))

    def _take_back(self, name: str, whole_step: bool) -> str | None:
        """Take back what cannot stand of an answer in which a model broke off: see `TakeBack`."""
        run = self._run
        if run.machine.has_run_calls:
            run.emit(run.machine.discard())
            return None
        if whole_step:
            run.emit(run.machine.restart_step(name))
            run.steps.check_limits()
            return ""
        shown = self.result.text[self._answer_at :] + run.unapproved_text
        events, written = run.machine.switch_model(shown, name)
        run.emit(events)
        return written

    def _teach(self, history: list[Message]) -> list[Message]:
        """Return a history whose system prompt teaches how tools are called."""
        if self._taught is None:
            return history
        first = history[0] if history else None
        base, rest = (first.text, history[1:]) if isinstance(first, System) else (None, history)
        enabled = self._taught, *(each for each in self._dialects if each.id != self._taught.id)
        prompt = augment_system_prompt(base, self._registry, enabled)
        given = () if isinstance(self._few_shot, bool) else self._few_shot
        examples = read_messages(write_examples(enabled, self._registry, given)) if self._few_shot else []
        return [*([System(prompt)] if prompt else []), *examples, *rest]

    def _think(self, active: bool) -> None:
        self._run.emit((Thinking(active, seq=self._run.machine.number()),))

    # The next.

    async def _next_source(self) -> EventSource | None:
        """Return the answer to read next: the first one, or the one to the results of the last step."""
        if self._run.resumed is None and (first := await super()._next_source()) is not None:
            return first
        machine = self._run.machine
        goes_on = machine.paused  # with the same turn, which is sent back as it is
        wrong = self._find_fault()
        if not self._follows_up or not (goes_on or wrong or (self._run.steps.executes and self._wish.mode != "none")):
            return None
        steps = self.result.steps[self._sent :]
        if machine.pending or not steps or not (goes_on or (machine.may_continue and (steps[-1].results or wrong))):
            return None
        await self._close_source()  # somebody may take a long time over the review
        machine.expect_answer()
        self._guards.count_tokens(machine.tokens_used)
        if self._steps_left == 0:
            self._guards.trip("max_steps")
        if self._guards.why is not None:
            self._run.emit(machine.stop(self._guards.why))
            return None
        new = steps_to_history(steps)
        if wrong:
            self._output_retries -= 1
            wrong = neutralise(wrong, self._dialects)  # it may name a member, which is the model's own word
            new.append(User(f"{wrong}. Answer again, with the JSON value alone."))
        behind = () if self._sent else self.result.resumed  # only the first of them answers what was resumed
        messages = write_continuation(behind, new, "openai", dialects=self._dialects)
        if self._review is not None and not goes_on:
            reviewed = self._review(deepcopy(messages))
            if isawaitable(reviewed):
                reviewed = await reviewed
            if reviewed is None:
                machine.expect_no_answer()
                return None
            if reviewed != messages:
                new = _read_reviewed(reviewed, messages, new)
                if behind:
                    _answer_last(self._messages, len(self._messages))
                messages = deepcopy(reviewed)
        if self._native is None and _calls_natively(new):
            self._native = True
        self._messages += new
        self._sent += len(steps)
        if not goes_on:
            self._wish = machine.tool_choice = ToolChoice()
        self._run.emit((machine.clean(FollowUp(messages, seq=machine.number())),))
        if self._fallback is not None:
            self._answer_at = len(self.result.text)
        return self._next_answer()

    def _find_fault(self) -> str | None:
        """Return what is wrong with the answer, if the model is to be asked for it again."""
        steps, warnings = self.result.steps, self.result.warnings
        if not self._output_retries or not self._steps_left or not steps or steps[-1].results or not warnings:
            return None
        return warnings[-1].message if warnings[-1].code is Code.INVALID_OUTPUT else None


def _calls_natively(history: Iterable[Message]) -> bool:
    """Return whether a history shows that its model makes native calls."""
    said = [each for each in history if isinstance(each, Assistant)]
    calls = ((call, each.origin.client) for each in said for call in each.calls)
    return any(call.is_native and not (client and is_made_here(call.id)) for call, client in calls)


def _check_open(calls: Iterable[ToolCall], history: list[Message]) -> None:
    """Raise ValueError if a history does not go on with the answers to these calls."""
    results = tuple(CallResult(call.dialect, call.name, "", call.id) for call in calls)
    try:
        pair_results([*history, Results(results)])
    except ValueError as error:
        raise ValueError(f"the run that is resumed does not go on with these messages: {error}") from None


def _answer_last(history: list[Message], end: int) -> None:
    """Let the last turn before `end` have no open calls in its text: words that are put behind it answer them."""
    for place in reversed(range(end)):
        if isinstance(last := history[place], Assistant):
            history[place] = replace(last, in_text=())
            return


def _read_reviewed(reviewed: list[dict[str, Any]], messages: list[dict[str, Any]], new: list[Message]) -> list[Message]:
    """Return the history that `reviewed` messages are, which were `messages`, those of `new`.

    What the model said and nobody has changed stays as it was, with what OpenAI's form has no place for: reasoning and
    its signatures, which providers want back. Results of calls in text are words of the user's here, so calls that such
    words follow are open no more: whatever the reviewer lets stand there is their answer.
    """
    said = [message for message in messages if message["role"] == "assistant"]
    known = list(zip(said, [each for each in new if isinstance(each, Assistant)], strict=True))
    read = read_messages(next((was for written, was in known if written == message), message) for message in reviewed)
    for place, each in enumerate(read):
        if isinstance(each, User):
            _answer_last(read, place)
    return read


chat = Chat
"""The name by which a conversation is begun: `async with chat(model, messages, tools=tools) as events:`."""
