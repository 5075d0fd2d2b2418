"""Assigns the pieces of `tool_calls` to calls. Sans-IO.

Each entry of `tool_calls` is a piece of a call. Its `index` identifies a slot, and its `id` identifies a call in this
slot. OpenAI sends both with the first piece of a call, and later only the index. Compatible servers omit one of them,
repeat both, or send the index 0 for every call. A slot may therefore hold several calls in order. "The latest call" is
the newest call of the slot. The following tables decide which call a piece belongs to. If the slot is empty, the piece
begins a new call, apart from the exceptions in the first table. The name of the call may follow later.

    index of the piece            slot
    an integer                    the slot with this number, or slot 0 for a negative number
    missing, null, anything else  a common slot for all such pieces. Exceptions: a known id selects its call in any
                                  slot. While this slot is empty, a piece without id and name belongs to the call that
                                  began last in any slot.

    id of piece  name of piece          call
    known        any                    the call with this id
    new          any                    a new call if the latest call has an id, or if the piece has a name and the
                                        latest call has a name and closed arguments. Otherwise the latest call, which
                                        gets this id.
    none         none                   the latest call
    none         any, if the latest     the latest call, which gets this name
                 call has no name
    none         the name of the        a new call if the latest call has closed arguments and the piece has different
                 latest call            arguments. Otherwise the latest call.
    none         another name           a new call if the latest call has closed arguments. Otherwise the latest call.

A name arrives whole. If a call later gets a different name, this name is also reported, so that the conflict is
visible.

Arguments are closed when all their brackets are closed. An exact repetition of closed arguments is dropped, because
some servers repeat the whole call at its end. But two equal entries of one list are two calls. A piece without content
does not begin a call.

An entry without a `type`, or with the type "function", is a function call. An entry of any other type is returned to
the caller if it has no `function`, such as a call of a custom tool with free text. If an entry or its `function` is not
an object, the entry is also returned. Its call has then lost a part of its arguments, and is marked as faulty. The id,
the slot or the name of the entry identifies the call. If the entry has only a slot, the call is not marked if its
arguments are closed. If the entry has none of the three, all calls with open arguments are marked. An entry that is
null is only returned.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from io import StringIO
from typing import Any, NamedTuple, TypeAlias

from streamtools.errors import Code
from streamtools.events import SourceEvent, ToolCallStart
from streamtools.json_values import fits
from streamtools.limits import DEFAULT_LIMITS, Limits
from streamtools.sources.adapter import OpenCall
from streamtools.sources.provider_terms import string, text_under

_Slot: TypeAlias = int | str | None
_OLD_SLOT = "function_call"  # the slot of the `function_call` field, an older form with one call per turn

_outside = re.compile(r'["{}\[\]]')  # outside a string: a quote or a bracket
_inside = re.compile(r'["\\]')  # inside a string: a quote or a back-slash


@dataclass(slots=True)
class Brackets:
    """Detects the end of JSON that arrives in pieces, by counting brackets and quotes.

    A regular expression scans each character once, and the text is not stored. Invalid JSON raises no exception.
    """

    _begun: bool = False
    _depth: int = 0
    _in_string: bool = False
    _escaped: bool = False

    @property
    def closed(self) -> bool:
        """Whether the object, array or string has ended. Always False for a number or word, which may continue."""
        return self._begun and self._depth == 0 and not self._in_string

    def feed(self, text: str) -> None:
        """Read the next piece of the JSON text."""
        at = 0
        if self._escaped and text:
            self._escaped = False
            at = 1
        while found := (_inside if self._in_string else _outside).search(text, at):
            at = found.end()
            mark = found[0]
            if mark == '"':
                self._begun = True
                self._in_string = not self._in_string
            elif mark == "\\":
                self._escaped = at == len(text)
                at += 1
            elif mark in "{[":
                self._begun = True
                self._depth += 1
            elif self._depth:
                self._depth -= 1


class _Piece(NamedTuple):
    """The content of one entry of `tool_calls`. A missing or empty field is None."""

    slot: _Slot
    id: str | None
    name: str | None
    text: str | None  # the arguments if they are a string
    value: Any  # the arguments if they are of any other type
    signature: str | None
    unreadable: bool = False  # the entry or its `function` is not an object

    @property
    def is_blank(self) -> bool:
        """Whether the piece contains no arguments, or only white space."""
        return self.value is None and (self.text is None or self.text.isspace())


@dataclass(slots=True, eq=False)
class _Call(OpenCall):
    """A call that has begun. `OpenCall.given` holds arguments that did not arrive as text, usually an object."""

    text: StringIO = field(default_factory=StringIO)  # the text of the arguments; empty if it exceeds `Limits.frame`
    size: int = 0  # the length of this text
    brackets: Brackets = field(default_factory=Brackets)

    @property
    def closed(self) -> bool:
        return self.given is not None or self.brackets.closed

    def has_same_arguments(self, piece: _Piece) -> bool:
        """Return whether the arguments of the call are closed and equal to the arguments of `piece`."""
        if self.given is not None and piece.value is not None:
            return bool(self.given == piece.value)
        if piece.text is None or len(piece.text) != self.size or not self.brackets.closed:
            return False
        return self.text.getvalue() == piece.text


class ChatCalls:
    """The native calls of one turn.

    `take` and `take_function_call` read pieces and append their events. `flush` and `complete` append the ends of
    calls.
    """

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        self._limits = limits
        self._calls: list[_Call] = []  # all calls, in the order of their start
        self._latest: dict[_Slot, _Call] = {}  # the newest call of each slot
        self._by_id: dict[tuple[_Slot, str], _Call] = {}  # calls by slot and id, and by None and id
        self._last: _Call | None = None  # the call that began last
        self._excess: _Call | None = None  # a placeholder for all calls over the limit, with the id of the last one
        self._last_excess_slot: _Slot | bool = False  # the slot of the last call over the limit; False if there is none
        self._excess_count = 0  # the number of calls over the limit
        self._all_faulty = False  # all open calls were marked as faulty, and no readable piece has arrived since
        self._listed: dict[str, None] = {}  # the keys of calls with a piece in the current list

    def take(self, entries: Any, events: list[SourceEvent]) -> list[Any]:
        """Append the events of `entries`, the value of `tool_calls`. Returns the entries that are not understood."""
        self._listed.clear()
        listed = entries if isinstance(entries, list) else [entries]
        return [entry for entry in listed if not self._add(_read(entry), events)]

    def take_function_call(self, function: Any, events: list[SourceEvent]) -> list[Any]:
        """Append the events of `function`, the value of `function_call`. Returns `[function]` if it is not
        understood."""
        self._listed.clear()
        piece = _read_function(function, _OLD_SLOT, {}) if isinstance(function, dict) else _unreadable(_OLD_SLOT, {})
        return [] if self._add(piece, events) else [function]

    @property
    def has_tool_calls(self) -> bool:
        """Whether a call arrived in `tool_calls`, not in `function_call`."""
        return any(slot != _OLD_SLOT for slot in self._latest)

    def flush(self, events: list[SourceEvent]) -> None:
        """Append buffered data at the end of a turn: U+FFFD for half a surrogate pair, and the ends of faulty calls."""
        for call in self._calls:
            call.add(call.pair_joiner.close(), events)
            if call.fault is not None:
                call.end(None, events)

    def complete(self, events: list[SourceEvent]) -> None:
        """Append the ends of all calls without a fault. Called if the turn is complete."""
        for call in self._calls:
            if call.fault is None:
                call.end(call.given, events)

    def _add(self, piece: _Piece | None, events: list[SourceEvent]) -> bool:
        """Append the events of a piece. Returns False if it is not understood or belongs to no call."""
        if piece is _EMPTY:
            return True
        if piece is None:
            return False
        fault = Code.INVALID_ARGUMENTS if piece.unreadable else None
        if piece.value is not None and not fits(piece.value, self._limits.depth):
            fault = Code.TOO_DEEP
            piece = piece._replace(value=None)
        if fault is not None and piece.id is None and piece.name is None and piece.slot is None:
            for open_call in () if self._all_faulty else self._calls:
                if not open_call.closed:
                    open_call.fault = open_call.fault or fault
            self._all_faulty = True
            return False
        self._all_faulty = False
        call = self._route(piece)
        if (len(self._calls) >= self._limits.calls) if call is None else (call is self._excess):
            return self._refuse(piece, events)
        # An entry that is too deep, or that is unreadable and has neither id nor name, only shows that arguments of its
        # call are lost.
        if fault is not None and (fault is Code.TOO_DEEP or piece.id is None is piece.name):
            if call is not None and not call.closed:
                call.fault = call.fault or fault
            return False
        must_announce = call is None
        if call is None:
            if piece.id is None and piece.name is None and piece.text is None and piece.value is None:
                return False  # a signature without a call, or an unreadable piece
            call = self._begin(piece.slot)
        elif piece.name and call.name and piece.name != call.name:
            events.append(ToolCallStart(call.key, name=piece.name))
        call.fault = call.fault or fault
        self._listed[call.key] = None
        if piece.id is not None and call.id is None:
            call.id = piece.id
            self._by_id[piece.slot, piece.id] = self._by_id[None, piece.id] = call
            must_announce = True
        if piece.name and call.name is None:
            call.name = piece.name
            must_announce = True
        if must_announce:
            call.start(events)
        call.signature = call.signature or piece.signature
        adds_arguments = (piece.text is not None or piece.value is not None) and not call.has_same_arguments(piece)
        if adds_arguments and piece.text is not None:
            call.brackets.feed(piece.text)
            call.size += len(piece.text)
            if call.size <= self._limits.frame:
                call.text.write(piece.text)
            else:
                call.text = StringIO()
            call.add(piece.text, events)
        elif adds_arguments:
            if call.given is not None:
                return False
            call.given = piece.value
        return fault is None

    def _route(self, piece: _Piece) -> _Call | None:
        """Return the call of a piece, or None for a new call."""
        slot, id, name = piece.slot, piece.id, piece.name
        if id is not None and (known := self._by_id.get((slot, id))) is not None:
            return known
        latest = self._latest.get(slot)
        if latest is None:
            return self._last if slot is None and id is None and name is None else None
        if id is not None:
            is_new = latest.id is not None or (name is not None and latest.name is not None and latest.closed)
            return None if is_new else latest
        if name is None or not latest.name or not latest.closed:
            return latest
        if name != latest.name:
            return None
        is_repetition = piece.is_blank or (latest.key not in self._listed and latest.has_same_arguments(piece))
        return latest if is_repetition else None

    def _begin(self, slot: _Slot) -> _Call:
        call = self._last = _Call(str(len(self._calls)))
        self._calls.append(call)
        self._latest[slot] = call
        return call

    def _refuse(self, piece: _Piece, events: list[SourceEvent]) -> bool:
        """Report a call over the limit as refused, once. Its later pieces are dropped."""
        excess = self._last = self._excess = self._excess or _Call("")
        if piece.slot in self._latest:
            self._latest[piece.slot] = excess
        is_reported = (piece.slot, piece.id or excess.id) == (self._last_excess_slot, excess.id)
        if (piece.id or piece.name) and not is_reported:
            self._last_excess_slot, excess.id = piece.slot, piece.id
            OpenCall(str(len(self._calls) + self._excess_count), piece.id, piece.name).refuse(events)
            self._excess_count += 1
        return True


_EMPTY = _Piece(None, None, None, None, None, None)


def _read(entry: Any) -> _Piece | None:
    """Return the content of an entry of `tool_calls`: `_EMPTY` if it is empty, None if it is not understood."""
    if not isinstance(entry, dict):
        return _unreadable(None, {}) if entry else None
    index, function = entry.get("index"), entry.get("function")
    slot = max(index, 0) if type(index) is int else None
    if isinstance(function, dict):
        return _read_function(function, slot, entry)
    if entry.get("type") not in (None, "", "function") or entry.get("custom"):
        return None
    if function:
        return _unreadable(slot, entry)
    return _read_function(entry, slot, entry)  # the entry itself has the fields of `function`, or only an id


def _read_function(function: dict[str, Any], slot: _Slot, entry: dict[str, Any]) -> _Piece | None:
    id, name = string(entry.get("id")), string(function.get("name"))
    arguments = function.get("arguments")
    text = arguments if isinstance(arguments, str) and arguments else None
    value = None if isinstance(arguments, str) else arguments
    signature = string(text_under(entry.get("extra_content"), "thought_signature"))  # Google sends it
    if id or name or text or signature or value is not None:
        return _Piece(slot, id, name, text, value, signature)
    return _EMPTY if not _has_unread_fields(entry) and not _has_unread_fields(function) else None


def _unreadable(slot: _Slot, entry: dict[str, Any]) -> _Piece:
    """Return a piece for an entry without readable content. Its slot, id and name still identify a call."""
    return _Piece(slot, string(entry.get("id")), string(entry.get("name")), None, None, None, True)


def _has_unread_fields(value: dict[str, Any]) -> bool:
    """Return whether `value` has a non-empty field that this module does not read."""
    return any(member for key, member in value.items() if key not in ("index", "id", "type", "function", "arguments"))
