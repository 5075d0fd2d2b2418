"""Conversations, each for the holder of its key.

An answer is a run, and what it said stands in the log of the runs: here is only which runs there were, and the history
that goes to the model with the next question. That is kept in memory, or read from runs that several processes share,
each of which has its question as its note.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from streamtools.conversation.chatting import Chat
from streamtools.history import Assistant, Message, User, steps_to_history
from streamtools.history.messages import settle
from streamtools.runs import Run, Runs

MAX_TURNS = 200
"""How many turns of a conversation are shown."""


class Suggestion(NamedTuple):
    """A question that the page offers as a button."""

    name: str
    title: str
    question: str


class Answerer(Protocol):
    """Who answers. `client_tools`, if it has them, are the names of tools whose results the user writes.

    `tools`, if it has them, are dicts of a `name` and what there is to say `about` it. `recordings`, if it has them,
    are files by the names under which the debugger shows them, and `recording_of` returns the file in which what a
    model sends for an answer is recorded, or None.
    """

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
    """A question, and the run that answers it."""

    question: str
    run: Run


class Conversation:
    """The turns so far. `key` cannot be guessed, and gives access to the conversation."""

    def __init__(self, max_turns: int, key: str | None = None) -> None:
        self.key = secrets.token_urlsafe(24) if key is None else key
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

    def place(self, run: str | None) -> int:
        """Return which turn a run answers, or how many there are; raise `LookupError` for a run that answers none."""
        if run is None:
            return len(self.turns)
        for place, turn in enumerate(self.turns):
            if turn.run.id == run:
                return place
        raise LookupError(run)

    def history(self, place: int) -> list[Message]:
        """Return the messages that precede a turn; a question without an answer is forgotten."""
        history: list[Message] = []
        for turn in self.turns[:place]:
            result = turn.run.result
            answer = settle(steps_to_history(result.steps), None if result.reason == "finished" else "cancelled")
            if any(isinstance(message, Assistant) for message in answer):
                history += [User(turn.question), *answer]
        return history

    def note(self, place: int) -> dict[str, int]:
        """Return what is kept with a run, beside its question: how many turns stand before it."""
        return {"before": self.dropped + place}

    def add(self, turn: Turn, place: int) -> None:
        """Note a turn that has begun, in the place of those that stood there and behind."""
        self.turns[place:] = [turn]
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
        max_turns: int = MAX_TURNS,
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


async def shared_conversation(runs: Runs, key: str) -> Conversation | None:
    """Return the conversation with this key of which processes share the runs, if there is one."""
    found = [*reversed(await runs.list(key, limit=MAX_TURNS))] if key else []
    if not found:
        return None
    conversation = Conversation(MAX_TURNS, key)
    conversation.dropped = found[0].note["before"]
    for run in found:
        place = max(0, run.note["before"] - conversation.dropped)
        conversation.add(Turn(run.note["question"], run), place)
    return conversation
