r"""Overwrite keys in the bytes of a stream, however they are cut.

A response may hold a key: in an error that echoes it, or because the model has read one and writes it down. A recording
is shared, and its lengths, cuts and times have to stay; so each byte of a key is replaced by `*`, and its prefix stays,
to show what it was: `sk-****************`.

The bytes are one text, in which whole keys are found: as they are, with `\/` for `/`, and behind the escapes of JSON
and of URLs. The text that a model writes in pieces, a few characters in each event, is another: the strings of the
fields of one name, joined. (Pieces of several answers that alternate under one name are taken for one text.) Each text
is searched as it came, because a key that is partly overwritten is not recognised. Keys in other encodings are not
found, nor are secrets without a known format, unless they are given as a `Secret`.

The bytes are searched by whole lines, which no key crosses, so an unfinished line is held; a line of more than `LINE`
bytes is searched in parts. A joined text is searched with each piece. The end of a part or piece that may become a key
or go on as one, at most `LONGEST` bytes, is searched again with the next. So events that end in the beginning of a
possible key are held too, at most `BEHIND` bytes of them, and lines that end in the beginning of a secret text. What
comes out without secrets of one's own is searched for keys once more, and held once more.
"""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from streamtools.rules.key_formats import FORMATS

LONGEST = 4096
"""Bytes of the longest secret text, match of a pattern, and head of a JWT."""

LINE = 64 * 1024
"""Bytes of one line. A longer one is not what a model writes piece by piece, and its fields are not looked at."""

BEHIND = 16 * 1024
"""Bytes, of whole events, over which the pieces of what may become a key are followed."""

# The formats of keys that are known, in bytes, and that of a header, which may stand in JSON.

_TOKEN = rb"[A-Za-z0-9_-]"
_WIDE = rb"(?:[A-Za-z0-9._~+/=-]|\\/)"
_BEGIN = rb"(?:(?<![A-Za-z0-9_-])|(?<=\\[bfnrt])|(?<=\\u[0-9A-Fa-f]{4})|(?<=%[0-9A-Fa-f]{2}))"
_FORMATS: list[tuple[bytes, int, list[bytes]]] = [
    *((more.encode(), least, [each.encode() for each in prefixes]) for more, least, prefixes in FORMATS),
    (_WIDE, 16, [b"[Bb]earer ", b"BEARER ", b"[Bb]earer%20"]),
]
_JWT = rb"eyJ(?=[A-Za-z0-9_-]{8,%d}\.[A-Za-z0-9_-]{8})([A-Za-z0-9_.-]*)" % (LONGEST - 16)
_JWT_BEGUN = rb"[A-Za-z0-9_-]*(?:(?<=[A-Za-z0-9_-]{8})\.[A-Za-z0-9_-]{0,7})?"


def _whole(more: bytes, least: int, prefix: bytes) -> bytes:
    return rb"%s(?=%s{%d})(%s*)" % (prefix, more, least, _WIDE if more == _WIDE else _TOKEN)


def _begun(prefix: bytes, more: bytes) -> bytes:
    """Return the pattern of what a prefix begins with, and of all of it with `more`."""
    pattern = rb"(%s\\?)" % more  # half of an escaped slash
    for atom in reversed(re.findall(rb"\[[^]]*\]|.", prefix)):
        pattern = rb"%s(?:%s)?" % (atom, pattern)
    return pattern


def _any(patterns: Iterable[bytes]) -> re.Pattern[bytes]:
    return re.compile(_BEGIN + b"(?:" + b"|".join(patterns) + b")")


_ROWS = [(more, least, prefix) for more, least, prefixes in _FORMATS for prefix in prefixes]
_KEY = _any([*(_whole(*row) for row in _ROWS), _JWT])
# What may still become a key, of `hf_` before `hf_oauth_`: behind the first, "oa" may be half of a key.
_LESS = sorted((prefix, b"%s{0,%d}" % (more, least - 1)) for more, least, prefix in _ROWS)
_KEY_BEGUN = _any(b"(?:%s)\\Z" % _begun(*each) for each in [*_LESS, (b"eyJ", _JWT_BEGUN)])
_HINTS = {max(re.sub(rb"\[.*?\]", b"|", prefix).split(b"|"), key=len) for _, _, prefix in _ROWS} | {b"eyJ"}
"""Where none of these is, is no key; to look for them is twenty times as fast."""

Secret: TypeAlias = str | re.Pattern[str]
"""What else is a secret: a text that is one, or a compiled pattern of them. A pattern reads bytes, so that its `\\w`
and `.` are those of ASCII; its matches lie in one line, are at most `LONGEST` bytes long, and look no further."""


class Known(NamedTuple):
    """Secrets as they are looked for: in bytes, each text as it may be written."""

    texts: list[bytes]
    patterns: list[re.Pattern[bytes]]


Secrets: TypeAlias = Iterable[Secret] | Known
"""Secrets, or what `know` has made of them, where many texts are looked through for the same."""

_FIELDS = (
    *("content", "text", "delta", "arguments", "partial_json", "thinking", "reasoning", "reasoning_content"),
    *("reasoning_text", "refusal", "response", "input", "output", "textDelta", "inputTextDelta", "argsTextDelta"),
)
_PIECE = re.compile(rb'"(%s)"[ ]*:[ ]*"(?!")([^"\\]*+(?:\\.[^"\\]*+)*+)"' % "|".join(_FIELDS).encode())
_SHORTEST = 15  # bytes of a key
_CONTEXT = 16  # bytes before the next that a look behind may see
_SHOWN = 4  # bytes with which a secret text that was cut off begins, at most, for it to be left as it is
_STAR = ord("*")


class Scrubber:
    """Overwrites secrets: `feed` takes bytes and gives those that are certain, `close` the rest, of equal length.

    Known formats are always found; `secrets` are more of them, of which patterns are not looked for across events.
    Raises ValueError for one that cannot be looked for.
    """

    def __init__(self, secrets: Secrets = ()) -> None:
        known = know(secrets)
        self._texts, patterns = known
        self._again = Scrubber() if any(known) else None  # a key behind a secret begins a word once that is overwritten
        self._raw = _Text(self._texts, patterns, joined=False)
        self._fields: dict[bytes, _Text] = {}  # by their names
        self._clean = bytearray()  # what has not been given
        self._start = 0  # where that begins; places are counted from the first byte that was ever fed
        self._read = 0  # what is before has been read
        self._line = 0  # where the unfinished line begins

    def feed(self, data: bytes) -> bytes:
        """Return what is certain by now of all that was fed and has not been returned."""
        self._clean += data
        end = self._start + len(self._clean)
        lines = self._clean.rfind(b"\n", len(self._clean) - len(data)) + 1
        stop = max(self._start + lines, self._read)
        stop = end if end - stop > LINE else stop
        if stop > self._read:
            self._read_up_to(stop)
        clean = self._give(min(text.first(self._read) for text in (self._raw, *self._fields.values())))
        return clean if self._again is None else self._again.feed(clean)

    def close(self, *, complete: bool) -> bytes:
        """Return the rest. Of a stream that is not complete, what may be the beginning of a key is overwritten too."""
        end = self._start + len(self._clean)
        self._read_up_to(end, last=True)
        for text in () if complete else (self._raw, *self._fields.values()):
            self._overwrite(text.find_half())
        clean = self._give(end)
        return clean if self._again is None else self._again.feed(clean) + self._again.close(complete=complete)

    def _read_up_to(self, stop: int, *, last: bool = False) -> None:
        data = bytes(self._clean[self._read - self._start : stop - self._start])
        self._overwrite(self._raw.add(data, self._read, last=last))
        for line in re.findall(rb"[^\n]*\n|[^\n]+", data):
            if self._read + len(line) - self._line <= LINE:
                for piece in _PIECE.finditer(line):
                    field = self._fields.setdefault(piece[1], _Text(self._texts, [], joined=True))
                    self._overwrite(field.add(piece[2], self._read + piece.start(2)))
            self._read += len(line)
            self._line = self._read if line.endswith(b"\n") else self._line
            for name in () if last else list(self._fields):
                if self._read - self._fields[name].first(self._read) > BEHIND:
                    del self._fields[name]  # what has waited for too long is no key

    def _overwrite(self, places: Iterable[int]) -> None:
        for place in places:
            self._clean[place - self._start] = _STAR

    def _give(self, stop: int) -> bytes:
        data = bytes(self._clean[: stop - self._start])
        del self._clean[: stop - self._start]
        self._start = stop
        return data


class _Text:
    """A text that grows, and what finds secrets in it."""

    def __init__(self, texts: list[bytes], patterns: list[re.Pattern[bytes]], *, joined: bool) -> None:
        self._text = bytearray()  # what is not certain, and before it what looks behind may see
        self._places = array("q") if joined else range(0)  # where each byte of it stands in the stream
        self._at = 0  # from where on keys and patterns are looked for
        self._certain = 0  # what begins before is known
        self._texts = texts
        self._patterns = patterns

    def first(self, otherwise: int) -> int:
        """Return the place of the first byte that is not certain."""
        return self._places[self._certain] if self._certain < len(self._places) else otherwise

    def add(self, data: bytes, place: int, *, last: bool = False) -> list[int]:
        """Go on with `data`, which stands at `place`; return the places of what is secret by now.

        A pattern is not certain before its line ends, and the last data ends the last line.
        """
        self._forget(self._at + LONGEST, self._certain)  # the middle of a key that goes on
        self._forget(0, min(self._at, self._certain) - _CONTEXT)
        self._text += data
        stop = place + len(data)
        if isinstance(self._places, array):
            self._places += array("q", range(place, stop))
        else:
            self._places = range(stop - len(self._text), stop)
        text, at, certain, size = self._text, self._at, self._certain, len(self._text)
        likely = at < certain or (size - at >= _SHORTEST and any(text.find(hint, at) >= 0 for hint in _HINTS))
        keys = list(_KEY.finditer(text, at)) if likely else []
        begun = self._find_begun()
        self._at = tail = begun.start() if begun else size
        # A key that goes on is found again from its beginning on; a backslash behind it may be half of a slash.
        for key in keys:
            if key.start() < tail:
                goes_on = text[key.end() : key.end() + 2] in (bytearray(), bytearray(b"\\"))
                tail = max(tail, key.end())
                self._at = key.start() if goes_on else tail
        if self._patterns and not last:
            self._at, tail = min(self._at, self._unfinished()), min(tail, self._unfinished())
        spans = [key.span(key.lastindex or 0) for key in keys]
        spans += [*self._find_texts(), *self._find_patterns(at, size if last else tail)]
        self._certain = min(tail, self._begun_text())
        return [each for start, stop in spans for each in self._places[max(start, certain) : stop]]

    def find_half(self) -> Sequence[int]:
        """Return the places of what may be half of a secret that the text breaks off in."""
        size, tail, begun = len(self._text), self._begun_text(), self._find_begun()
        start = begun.start(begun.lastindex) if begun and begun.lastindex else size
        return self._places[min(start, tail) if size - tail > _SHOWN else start :]

    def _forget(self, start: int, stop: int) -> None:
        if start < stop:
            del self._text[start:stop]
            if isinstance(self._places, array):
                del self._places[start:stop]
            self._certain -= stop - start
            self._at -= 0 if start else stop

    def _unfinished(self) -> int:
        """Return where the unfinished line begins, or what of it may still become longer."""
        return max(self._certain, self._text.rfind(b"\n") + 1, len(self._text) - LONGEST)

    def _find_begun(self) -> re.Match[bytes] | None:
        return _KEY_BEGUN.search(self._text, self._unfinished())

    def _find_texts(self) -> Iterator[tuple[int, int]]:
        """Yield what belongs to secret texts, also where one overlaps another."""
        for text in self._texts:
            start, at = 0, self._text.find(text, self._certain)
            while at >= 0:
                yield max(start, at), at + len(text)
                start, at = at + len(text), self._text.find(text, at + 1)

    def _begun_text(self) -> int:
        """Return where the beginning of a secret text begins with which the text ends."""
        begun = size = len(self._text)
        for text in self._texts:
            at = self._text.find(text[:1], max(self._certain, size - len(text) + 1))
            while 0 <= at < begun and not text.startswith(self._text[at:]):
                at = self._text.find(text[:1], at + 1)
            begun = at if 0 <= at < begun else begun
        return begun

    def _find_patterns(self, start: int, tail: int) -> Iterator[tuple[int, int]]:
        """Yield the matches that begin before `tail`, line by line."""
        for line in re.finditer(rb"[^\n]+", self._text[start:]) if self._patterns else ():
            for pattern in self._patterns:
                matches = pattern.finditer(self._text, start + line.start(), start + line.end())
                yield from (found.span() for found in matches if found.start() < tail)


def scrub(data: bytes, secrets: Secrets = ()) -> bytes:
    """Return bytes that are there as a whole with their secrets overwritten."""
    known = know(secrets)
    clean = bytearray(data)
    for place in _Text(*known, joined=False).add(data, 0, last=True):
        clean[place] = _STAR
    return scrub(bytes(clean)) if any(known) else bytes(clean)


def know(secrets: Secrets) -> Known:
    """Return secrets as they are looked for. Raises ValueError for one that cannot be."""
    if isinstance(secrets, Known):
        return secrets
    kinds = list(secrets)
    texts = {form for each in kinds if isinstance(each, str) for form in _forms(each)}
    return Known(list(texts), [_in_bytes(each) for each in kinds if isinstance(each, re.Pattern)])


def _forms(secret: str) -> set[bytes]:
    """Return how a secret text is written in bytes: as it is, in JSON of either way, and in JSON inside JSON, which
    arguments are.
    """
    forms = {secret}
    for ascii in (False, True):
        written = secret
        for _ in range(2):
            written = json.dumps(written, ensure_ascii=ascii)[1:-1]
            forms.add(written)
    encoded = {form.encode(errors="surrogatepass") for form in forms}
    if not secret or max(map(len, encoded)) > LONGEST:
        raise ValueError(f"a text to be redacted has 1 to {LONGEST} bytes, and this one has not")
    return encoded


def _in_bytes(pattern: re.Pattern[str]) -> re.Pattern[bytes]:
    try:
        return re.compile(pattern.pattern.encode(), pattern.flags & ~re.UNICODE)
    except (re.error, ValueError) as error:
        raise ValueError(f"the pattern {pattern.pattern!r} cannot be looked for in bytes: {error}") from None
