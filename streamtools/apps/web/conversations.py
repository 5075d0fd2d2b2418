"""The conversations of the page. Each belongs to one owner: the browser that holds its cookie.

An answer is a run, and its events are in the log of the runs. A conversation keeps its runs in order, and makes from
them the history that the model receives with the next question.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import NamedTuple, Protocol

from streamtools.conversation.chat_stream import Chat
from streamtools.errors import TooManyRuns
from streamtools.history import Assistant, Message, User
from streamtools.history.pairing import pair_results
from streamtools.history.parts import steps_to_history
from streamtools.runs import Run, Runs

MAX_TURNS = 200
"""Questions of a conversation that the page shows."""

MAX_CONVERSATIONS = 200
"""Conversations of all owners together."""

MAX_AGE_S = 12 * 3600.0
"""How long a conversation is kept after its last use."""

PARAMETERS = ("temperature", "max_tokens")
"""Request parameters that the page can set, if its answerer allows them."""


class Suggestion(NamedTuple):
    """A question that the page offers as a button."""

    name: str
    title: str
    question: str


class Answerer(Protocol):
    """Answers questions. These attributes are optional:

    - `tools`: dicts with `name` and `about`, listed on the first screen.
    - `client_tools`: names of tools whose results the user enters.
    - `recordings`: recordings by the name under which the debugger shows them.
    - `recording_of(answer)`: the file to which the bytes of an answer are recorded, or None.
    - `parameters`: the `PARAMETERS` that a question may set. `answer` receives them as `request`.
    """

    @property
    def label(self) -> str:
        """The name of the model or of the recordings."""

    @property
    def note(self) -> str:
        """A sentence or two for the user; may be empty."""

    @property
    def suggestions(self) -> Sequence[Suggestion]:
        """Questions to begin with."""

    def answer(self, question: str, history: Sequence[Message], *, suggestion: str | None = None) -> Chat:
        """Return the answer, not yet entered. `suggestion` is the name of the suggestion that was chosen."""


class ConversationTurn(NamedTuple):
    """A question, and the run that answers it."""

    question: str
    run: Run


class Conversation:
    """The turns of one conversation. `dropped` counts the first turns that are no longer kept."""

    def __init__(self, owner: str, max_turns: int = MAX_TURNS) -> None:
        self.owner = owner
        self.id = secrets.token_urlsafe(12)
        self.turns: list[ConversationTurn] = []
        self.dropped = 0
        self.is_starting = False
        """Whether a question was accepted, and its run is about to start."""
        self._max_turns = max_turns

    @property
    def open_run(self) -> Run | None:
        """The last run, unless it has closed its source and tools."""
        last = self.turns[-1].run if self.turns else None
        return last if last is not None and not last.ended else None

    @property
    def is_answering(self) -> bool:
        """Whether an answer is still being written. A run that has sent `done` may still be closing its source."""
        return self.open_run is not None and self.open_run.result.reason is None

    @property
    def is_busy(self) -> bool:
        return self.is_starting or self.open_run is not None

    def position(self, run_id: str | None) -> int:
        """Return the index of the turn with this run, or the end if `run_id` is None. Raises ValueError."""
        return len(self.turns) if run_id is None else [turn.run.id for turn in self.turns].index(run_id)

    def history(self, position: int) -> list[Message]:
        """Return the messages before a turn. A question without an answer is left out."""
        history: list[Message] = []
        for turn in self.turns[:position]:
            result = turn.run.result
            answer = pair_results(steps_to_history(result.steps), None if result.reason == "finished" else "cancelled")
            if any(isinstance(message, Assistant) for message in answer):
                history += [User(turn.question), *answer]
        return history

    def add(self, turn: ConversationTurn, position: int) -> None:
        """Put a turn at `position`. It replaces all turns from there on."""
        self.turns[position:] = [turn]
        if len(self.turns) > self._max_turns:
            self.dropped += 1
            del self.turns[0]


@dataclass(kw_only=True, eq=False)
class Conversations:
    """All conversations, at most `limit`. The least recently used idle conversation makes room for a new one."""

    limit: int = MAX_CONVERSATIONS
    max_age: float = MAX_AGE_S
    max_turns: int = MAX_TURNS
    clock: Callable[[], float] = time.time
    runs: Runs | None = None
    """The runs of the answers; set when the application starts."""
    _by_id: dict[str, tuple[float, Conversation]] = field(default_factory=dict)  # in order of last use

    def __len__(self) -> int:
        return len(self._by_id)

    def __contains__(self, conversation: Conversation) -> bool:
        return conversation.id in self._by_id

    def of(self, owner: str) -> list[Conversation]:
        """Return the conversations of an owner, the most recently used first."""
        self._delete_expired()
        return [conversation for _, conversation in reversed(self._by_id.values()) if conversation.owner == owner]

    def touch(self, conversation: Conversation) -> None:
        """Mark a conversation as used now."""
        self._by_id.pop(conversation.id, None)
        self._by_id[conversation.id] = (self.clock(), conversation)

    def create(self, owner: str) -> Conversation:
        """Return a new conversation. Raises TooManyRuns if there is no room and all conversations are busy."""
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
        """Delete a conversation, cancel its open run, and forget its runs."""
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
    """Return the owner for a cookie: its digest, or "" without a cookie."""
    return sha256(cookie.encode("utf-8", "surrogatepass")).hexdigest() if cookie else ""
