"""The conversation as one stream: ask the model, run its tools, put the results back, ask again until it is done.

A chat is a `ToolStream` whose source goes on: when an answer has ended, its calls have been run and its step is over,
the follow-up request is sent, and its answer is read as the next turn of the same run. So the events, their order and
the one ending are those of any stream; what is added is the `follow-up` between two steps.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from inspect import isawaitable
from typing import Any, Literal, TypeAlias, Unpack

from streamtools.conversation.emulation import EmulatedAnswer, Emulation, Mode, check
from streamtools.conversation.messages import (
    Message,
    System,
    calls_as_text,
    read_messages,
    steps_to_history,
    write_messages,
)
from streamtools.conversation.models.base import Ask, Model
from streamtools.conversation.prompts import augment_system_prompt
from streamtools.conversation.prompts import few_shot as write_examples
from streamtools.conversation.request import Answer
from streamtools.events import FollowUp, Thinking
from streamtools.machine import StreamMachine
from streamtools.parsing.dialects import choose_dialects
from streamtools.parsing.options import ParserOptions
from streamtools.stream import EventSource, StreamOptions, ToolStream
from streamtools.tools import ToolRegistry
from streamtools.tools.choice import ToolChoice, parse
from streamtools.tools.guards import Watch
from streamtools.tools.registry import ToolsLike

Review: TypeAlias = Callable[
    [list[dict[str, Any]]], "list[dict[str, Any]] | Awaitable[list[dict[str, Any]] | None] | None"
]
"""Gets the follow-up messages in OpenAI's form, and returns them, changed or not, or None to end the run."""


class Chat(ToolStream):
    """One run of a conversation: an asynchronous context manager that is also the iterator of its events.

    `messages` are those of OpenAI's chat form, or of `history`. A model whose `native_tool_calls` is False is taught
    the first of the dialects (by default `tilde_fence`) in its system prompt, if that can be taught (`teach="auto"`;
    `"always"`, `"never"`), and with examples too if `few_shot`, for base models; others are sent the definitions of the
    tools. After a turn with calls their results are sent back (`follow_up="auto"`), and the answer is the next step, at
    most `max_steps` of them: in the last, calls are not run but pending. `review` sees each follow-up before it is
    sent. `emulation` is for models that make no calls at all. `request` is merged into the body of each request. A
    `tool_choice` that forces a call holds for the first step. The other parameters are those of `ToolStream`. Raises
    ValueError for values that are not allowed.
    """

    def __init__(
        self,
        model: Model,
        messages: Iterable[Mapping[str, Any] | Message],
        *,
        tools: ToolsLike | None = None,
        follow_up: Literal["auto", "never"] = "auto",
        review: Review | None = None,
        max_steps: int = 10,
        emulation: Mode | Emulation = "off",
        teach: Literal["auto", "always", "never"] = "auto",
        few_shot: bool = False,
        request: Mapping[str, Any] | None = None,
        **options: Unpack[StreamOptions],
    ) -> None:
        for name, value, allowed in (
            ("follow_up", follow_up, ("auto", "never")),
            ("teach", teach, ("auto", "always", "never")),
        ):
            if value not in allowed:
                raise ValueError(f"{name} is one of {', '.join(map(repr, allowed))}, not {value!r}")
        if max_steps < 1:
            raise ValueError(f"max_steps is at least 1, not {max_steps!r}")
        self._model = model
        self._registry = ToolRegistry.of(tools if tools is not None else ())
        self._emulation = emulation if isinstance(emulation, Emulation) else Emulation(mode=emulation)
        check(self._emulation, list(self._registry))
        options.setdefault("native_tool_calls", model.native_tool_calls)
        self._native = options["native_tool_calls"]
        self._armed = choose_dialects(options.get("dialects"))
        self._taught = next((each for each in self._armed if each.id == "tilde_fence"), next(iter(self._armed), None))
        if options.get("dialects") is not None:
            self._taught = next(iter(self._armed), None)
        self._few_shot = few_shot
        can = self._taught is not None and self._taught.teachable
        self._teaches = teach == "always" or (teach == "auto" and self._native is False and can)
        self._parsing = {name: options[name] for name in _OF_THE_PARSER if name in options}  # type: ignore[literal-required]
        self._messages = read_messages(messages)
        self._request = dict(request or {})
        self._sent = 0  # steps that are among the messages
        self._follow_up = follow_up
        self._review = review
        self._steps_left = max_steps
        self._watch = Watch.of(options.get("guards"))
        self._wish = parse(options.get("tool_choice", "auto"))
        options["guards"] = self._watch
        super().__init__(self._ask(), tools=self._registry if tools is not None else None, **options)

    @property
    def history(self) -> list[Message]:
        """The conversation as it stands, to be gone on with in another chat."""
        return [*self._messages, *steps_to_history(self.result.steps[self._sent :])]

    def messages(self, format: str = "openai") -> list[dict[str, Any]]:
        """Return the history in the form of a provider; see `TurnResult.messages`."""
        return write_messages(self.history, format, dialects=self._armed)

    def _ask(self) -> EventSource:
        """Return the source of the answer to the conversation as it stands."""
        self._steps_left -= 1
        self._watch.last_turn = self._steps_left == 0
        tools = tuple(self._registry)
        in_text = self._native is False and self._emulation.mode == "off"
        history = self._teach(self._messages) if self._teaches else self._messages
        ask = Ask(
            history=tuple(calls_as_text(history, self._taught) if in_text else history),
            tools=() if in_text else tools,
            tool_choice=self._wish,
            options=self._request,
            dialects=self._armed,
        )
        if self._emulation.mode == "off" or not tools:
            return Answer(self._model, ask)
        return EmulatedAnswer(self._model, ask, self._emulation, self._probe, self._think)

    def _teach(self, messages: list[Message]) -> list[Message]:
        """Return messages whose system prompt tells how tools are called."""
        first = messages[0] if messages else None
        base, rest = (first.text, messages[1:]) if isinstance(first, System) else (None, messages)
        prompt = base
        if self._taught is not None:
            prompt = augment_system_prompt(base, self._registry, self._taught)
            rest = [*read_messages(write_examples(self._taught, self._registry)), *rest] if self._few_shot else rest
        return [System(prompt), *rest] if prompt else rest

    def _probe(self) -> StreamMachine:
        """Return a machine that reads an answer as the run's own does."""
        return StreamMachine(
            tools=self._registry, execute="never", native_tool_calls=self._native, dialects=self._armed, **self._parsing
        )

    def _think(self, active: bool) -> None:
        self._hand_out((Thinking(active, seq=self._machine.number()),))

    async def _follow(self) -> EventSource | None:
        """Send what came of the step, if anything has to be said to the model, and return its answer."""
        machine = self._machine
        if self._follow_up == "never" or not machine.may_go_on or machine.pending or self._wish.mode == "none":
            return None
        step = self.result.steps[-1]
        if not step.answers:
            return None
        if self._steps_left == 0:
            self._watch.trip("max_steps")
        if self._watch.why is not None:
            self._hand_out(machine.stop(self._watch.why))
            return None
        new = steps_to_history([step])
        messages = write_messages(new, "openai", dialects=self._armed)
        if self._review is not None:
            reviewed = self._review([dict(message) for message in messages])
            if isawaitable(reviewed):
                reviewed = await reviewed
            if reviewed is None:
                return None
            if reviewed != messages:
                messages, new = reviewed, read_messages(reviewed)
        self._messages += new
        self._sent = len(self.result.steps)
        self._wish = ToolChoice()
        machine.go_on()
        self._hand_out((FollowUp(messages, seq=machine.number()),))
        return self._ask()


_OF_THE_PARSER = tuple(ParserOptions.__annotations__)

chat = Chat
"""The name by which a conversation is begun: `async with chat(model, messages, tools=tools) as events:`."""
