"""Conversations, kept in memory, each for the holder of its key.

An answer is a run, and what it said stands in the log of the runs: here is only which runs there were, and the history
that goes to the model with the next question.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from streamtools.conversation.chatting import Chat
from streamtools.history import Assistant, Message
from streamtools.runs import Run


class Suggestion(NamedTuple):
    """A question that the page offers as a button."""

    name: str
    title: str
    question: str


class Answerer(Protocol):
    """Who answers."""

    @property
    def label(self) -> str:
        """The name of the model or the recordings, in a few words."""

    @property
    def note(self) -> str:
        """A note for the user, in a sentence or two; may be empty."""

    @property
    def suggestions(self) -> Sequence[Suggestion]:
        """Questions to begin with."""

    def answer(self, question: str, history: Sequence[Message], *, suggestion: str | None = None) -> Chat:
        """Return the answer, not yet entered. `suggestion` is the name of the one whose question it is."""


class Turn(NamedTuple):
    """A question, and the run that answers it. `asked` is how many messages the model was asked with."""

    question: str
    run: Run
    answer: Chat
    asked: int


class Conversation:
    """The turns so far. `key` cannot be guessed, and gives access to the conversation."""

    def __init__(self, max_turns: int) -> None:
        self.key = secrets.token_urlsafe(24)
        self.turns: list[Turn] = []
        self.dropped = 0
        """How many turns, the first ones, are shown no more."""
        self.is_asking = False
        """Whether a question is about to become a turn."""
        self._max_turns = max_turns

    @property
    def running(self) -> Turn | None:
        """The turn that goes on."""
        return self.turns[-1] if self.turns and not self.turns[-1].run.ended else None

    @property
    def history(self) -> list[Message]:
        """The messages that precede the next question; a question without an answer is forgotten."""
        for turn in reversed(self.turns):
            history = turn.answer.history
            if any(isinstance(message, Assistant) for message in history[turn.asked :]):
                return history
        return []

    def add(self, turn: Turn) -> None:
        """Note a turn that has begun."""
        self.turns.append(turn)
        if len(self.turns) > self._max_turns:
            self.dropped += 1
            del self.turns[0]


class Conversations:
    """All conversations by their keys: the `most` that were used last, within `max_age` seconds."""

    def __init__(
        self,
        *,
        most: int = 100,
        max_age: float = 12 * 3600.0,
        max_turns: int = 200,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._most = most
        self._max_age = max_age
        self._max_turns = max_turns
        self._clock = clock
        self._kept: dict[str, tuple[float, Conversation]] = {}  # the one that was used last stands last

    def __len__(self) -> int:
        return len(self._kept)

    def find(self, key: str | None) -> Conversation | None:
        """Return the conversation with this key, if there is one."""
        self._forget_old()
        _, found = self._kept.pop(key or "", (0.0, None))
        if found is not None:
            self._kept[found.key] = (self._clock(), found)
        return found

    def begin(self) -> Conversation:
        """Return a new one."""
        made = Conversation(self._max_turns)
        self._kept[made.key] = (self._clock(), made)
        self._forget_old()
        return made

    def forget(self, conversation: Conversation) -> None:
        """Forget one, and have its run stopped."""
        self._kept.pop(conversation.key, None)
        if conversation.running is not None:
            conversation.running.run.cancel()

    def _forget_old(self) -> None:
        while self._kept:
            used, oldest = next(iter(self._kept.values()))
            if len(self._kept) <= self._most and self._clock() - used < self._max_age:
                break
            self.forget(oldest)
