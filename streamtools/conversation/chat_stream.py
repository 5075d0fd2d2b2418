"""Runs the chat loop: request an answer, run its tools, send the results to the model, and repeat.

The loop usually ends with an answer that contains no calls. But it continues if the provider has paused its turn, or if
this answer is invalid output that may be requested again. The loop also ends if calls remain pending.

A chat is a `ToolStream` that reads several answers in order, one for each step. It emits the events of a `ToolStream`
in the same order, with one `done` event at the end. Between two steps it also emits a `follow-up` event, which contains
the messages that the next request adds.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any, Literal, TypeAlias, Unpack

from streamtools.calls import ToolCall, ToolChoice, is_made_here, new_call_id
from streamtools.conversation.emulation import EmulatedReply
from streamtools.conversation.failover import FailoverReply, Fallback
from streamtools.conversation.models.model import Ask, Model, check_model
from streamtools.conversation.reply import Reply
from streamtools.conversation.request_writer import RequestOptions, RequestWriter
from streamtools.errors import check_function, check_kind, check_names, check_number, check_word
from streamtools.events import COMPLETE, FollowUp, StepEnd, StepStart, StepSuperseded, Thinking, UIEvent
from streamtools.history import Assistant, CallResult, Format, Message, Results, User, read_messages, write_messages
from streamtools.history.calls_in_text import close_answered_calls
from streamtools.history.formats import AnyMessage, write_continuation
from streamtools.history.pairing import pair_results
from streamtools.history.parts import System, steps_to_history
from streamtools.logs import Logger
from streamtools.machine.logged_run import LoggedRun
from streamtools.machine.state_machine import StreamMachine
from streamtools.parsing.dialects import TAUGHT_DIALECTS, for_model
from streamtools.parsing.dialects.neutralizing import neutralize
from streamtools.parsing.options import ParserOptions
from streamtools.sources import events
from streamtools.stream.lost_run import LostRun
from streamtools.stream.options import HOMES, OutputOptions, StreamOptions, homes_of, output_type, parser_keywords
from streamtools.stream.reading import EventSource
from streamtools.stream.tool_stream import DEFAULT_PARSER, DEFAULT_RUNNER, DEFAULT_TEXT, ToolStream
from streamtools.tools import ToolRegistry
from streamtools.tools.cancellation import call_function
from streamtools.tools.registry import ToolsLike

log = Logger(__name__)

Review: TypeAlias = Callable[
    [list[dict[str, Any]]], "list[dict[str, Any]] | Awaitable[list[dict[str, Any]] | None] | None"
]
"""A function that reviews the messages that a follow-up request adds to the conversation, before they are sent.

It gets these messages in OpenAI's format, and returns the messages to send. If it returns None, the run ends."""

_HOMES = HOMES | homes_of({"request": RequestOptions})
_HOMES["timeout"] += " for tools; for the provider, OpenAIChat(timeout=...)"
_HOMES["retries"] += " for typed answers; for the provider, OpenAIChat(retries=...)"
_HOMES["history"] = f"chat(model, history); for rules, {_HOMES['history']}"
_HOMES |= {name: f"OpenAIChat(..., {name}=...)" for name in ("base_url", "api_key", "client", "headers", "prefill")}
_HOMES |= {name: f"runs.start(chat(...), {name}=...)" for name in ("owner", "conversation", "note")}
_HOMES |= {name: f"asgi.event_stream_response(chat(...), {name}=...)" for name in ("format", "max_rate")}
_OTHER_NAMES = {
    "@tool(requires_approval=...)": "requires_approval needs_approval requires_confirmation interrupt_before",
    "`async for event in events`": "callbacks hooks on_event event_handler event_stream_handler onFinish verbose",
    "chat(Fallback(first, second), ...)": "fallback models",
    "chat(model, messages)": "input prompt user_prompt message_history stream streaming",
    "follow_up=...": "tool_use_behavior prepareStep",
    "guards=Guards(...)": "usage_limits max_tool_calls max_calls",
    'last_step="answer"': "early_stopping_method",
    "max_steps=...": "max_rounds max_turns max_iterations recursion_limit stop_when stopWhen",
    "output=...": "response_format output_type result_type",
    "runner=RunnerOptions(state=...)": "context deps",
    "system=...": "system_prompt instructions",
    "runs.start(chat(...), conversation=...)": "session session_id thread_id checkpointer",
    "text=TextOptions(rules=...) or TextOptions(judge=...)": "input_guardrails output_guardrails",
    "tools=[...]": "functions toolsets",
}
"""Maps code to the names that other libraries use for its purpose."""
_HOMES |= {other: ours for ours, others in _OTHER_NAMES.items() for other in others.split()}
_ADVICE = "; pass an option of the provider to the model, or as request={{{!r}: ...}}"
_OWN_PARAMETERS = "tools system follow_up max_steps last_step request continue_from"
_PARAMETERS = (*_OWN_PARAMETERS.split(), *StreamOptions.__annotations__)


class Chat(ToolStream):
    """One run of a conversation: an asynchronous context manager that is also the iterator of its events.

        async with chat(model, messages, tools=[get_weather]) as events:
            async for event in events:
                if event.type == "text":
                    print(event.text)

    `await chat(model, messages)` reads all events and returns the result.

    - `model`: such as `OpenAIChat("gpt-5.4")`, or a `Fallback` of several models.
    - `messages`: OpenAI chat messages, or the `history` of another chat. `read_messages` reads other formats.
    - `tools`: a registry, tools, or plain functions.
    - `system`: a system prompt, sent before `messages`. It is not part of `history`, so it is not stored, and the next
      chat may have another one.
    - `follow_up`: what happens after an answer with calls. With `"auto"`, the results of the calls are sent to the
      model, whose next answer is the next step. With `"never"`, they are not. A function gets the messages that each
      follow-up request adds, and returns those to send. A request that continues a paused turn is not reviewed. If the
      function raises an exception, the run ends with an error and the exception is raised again.
    - `max_steps`: the maximum number of steps. If the last one has calls, they do not run and remain pending.
    - `last_step`: with `"answer"`, the last step that `max_steps` allows has the tool choice `none` in place of any
      other, so that the model answers from the results that it has. With `"any"`, it may make calls.
    - `request`: a mapping that is merged into the body of each request, or a `RequestOptions`.
    - `continue_from`: the lost run that this chat continues. It began with the same `messages`.
    - `dialects`, `native_tool_calls`, `tool_choice`, `output`, `guards`, `resume`, `run_id`, `parser`, `runner`,
      `approvals` and `text`: see `StreamOptions`. A `tool_choice` applies only to the first step. An answer that does
      not fit `output` is requested again up to `OutputOptions.retries` times.

    If the model's `native_tool_calls` is False, the system prompt teaches it a dialect, a notation for calls in text.
    Other models get the definitions of the tools. By default, a chat enables the dialects that are known for the
    model's name, and after them the others of `"auto"`. It enables none for a model whose calls are always native. With
    `teach="always"`, it enables the dialects that prompts teach by default. With a `Fallback`, it enables `"auto"` if
    some of the models have `native_tool_calls=False`, but not all. If `native_tool_calls` is None, a native call in the
    messages sets it to True. In messages from a front end, a native call does not count if streamtools has made its id.
    With a `Fallback`, the next model continues if a model fails.

    `messages` may end with pending calls in text. The caller may then append a user message with the results of these
    calls, in the form of their dialect (`~~~tool_result get_weather`). If the user message contains no results, the
    model is informed that the calls did not run, and then reads the user message. If a user message follows calls in
    text in the messages that a review returns, it always answers these calls.

    Raises ValueError for a wrong value or invalid messages, and TypeError for an unknown parameter or a wrong type.
    """

    _called = "chat"

    def __init__(
        self,
        model: Model,
        messages: Iterable[AnyMessage],
        *,
        tools: ToolsLike | None = None,
        system: str | None = None,
        follow_up: Literal["auto", "never"] | Review = "auto",
        max_steps: int = 10,
        last_step: Literal["any", "answer"] = "any",
        request: RequestOptions | Mapping[str, Any] | None = None,
        continue_from: LostRun | None = None,
        **options: Unpack[StreamOptions],
    ) -> None:
        check_model(model)
        if callable(follow_up):
            check_function("follow_up", follow_up, "messages")
        else:
            check_word("follow_up", follow_up, ("auto", "never"))
        check_names("chat()", options, _PARAMETERS, _HOMES, _ADVICE)
        check_number("max_steps", max_steps, 1)
        check_word("last_step", last_step, ("any", "answer"))
        check_kind("system", system, str, optional=True)
        check_kind("parser", options.get("parser", DEFAULT_PARSER), ParserOptions)
        if request is None or isinstance(request, Mapping):
            request = RequestOptions(body=request or {})
        check_kind("request", request, RequestOptions)
        output = OutputOptions.of(options.get("output"))
        self._model = model
        self._registry = ToolRegistry.of(tools if tools is not None else ())
        self._emulation = request.emulation
        if self._emulation == "force" and not len(self._registry):
            raise ValueError("emulation is forced, and there are no function tools")
        if self._emulation != "off" and options.get("runner", DEFAULT_RUNNER).self_contained:
            raise ValueError("a self-contained agent runs its tools itself; its calls cannot be emulated")
        history = read_messages(messages)
        if not history:
            log.warning("no_messages", advice='pass messages, such as [{"role": "user", "content": "Hello"}]')
        if empty := [i for i, message in enumerate(history) if isinstance(message, User) and not message.content]:
            log.warning("empty_message", messages=empty, advice="providers refuse a user's message without content")
        self._retries_left = output.retries
        options["output"] = replace(output, type=output_type(output.type))
        self._fallback = model if isinstance(model, Fallback) else None
        self._failed_models: set[int] = set()
        native = options.setdefault("native_tool_calls", model.native_tool_calls)
        if native is None and _calls_natively(history):
            native = options["native_tool_calls"] = True
        if options.get("dialects") is None:
            options["dialects"] = self._default_dialects(request, native)
        dialects = options.get("dialects")
        by_model = self._fallback is not None
        self._writer = RequestWriter(request, self._registry, dialects, native, options["output"].type, by_model)
        # An emulation uses a probe, a state machine that looks for calls in an answer. It applies no text rules.
        probe_parser = replace(options.get("parser", DEFAULT_PARSER), new_id=new_call_id)
        keywords = parser_keywords(probe_parser, DEFAULT_TEXT)
        self._probe = partial(StreamMachine, tools=self._registry, execute="never", dialects=dialects, **keywords)
        self._messages = close_answered_calls(history, self._writer.dialects)
        self._system = (System(system),) if system else ()
        self._sent = 0  # the number of steps whose turns and results are already in `_messages`
        self._body = deepcopy(dict(request.body))
        self._follows_up = follow_up != "never"
        self._review = follow_up if callable(follow_up) else None
        self._steps_left = max_steps
        self._ends_with_answer = last_step == "answer"
        if continue_from is not None:
            options["run_id"] = continue_from.id
            options["text"] = options.get("text", DEFAULT_TEXT).for_run(continue_from)
        super().__init__(events(()), tools=self._registry if tools is not None else None, **options)
        self._is_unread = False  # if an exception follows, no warning does
        self._guards = self._run.steps.guards
        turns = [message for message in history if isinstance(message, Assistant)]
        self._run.machine.reserve(call for turn in turns for call in turn.calls)
        if self._run.resumed is not None:
            _check_unanswered(self._run.resumed.suspension.calls, self._messages)
        if continue_from is not None:
            self._run.restore(LoggedRun(continue_from.events), continue_from)
        self._source_was_read = True
        if self._run.logged is not None:
            self._continue_from(self._run.logged, 0 if continue_from is None else continue_from.copied)
        elif options.get("resume") is None:
            self._source, self._source_was_read = self._next_answer(), False
        self._is_unread = True

    def _continue_from(self, logged: LoggedRun, copied: int) -> None:
        """Continue a run from its log: finish its open step, or send its next request."""
        self._read_follow_ups(logged.events, copied)
        machine, shown = self._run.machine, ""
        # The first event is `start`, or stands for the waiting run. Events up to `copied` are copies of its events.
        types = [type(event) for event in logged.events[1:] if event.seq > copied]
        self._use_steps(types.count(StepStart) - types.count(StepSuperseded))
        if logged.open is not None and not logged.open.is_answered:
            self._steps_left += 1
            events, shown = machine.switch_model(self._run.collector.step_text, "the crashed process")
            self._run.opening += events
        elif not logged.awaits_answer:
            return
        self._source, self._source_was_read = self._next_answer(shown), False

    def _read_follow_ups(self, events: Iterable[UIEvent], copied: int) -> None:
        """Add the messages of earlier follow-up requests to the conversation.

        The events up to the seq `copied` were copied from the waiting run that this run continues. The follow-up after
        a waiting run contains only the results of the calls.
        """
        ended = 0  # the number of steps that have ended before the event, without superseded steps
        for event in events:
            match event:
                case StepEnd():
                    ended += 1
                case StepSuperseded():
                    ended -= 1
                case FollowUp(messages):
                    new = steps_to_history(self._run.collector.read().steps[self._sent : ended])
                    written = self._written(new)
                    results_only = copied > 0 and messages == written[-len(messages) :]
                    self._add_messages(written if results_only else messages, written, new)
                    self._sent = ended
                    self._run.machine.tool_choice = ToolChoice()

    def _written(self, new: list[Message]) -> list[Any]:
        """Return the messages of a follow-up request, in OpenAI's format. `new` is the history of the new steps."""
        # The first follow-up has the results of resumed calls.
        resumed = () if self._sent else self._run.collector.result.resumed
        return write_continuation(resumed, new, "openai", dialects=self._writer.dialects)

    def _add_messages(self, reviewed: list[Any], written: list[Any], new: list[Message]) -> None:
        """Add the messages of a follow-up request to the conversation, after their review."""
        if reviewed != written:
            new = _read_reviewed(reviewed, written, new)
            if self._run.collector.result.resumed and not self._sent:
                _close_text_calls(self._messages, len(self._messages))
        if self._writer.native_tool_calls is None and _calls_natively(new):
            self._writer.native_tool_calls = True
        self._messages += new

    def _default_dialects(self, request: RequestOptions, native: bool | None) -> Any:
        """Return the dialects that a chat enables if `dialects` is not set."""
        if request.teach == "always":
            return TAUGHT_DIALECTS[::-1]  # the prompt teaches the first dialect of this list
        if self._fallback is None:
            return for_model(str(getattr(self._model, "name", "")), native)
        ways = {model.native_tool_calls for model in self._fallback.models}
        return "auto" if {False} < ways else None  # the next answer may come from a model without native calls

    @property
    def _supersedes(self) -> bool:
        """Whether a step that readers have seen may be replaced. Readers then need a format that can replace a step."""
        return self._fallback is not None and self._fallback.on_break == "restart_step"

    @property
    def history(self) -> list[Message]:
        """The messages of the conversation, for the next `chat`. `messages(format)` writes them for a provider.

        Calls that have not run have no result while the run is active, after it has finished, and while it waits for a
        decision (`suspension`). After any other end, each of these calls gets a result that says that it did not run.
        """
        result = self._run.collector.read()
        history = [*self._messages, *steps_to_history(result.steps[self._sent :])]
        continues = result.reason in (None, *COMPLETE) or self.suspension is not None
        return pair_results(history, None if continues else "cancelled")

    def messages(self, format: Format = "openai") -> list[Any]:
        """Return `history` for a provider, such as `"openai"`. See `write_messages` for the formats and errors."""
        return write_messages(self.history, format, dialects=self._writer.dialects)

    # One request.

    def _use_steps(self, count: int) -> None:
        """Subtract `count` from the steps that are left. No call of the last step may run."""
        self._steps_left -= count
        self._guards.last_turn = self._steps_left <= 0
        if self._guards.last_turn and self._ends_with_answer:
            self._run.machine.tool_choice = ToolChoice("none")

    def _next_answer(self, shown: str = "") -> EventSource:
        """Return the source of the next answer. With `shown`, the answer continues this text."""
        self._use_steps(1)
        dialects, mode = self._writer.dialects, self._emulation
        choice = self._run.machine.tool_choice
        ask = Ask(
            (*self._system, *self._messages), tuple(self._registry), choice, self._body, dialects, hide=self._hide
        )
        if shown or (mode == "off" and self._fallback is not None):
            models = self._fallback or Fallback(self._model)
            return FailoverReply(models, ask, self._writer.write, self._discard_answer, self._failed_models, shown)
        if mode == "off":
            return Reply(self._model, ask, self._writer.write)
        probe = partial(self._probe, native_tool_calls=self._writer.native_tool_calls)
        write, untaught = None if mode == "force" else self._writer.write, self._writer.with_type(ask, self._model)
        return EmulatedReply(self._model, ask, write, untaught, probe=probe, think=self._think)

    def _discard_answer(self, name: str, whole_step: bool) -> str | None:
        """Discard the part of a failed model's answer that no other model can continue.

        Returns the remaining text. Returns None if a call of the answer has run.
        """
        run = self._run
        if not run.machine.turn_is_open:
            return ""
        if run.machine.has_run_calls:
            run.emit(run.machine.discard())
            return None
        if whole_step:
            run.emit(run.machine.restart_step(name))
            run.steps.check_limits()
            return ""
        shown = run.collector.step_text + ("" if run.judge is None else run.judge.gate.text)
        events, written = run.machine.switch_model(shown, name)
        run.emit(events)
        return written

    def _think(self, active: bool) -> None:
        """Report that the decision request of an emulation begins or ends."""
        self._run.emit((Thinking(active, seq=self._run.machine.number()),))

    # The next request.

    async def _next_source(self) -> EventSource | None:
        """Return the next answer to read, or None if the run sends no further request."""
        if (source := await super()._next_source()) is not None:
            return source
        machine = self._run.machine
        is_paused = machine.paused  # the provider continues the turn if a request repeats it unchanged
        complaint = self._find_complaint()
        runs_calls = self._run.steps.executes and machine.tool_choice.mode != "none"
        if machine.pending and not (len(self._registry) or "tools" in self._body):
            log.warning("calls_without_tools", run_id=self.run_id, advice="to run the model's calls, pass tools=[...]")
        if not self._follows_up or not (is_paused or complaint or runs_calls):
            return None
        steps = self.result.steps[self._sent :]
        if machine.pending or not steps:
            return None
        if not is_paused and not (machine.may_continue and (steps[-1].results or complaint)):
            return None
        await self._close_source()  # a review may take long
        machine.expect_answer()
        self._guards.check_tokens(machine.tokens_used)
        if self._steps_left <= 0:
            self._guards.trip("max_steps")
        if self._guards.why is not None:
            self._run.emit(machine.stop(self._guards.why))
            return None
        new = steps_to_history(steps)
        if complaint:
            self._retries_left -= 1
            complaint = neutralize(complaint, self._writer.dialects)  # it may contain names that the model chose
            new.append(User(f"{complaint}. Answer again, with the JSON value alone."))
        messages = self._written(new)
        reviewed: Any = messages
        if self._review is not None and not is_paused:
            given, kinds = deepcopy(messages), list | tuple | None
            reviewed = await call_function("follow_up", self._review, given, kinds=kinds, expected="a list or None")
        if reviewed is None:
            machine.expect_no_answer()
            return None
        self._add_messages(reviewed, messages, new)
        self._sent += len(steps)
        if not is_paused:
            machine.tool_choice = ToolChoice()
        self._run.emit((machine.clean(FollowUp(deepcopy(reviewed), seq=machine.number())),))
        return self._next_answer()

    def _find_complaint(self) -> str | None:
        """Return why the last answer is not a valid output. None if it is valid, or if no retry or step is left."""
        steps = self.result.steps
        if not self._retries_left or self._steps_left <= 0 or not steps or steps[-1].results:
            return None
        return self._run.machine.output_fault or None


def _calls_natively(history: Iterable[Message]) -> bool:
    """Return whether a history contains a native call that a provider has made."""
    turns = [message for message in history if isinstance(message, Assistant)]
    calls = ((call, turn.origin.client) for turn in turns for call in turn.calls)
    return any(call.is_native and not (client and is_made_here(call.id)) for call, client in calls)


def _check_unanswered(calls: Iterable[ToolCall], history: list[Message]) -> None:
    """Raise ValueError if a history does not end with these calls, or if one of them has a result."""
    results = tuple(CallResult(call.dialect, call.name, "", call.id) for call in calls)
    try:
        pair_results([*history, Results(results)])
    except ValueError as error:
        raise ValueError(f"the messages do not end with the calls of the run that is resumed: {error}") from None


def _close_text_calls(history: list[Message], end: int) -> None:
    """Find the last turn before the index `end`. Mark its calls in text as answered by the next message."""
    for index in reversed(range(end)):
        if isinstance(turn := history[index], Assistant):
            history[index] = replace(turn, in_text=())
            return


def _read_reviewed(reviewed: list[dict[str, Any]], messages: list[dict[str, Any]], new: list[Message]) -> list[Message]:
    """Return the history for the `reviewed` messages.

    `messages` are the messages before the review, and `new` is the history from which they were written. If the review
    did not change a model's turn, the turn from `new` is used, because it has reasoning and signatures. Providers
    require these, and OpenAI's format cannot hold them. In `messages`, results of calls in text are user messages.
    Therefore any user message after calls in text answers these calls.
    """
    written = [message for message in messages if message["role"] == "assistant"]
    turns = [message for message in new if isinstance(message, Assistant)]
    known = list(zip(written, turns, strict=True))
    read = read_messages(
        next((turn for original, turn in known if original == message), message) for message in reviewed
    )
    for index, message in enumerate(read):
        if isinstance(message, User):
            _close_text_calls(read, index)
    return read


chat = Chat
"""Another name of `Chat`, for `async with chat(model, messages, tools=tools) as events:`."""
