"""Keeps the conversations of the web page, and defines the interface of the objects that answer its questions.

Each conversation belongs to one browser, which sends a cookie. The digest of the cookie is the `owner` of the
conversation. An answer is a run, whose events are in the event log. A conversation holds its runs in order. It
builds the history for the next request from their results.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from streamtools.conversation.chat_stream import Chat
from streamtools.errors import TooManyRuns
from streamtools.history import Assistant, Message, User
from streamtools.history.pairing import pair_results
from streamtools.history.parts import steps_to_history
from streamtools.runs import Run, Runs

MAX_TURNS = 200
"""The maximum number of questions in a conversation. Older questions are removed."""

MAX_CONVERSATIONS = 200
"""The maximum number of conversations of all browsers together."""

MAX_AGE_S = 12 * 3600.0
"""The number of seconds for which a conversation is kept after its last use."""


class Suggestion(NamedTuple):
    """A question that the page shows as a button."""

    name: str
    title: str
    question: str


class PageAnswer(NamedTuple):
    """The answer to a question: a chat that is not entered yet, and the path of its recording, if any."""

    chat: Chat
    recording: Path | None = None


class Answerer:
    """Base class of objects that answer the questions of the page."""

    label = ""
    """The name of the model or of the recordings, which the page shows."""
    note = ""
    """A short note that the page shows to the user."""
    suggestions: Sequence[Suggestion] = ()
    """The questions that the page suggests."""
    tools: Sequence[Mapping[str, str]] = ()
    """The tools with `name` and `about`, which the first screen shows."""
    client_tools: Sequence[str] = ()
    """The names of the tools whose results the user enters."""
    recordings: Mapping[str, Path] = MappingProxyType({})
    """The recordings that the debugger shows, by name."""
    has_recordings = False
    """True if answers have recordings."""

    def answer(self, question: str, history: Sequence[Message], *, suggestion: str | None = None) -> PageAnswer:
        """Answer a question. `suggestion` is the name of the chosen suggestion."""
        raise NotImplementedError


class ConversationTurn(NamedTuple):
    """A question, and the run that answers it."""

    question: str
    run: Run
    recording: Path | None


class Conversation:
    """The turns of one conversation, at most `max_turns`. `dropped` is the number of removed turns."""

    def __init__(self, owner: str, max_turns: int = MAX_TURNS) -> None:
        self.owner = owner
        self.id = secrets.token_urlsafe(12)
        self.turns: list[ConversationTurn] = []
        self.dropped = 0
        self.is_starting = False
        """True after a question was accepted, until its run has started."""
        self._max_turns = max_turns

    @property
    def open_run(self) -> Run | None:
        """The last run. None if there is no run, or if the last run has closed its source and stopped its tools."""
        last = self.turns[-1].run if self.turns else None
        return last if last is not None and not last.ended else None

    @property
    def is_answering(self) -> bool:
        """True while the last run has not sent `done`. After `done`, a run may still be closing its source."""
        return self.open_run is not None and self.open_run.result.reason is None

    @property
    def is_busy(self) -> bool:
        return self.is_starting or self.open_run is not None

    def position(self, run_id: str | None) -> int:
        """Return the index of the turn with this run. For None, return the number of turns.

        Raises ValueError for an unknown run.
        """
        return len(self.turns) if run_id is None else [turn.run.id for turn in self.turns].index(run_id)

    def history(self, position: int) -> list[Message]:
        """Return the messages of the turns before `position`. A question without an answer is skipped."""
        history: list[Message] = []
        for turn in self.turns[:position]:
            result = turn.run.result
            answer = pair_results(steps_to_history(result.steps), None if result.reason == "finished" else "cancelled")
            if any(isinstance(message, Assistant) for message in answer):
                history += [User(turn.question), *answer]
        return history

    def add(self, turn: ConversationTurn, position: int) -> None:
        """Insert a turn at `position`. It replaces the turn at this position and all later turns."""
        self.turns[position:] = [turn]
        if len(self.turns) > self._max_turns:
            self.dropped += 1
            del self.turns[0]


@dataclass(kw_only=True, eq=False)
class Conversations:
    """All conversations, at most `limit`. If there is no room, a new one replaces the least recently used idle one.

    `max_age` is the number of seconds for which a conversation is kept after its last use. `clock` returns the time in
    seconds.
    """

    limit: int = MAX_CONVERSATIONS
    max_age: float = MAX_AGE_S
    max_turns: int = MAX_TURNS
    clock: Callable[[], float] = time.time
    runs: Runs | None = None
    """The runs of the answers. None until the application has started."""
    _by_id: dict[str, tuple[float, Conversation]] = field(default_factory=dict)  # id to time of last use; oldest first

    def __len__(self) -> int:
        return len(self._by_id)

    def __contains__(self, conversation: Conversation) -> bool:
        return conversation.id in self._by_id

    def of(self, owner: str) -> list[Conversation]:
        """Return the conversations of a browser. The most recently used conversation is the first."""
        self._delete_expired()
        return [conversation for _, conversation in reversed(self._by_id.values()) if conversation.owner == owner]

    def touch(self, conversation: Conversation) -> None:
        """Set the time of the last use of a conversation to now."""
        self._by_id.pop(conversation.id, None)
        self._by_id[conversation.id] = (self.clock(), conversation)

    def create(self, owner: str) -> Conversation:
        """Create a conversation for a browser. Raises TooManyRuns if there is no room and no conversation is idle."""
        self._delete_expired()
        if len(self._by_id) >= self.limit:
            idle = (conversation for _, conversation in self._by_id.values() if not conversation.is_busy)
            oldest = next(idle, None)
            if oldest is None:
                raise TooManyRuns("all conversations are being answered")
            self.delete(oldest)
        conversation = Conversation(owner, self.max_turns)
        self.touch(conversation)
        return conversation

    def delete(self, conversation: Conversation) -> None:
        """Delete a conversation and its runs. Cancel its open run."""
        self._by_id.pop(conversation.id, None)
        if conversation.open_run is not None:
            conversation.open_run.cancel()
        if self.runs is not None:
            for turn in conversation.turns:
                self.runs.forget_ended(turn.run.id, owner=conversation.owner)

    def _delete_expired(self) -> None:
        for last_use, conversation in list(self._by_id.values()):
            if self.clock() - last_use < self.max_age:
                break
            if not conversation.is_busy:
                self.delete(conversation)


def owner_of(cookie: str) -> str:
    """Return the `owner` of conversations for a cookie: its digest, or "" without a cookie."""
    return sha256(cookie.encode("utf-8", "surrogatepass")).hexdigest() if cookie else ""
