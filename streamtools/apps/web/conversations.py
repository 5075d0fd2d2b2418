"""Conversations, each of one owner: the browser with a cookie.

An answer is a run, and what it said stands in the log of the runs: here is only which runs there were, and the history
that goes to the model with the next question. That is kept in memory, and in a file if there is one (`kept.py`), or
read from runs that several processes share, each of which has its question and its conversation as its note.
"""

from __future__ import annotations

import re
import secrets
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Annotated, Any, NamedTuple, Protocol

import msgspec
from starlette.exceptions import HTTPException

from streamtools.apps.web.kept import ConversationFile, EndedRun
from streamtools.conversation.chatting import Chat
from streamtools.errors import TooManyRuns
from streamtools.events import ApprovalRequested, read_ui_event
from streamtools.history import Assistant, Message, User, steps_to_history
from streamtools.history.messages import settle
from streamtools.runs import Run, Runs

MAX_TURNS = 200
"""How many turns of a conversation are shown."""

MOST = 200
"""How many conversations are kept, of all owners together."""

PARAMETERS = ("temperature", "max_tokens")
"""What a page may say of how a model is asked, where its answerer lets it."""


class Suggestion(NamedTuple):
    """A question that the page offers as a button."""

    name: str
    title: str
    question: str


class Answerer(Protocol):
    """Who answers. `client_tools`, if it has them, are the names of tools whose results the user writes.

    `tools`, if it has them, are dicts of a `name` and what there is to say `about` it. `recordings`, if it has them,
    are files by the names under which the debugger shows them, and `recording_of` returns the file in which what a
    model sends for an answer is recorded, or None. `parameters`, if it has them, are those of `PARAMETERS` that a
    question may bring along: `answer` gets them as its `request`, by their names. If it has `images`, and they are
    true, it may also bring these, and `answer` gets their `data:` addresses as its `images`.
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
    run: Run | EndedRun
    images: Sequence[str] = ()


class Conversation:
    """The turns so far."""

    def __init__(self, max_turns: int, owner: str, id: str | None = None) -> None:
        self.owner = owner
        self.id = secrets.token_urlsafe(12) if id is None else id
        self.turns: list[Turn] = []
        self.dropped = 0
        """How many turns, the first ones, are shown no more."""
        self.is_asking = False
        """Whether a question is about to become a turn."""
        self.came_back = False
        """Whether its browser has shown its cookie, as all do that have one."""
        self._max_turns = max_turns

    @property
    def running(self) -> Run | None:
        last = self.turns[-1].run if self.turns else None
        return last if isinstance(last, Run) and not last.ended else None

    @property
    def is_answered(self) -> bool:
        """Whether an answer is being given: its run may have said its end, and go on to close what is behind it."""
        return self.running is not None and self.running.result.reason is None

    @property
    def is_busy(self) -> bool:
        """Whether it cannot be forgotten without an answer that is broken off."""
        return self.is_asking or self.running is not None

    def place(self, run: str | None) -> int:
        """Return which turn a run answers, or how many there are; raise ValueError for a run that answers none."""
        return len(self.turns) if run is None else [turn.run.id for turn in self.turns].index(run)

    def history(self, place: int) -> list[Message]:
        """Return the messages that precede a turn; a question without an answer is forgotten."""
        history: list[Message] = []
        for turn in self.turns[:place]:
            result = turn.run.result
            answer = settle(steps_to_history(result.steps), None if result.reason == "finished" else "cancelled")
            if any(isinstance(message, Assistant) for message in answer):
                history += [user_message(turn.question, turn.images), *answer]
        return history

    def note(self, question: str, place: int, images: Sequence[str]) -> dict[str, Any]:
        """Return what is kept with a run: its question, and how many turns of which conversation stand before it."""
        return {"question": question, "conversation": self.id, "before": self.dropped + place, "images": images}

    def add(self, turn: Turn, place: int) -> list[str]:
        """Note a turn that has begun, in the place of those that stood there and behind. Return which runs are gone."""
        gone = self.turns[place:]
        self.turns[place:] = [turn]
        if len(self.turns) > self._max_turns:
            self.dropped += 1
            gone.append(self.turns.pop(0))
        return [each.run.id for each in gone]


@dataclass(kw_only=True, eq=False)
class Conversations:
    """All conversations: `most`, and `each` of an owner, used within `max_age` seconds. `kept` has those of before.

    Where there is no room, one goes whose owner has never come back, as nobody does who keeps no cookie and is another
    owner with each question; then one of the owner who has the most: of these the one that was used least recently, and
    none that is being answered. Its answers go with it.
    """

    most: int = MOST
    each: int = 100
    max_age: float = 12 * 3600.0
    max_turns: int = MAX_TURNS
    clock: Callable[[], float] = time.time
    kept: ConversationFile | None = None

    def __post_init__(self) -> None:
        self.runs: Runs | None = None
        """Those that keep the answers."""
        self._by_id: dict[str, tuple[float, Conversation]] = {}  # by id; the one that was used last stands last
        for turn in self.kept.turns() if self.kept is not None else ():
            made = Conversation(self.max_turns, turn.owner, turn.conversation)
            _, conversation = self._by_id.setdefault(made.id, (turn.used, made))
            conversation.turns.append(Turn(turn.question, turn.run, turn.images))
            conversation.came_back = True

    def __len__(self) -> int:
        return len(self._by_id)

    def __contains__(self, conversation: Conversation) -> bool:
        return conversation.id in self._by_id

    def of(self, owner: str) -> list[Conversation]:
        """Return those of an owner, the one that was used last before the others."""
        self._forget_old()
        found = [each for _, each in reversed(self._by_id.values()) if each.owner == owner]
        for each in found:
            each.came_back = True
        return found

    def use(self, conversation: Conversation) -> None:
        self._by_id.pop(conversation.id, None)
        self._by_id[conversation.id] = (now := self.clock(), conversation)
        if self.kept is not None and conversation.turns:
            self.kept.use(conversation.id, conversation.owner, now)

    def begin(self, owner: str) -> Conversation:
        """Return a new one. Raises `TooManyRuns` if all those are being answered that could go for it."""
        self._forget_old()
        while True:
            known = [each for _, each in self._by_id.values()]
            counts = Counter(each.owner for each in known)
            idle = [each for each in known if not each.is_busy]
            if counts[owner] >= self.each:
                idle = [each for each in idle if each.owner == owner]
            elif len(known) < self.most:
                break
            if not idle:
                raise TooManyRuns("all conversations are being answered")
            back = {each.owner for each in known if each.came_back}
            self.forget(max(idle, key=lambda each: (each.owner not in back, counts[each.owner])))  # the first of them
        made = Conversation(self.max_turns, owner)
        self.use(made)
        return made

    def add(self, conversation: Conversation, turn: Turn, place: int) -> None:
        """Note a turn that has begun, as `Conversation.add` does."""
        gone = conversation.add(turn, place)
        if self.kept is not None and isinstance(turn.run, Run):
            self.kept.use(conversation.id, conversation.owner, self.clock())
            self.kept.add(conversation.id, turn.question, turn.run, turn.images, gone)

    def forget(self, conversation: Conversation) -> None:
        """Forget one, and have its run stopped."""
        self._by_id.pop(conversation.id, None)
        if conversation.running is not None:
            conversation.running.cancel()
        if self.kept is not None:
            self.kept.forget(conversation.id)
        if self.runs is not None:
            for turn in conversation.turns:
                self.runs.let_go(turn.run.id, owner=conversation.owner)

    def _forget_old(self) -> None:
        for used, oldest in [*self._by_id.values()]:
            if self.clock() - used < self.max_age:
                break
            if not oldest.is_busy:
                self.forget(oldest)


async def shared_conversations(runs: Runs, owner: str) -> list[Conversation]:
    """Return an owner's conversations of which processes share the runs, the one that was used last at first."""
    found: dict[str, Conversation] = {}
    for run in reversed(await runs.list(owner, limit=MAX_TURNS)) if owner else ():
        id, before = run.note["conversation"], run.note["before"]
        conversation = found.pop(id, None)
        if conversation is None:
            conversation = Conversation(MAX_TURNS, owner, id)
            conversation.dropped = before
        turn = Turn(run.note["question"], run, run.note.get("images", ()))
        conversation.add(turn, max(0, before - conversation.dropped))
        found[id] = conversation
    return [*reversed(found.values())]


def owner_of(key: str) -> str:
    """Return the name under which the browser with this cookie owns what it asks: a digest, because a file keeps it."""
    return sha256(key.encode("utf-8", "surrogatepass")).hexdigest() if key else ""


def choose(known: Sequence[Conversation], id: str | msgspec.UnsetType | None) -> Conversation | None:
    """Return the conversation of this id, if it is known; without any, the first."""
    return next((each for each in known if id in (msgspec.UNSET, each.id)), None)


# What the page posts: questions with their images, and decisions.

MAX_QUESTION = 100_000
"""Characters of a question."""

MAX_IMAGES = 8
"""Images of a question, which share the body of its request with it."""

MAX_KEPT_IMAGES = 2 * 1024 * 1024
"""Characters of all images of a conversation, each of which goes to the model with every question."""

_IMAGE = re.compile(r"data:image/(?:gif|jpeg|png|webp);base64,[A-Za-z0-9+/]++={0,2}")


class QuestionBody(msgspec.Struct, forbid_unknown_fields=True):
    question: str | None = None
    suggestion: str | None = None
    images: Sequence[str] = ()
    replace: str | None = None
    conversation: str | msgspec.UnsetType | None = msgspec.UNSET
    temperature: Annotated[float, msgspec.Meta(ge=0, le=2)] | None = None
    max_tokens: Annotated[int, msgspec.Meta(ge=1, le=10_000_000)] | None = None


class DecisionBody(msgspec.Struct, forbid_unknown_fields=True):
    approve: bool | None = None
    shown: str = ""
    reason: str = ""
    result: Any = msgspec.UNSET
    error: str | None = None


def check_images(images: Sequence[str], before: Sequence[str]) -> None:
    """Refuse images that are none, or too many behind those of `before` in the conversation."""
    if len(images) > MAX_IMAGES:
        raise HTTPException(413, f"a question may have {MAX_IMAGES} images")
    if not all(map(_IMAGE.fullmatch, images)):
        raise HTTPException(400, "an image is a GIF, a JPEG, a PNG or a WebP, written out in Base64")
    if images and sum(map(len, (*before, *images))) > MAX_KEPT_IMAGES:
        raise HTTPException(413, "this conversation has as many images as it may have: begin a new one")


def user_message(question: str, images: Sequence[str]) -> User:
    """Return a question as the model gets it."""
    parts = [{"type": "image_url", "image_url": {"url": each}} for each in images]
    return User([{"type": "text", "text": question}, *parts] if parts else question)


def shown_digest(text: str, call_id: str) -> str:
    """Return the digest of the call that the page has shown, which sends back the event that asked."""
    try:
        event = read_ui_event(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        event = None
    if not isinstance(event, ApprovalRequested) or event.call.id != call_id:
        raise HTTPException(400, "to approve takes the event that asked")
    return event.call.digest
