r"""Overwrite keys in the bytes of a stream, however the bytes are cut.

A response can contain a key: in an error that repeats it, or because the model writes it. A recording is shared, and
its lengths, cuts and times must stay. So each byte of a key is replaced by `*`, and its prefix stays:
`sk-****************`.

The bytes are searched in two forms. As they are, whole keys are found, also with `\/` for `/`, and after the escapes
of JSON and URLs. In addition, the strings of the fields of one name (`"content":"…"`) are joined, because a model
writes a key in pieces, a few characters in each event. Other encodings are not searched. Secrets without a known
format are found only if they are passed as a `Secret`.

No key crosses a line end, so bytes are searched by whole lines, and an unfinished line is buffered. A line of more
than `MAX_LINE` bytes is searched in parts. If a part, or the last piece of a joined field, can be the beginning of a
key, its end, at most `LONGEST` bytes, is searched again with the next one. Events that contain the beginning of a
possible key are buffered too, at most `MAX_BUFFERED` bytes.
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

MAX_LINE = 64 * 1024
"""Bytes of a line. A longer line is no event of a model's text, so its fields are not joined."""

MAX_BUFFERED = 16 * 1024
"""Bytes of whole events that are buffered while their joined fields may become a key."""

# Known key formats, in bytes. The last row is an Authorization header, which can be inside JSON.

_TOKEN = rb"[A-Za-z0-9_-]"
_WIDE = rb"(?:[A-Za-z0-9._~+/=-]|\\/)"
_BEGIN = rb"(?:(?<![A-Za-z0-9_-])|(?<=\\[bfnrt])|(?<=\\u[0-9A-Fa-f]{4})|(?<=%[0-9A-Fa-f]{2}))"
_FORMATS: list[tuple[bytes, int, list[bytes]]] = [
    *((more.encode(), least, [prefix.encode() for prefix in prefixes]) for more, least, prefixes in FORMATS),
    (_WIDE, 16, [b"[Bb]earer ", b"BEARER ", b"[Bb]earer%20"]),
]
_JWT = rb"eyJ(?=[A-Za-z0-9_-]{8,%d}\.[A-Za-z0-9_-]{8})([A-Za-z0-9_.-]*)" % (LONGEST - 16)
_JWT_BEGUN = rb"[A-Za-z0-9_-]*(?:(?<=[A-Za-z0-9_-]{8})\.[A-Za-z0-9_-]{0,7})?"


def _whole(more: bytes, least: int, prefix: bytes) -> bytes:
    return rb"%s(?=%s{%d})(%s*)" % (prefix, more, least, _WIDE if more == _WIDE else _TOKEN)


def _begun(prefix: bytes, more: bytes) -> bytes:
    """Return a pattern for any beginning of `prefix`, and for the whole prefix followed by `more`."""
    pattern = rb"(%s\\?)" % more  # a trailing backslash may begin an escaped slash
    for atom in reversed(re.findall(rb"\[[^]]*\]|.", prefix)):
        pattern = rb"%s(?:%s)?" % (atom, pattern)
    return pattern


def _any(patterns: Iterable[bytes]) -> re.Pattern[bytes]:
    return re.compile(_BEGIN + b"(?:" + b"|".join(patterns) + b")")


_ROWS = [(more, least, prefix) for more, least, prefixes in _FORMATS for prefix in prefixes]
_KEY = _any([*(_whole(*row) for row in _ROWS), _JWT])
# Beginnings of keys. `hf_` comes before `hf_oauth_`: after `hf_`, "oa" may be the beginning of a key.
_BEGINNINGS = sorted((prefix, b"%s{0,%d}" % (more, least - 1)) for more, least, prefix in _ROWS)
_KEY_BEGUN = _any(b"(?:%s)\\Z" % _begun(*row) for row in [*_BEGINNINGS, (b"eyJ", _JWT_BEGUN)])
_HINTS = {max(re.sub(rb"\[.*?\]", b"|", prefix).split(b"|"), key=len) for _, _, prefix in _ROWS} | {b"eyJ"}
"""Text without any of these holds no key. Searching for them is twenty times as fast as the patterns."""

Secret: TypeAlias = str | re.Pattern[str]
"""A secret text, or a compiled pattern that matches secrets. The pattern is applied to bytes, so `\\w` and `.` are
ASCII. A match must lie in one line and have at most `LONGEST` bytes."""


class KnownSecrets(NamedTuple):
    """Secrets in bytes: each text in every encoding that is searched for."""

    texts: list[bytes]
    patterns: list[re.Pattern[bytes]]


Secrets: TypeAlias = Iterable[Secret] | KnownSecrets
"""Secrets, or the result of `know`, which saves time if many texts are searched."""

_FIELDS = (
    *("content", "text", "delta", "arguments", "partial_json", "thinking", "reasoning", "reasoning_content"),
    *("reasoning_text", "refusal", "response", "input", "output", "textDelta", "inputTextDelta", "argsTextDelta"),
)
_PIECE = re.compile(rb'"(%s)"[ ]*:[ ]*"(?!")([^"\\]*+(?:\\.[^"\\]*+)*+)"' % "|".join(_FIELDS).encode())
_SHORTEST_KEY = 15  # bytes
_LOOKBEHIND = 16  # bytes that the lookbehinds of the patterns may read
_MAX_SHOWN = 4  # a cut secret text stays visible if at most this many bytes of it arrived
_ASTERISK = ord("*")


class Scrubber:
    """Overwrites secrets. `feed` takes bytes and returns those that are decided, `close` returns the rest.

    Known formats are always found. `secrets` are found in addition; patterns are not searched for across events. Raises
    ValueError for a secret that cannot be searched for.
    """

    def __init__(self, secrets: Secrets = ()) -> None:
        known = know(secrets)
        self._texts, patterns = known
        # Overwriting a secret can turn the bytes after it into the beginning of a word, and so of a key.
        self._second_pass = Scrubber() if any(known) else None
        self._raw = _SearchedText(self._texts, patterns, joined=False)
        self._fields: dict[bytes, _SearchedText] = {}  # by the name of the field
        self._buffer = bytearray()  # the bytes that `feed` has not returned
        self._buffer_start = 0  # the position of the buffer; positions count from the first byte ever fed
        self._searched = 0  # the position up to which the bytes have been searched
        self._line_start = 0  # the position of the unfinished line

    def feed(self, data: bytes) -> bytes:
        """Return the bytes that are decided and have not been returned."""
        self._buffer += data
        end = self._buffer_start + len(self._buffer)
        lines = self._buffer.rfind(b"\n", len(self._buffer) - len(data)) + 1
        stop = max(self._buffer_start + lines, self._searched)
        stop = end if end - stop > MAX_LINE else stop
        if stop > self._searched:
            self._search(stop)
        texts = (self._raw, *self._fields.values())
        decided = self._take(min(text.first_undecided(self._searched) for text in texts))
        return decided if self._second_pass is None else self._second_pass.feed(decided)

    def close(self, *, complete: bool) -> bytes:
        """Return the rest. If the stream is not complete, what may be the beginning of a key is overwritten, too."""
        end = self._buffer_start + len(self._buffer)
        self._search(end, is_last=True)
        for text in () if complete else (self._raw, *self._fields.values()):
            self._overwrite(text.find_cut_secret())
        rest = self._take(end)
        if self._second_pass is None:
            return rest
        return self._second_pass.feed(rest) + self._second_pass.close(complete=complete)

    def _search(self, stop: int, *, is_last: bool = False) -> None:
        data = bytes(self._buffer[self._searched - self._buffer_start : stop - self._buffer_start])
        self._overwrite(self._raw.add(data, self._searched, is_last=is_last))
        for line in re.findall(rb"[^\n]*\n|[^\n]+", data):
            if self._searched + len(line) - self._line_start <= MAX_LINE:
                for piece in _PIECE.finditer(line):
                    field = self._fields.setdefault(piece[1], _SearchedText(self._texts, [], joined=True))
                    self._overwrite(field.add(piece[2], self._searched + piece.start(2)))
            self._searched += len(line)
            self._line_start = self._searched if line.endswith(b"\n") else self._line_start
            for name in () if is_last else list(self._fields):
                if self._searched - self._fields[name].first_undecided(self._searched) > MAX_BUFFERED:
                    del self._fields[name]  # give up: no key is that long

    def _overwrite(self, positions: Iterable[int]) -> None:
        for position in positions:
            self._buffer[position - self._buffer_start] = _ASTERISK

    def _take(self, stop: int) -> bytes:
        data = bytes(self._buffer[: stop - self._buffer_start])
        del self._buffer[: stop - self._buffer_start]
        self._buffer_start = stop
        return data


class _SearchedText:
    """A growing text that is searched for secrets: the raw bytes, or the joined pieces of a field.

    Indexes count in the text, positions in the stream. Keys and patterns that start before `_search_from`, and secret
    texts that start before `_decided`, have been found.
    """

    def __init__(self, texts: list[bytes], patterns: list[re.Pattern[bytes]], *, joined: bool) -> None:
        self._text = bytearray()  # the undecided text, after some context for lookbehinds
        self._positions = array("q") if joined else range(0)  # the position of each byte of the text
        self._search_from = 0
        self._decided = 0
        self._texts = texts
        self._patterns = patterns

    def first_undecided(self, default: int) -> int:
        """Return the position of the first byte that is not decided, or `default`."""
        return self._positions[self._decided] if self._decided < len(self._positions) else default

    def add(self, data: bytes, position: int, *, is_last: bool = False) -> list[int]:
        """Append `data`, which is at `position`, and return the positions of bytes that are secret.

        A match of a pattern is decided when its line ends. The last data ends the last line.
        """
        self._forget(self._search_from + LONGEST, self._decided)  # the middle of a key that continues
        self._forget(0, min(self._search_from, self._decided) - _LOOKBEHIND)
        self._text += data
        stop = position + len(data)
        if isinstance(self._positions, array):
            self._positions += array("q", range(position, stop))
        else:
            self._positions = range(stop - len(self._text), stop)
        text, start, decided, size = self._text, self._search_from, self._decided, len(self._text)
        has_hint = size - start >= _SHORTEST_KEY and any(text.find(hint, start) >= 0 for hint in _HINTS)
        keys = list(_KEY.finditer(text, start)) if start < decided or has_hint else []
        begun = self._find_begun_key()
        self._search_from = tail = begun.start() if begun else size
        # A key that continues is found again from its beginning. A backslash after it may begin an escaped slash.
        for key in keys:
            if key.start() < tail:
                continues = text[key.end() : key.end() + 2] in (bytearray(), bytearray(b"\\"))
                tail = max(tail, key.end())
                self._search_from = key.start() if continues else tail
        if self._patterns and not is_last:
            line_start = self._unfinished_line()
            self._search_from, tail = min(self._search_from, line_start), min(tail, line_start)
        spans = [key.span(key.lastindex or 0) for key in keys]
        spans += [*self._find_texts(), *self._find_patterns(start, size if is_last else tail)]
        self._decided = min(tail, self._begun_text())
        return [item for first, last in spans for item in self._positions[max(first, decided) : last]]

    def find_cut_secret(self) -> Sequence[int]:
        """Return the positions of the beginning of a secret with which the text breaks off."""
        size, text_start, begun = len(self._text), self._begun_text(), self._find_begun_key()
        key_start = begun.start(begun.lastindex) if begun and begun.lastindex else size
        return self._positions[min(key_start, text_start) if size - text_start > _MAX_SHOWN else key_start :]

    def _forget(self, start: int, stop: int) -> None:
        if start < stop:
            del self._text[start:stop]
            if isinstance(self._positions, array):
                del self._positions[start:stop]
            self._decided -= stop - start
            self._search_from -= 0 if start else stop

    def _unfinished_line(self) -> int:
        """Return the index of the unfinished line, or of the part of it that a longer match can still reach."""
        return max(self._decided, self._text.rfind(b"\n") + 1, len(self._text) - LONGEST)

    def _find_begun_key(self) -> re.Match[bytes] | None:
        return _KEY_BEGUN.search(self._text, self._unfinished_line())

    def _find_texts(self) -> Iterator[tuple[int, int]]:
        """Yield the spans of secret texts. Overlapping occurrences are joined."""
        for text in self._texts:
            start, index = 0, self._text.find(text, self._decided)
            while index >= 0:
                yield max(start, index), index + len(text)
                start, index = index + len(text), self._text.find(text, index + 1)

    def _begun_text(self) -> int:
        """Return the index of the beginning of a secret text at the end of the text, or the size of the text."""
        begun = size = len(self._text)
        for text in self._texts:
            index = self._text.find(text[:1], max(self._decided, size - len(text) + 1))
            while 0 <= index < begun and not text.startswith(self._text[index:]):
                index = self._text.find(text[:1], index + 1)
            begun = index if 0 <= index < begun else begun
        return begun

    def _find_patterns(self, start: int, tail: int) -> Iterator[tuple[int, int]]:
        """Yield the matches that begin before `tail`, line by line."""
        for line in re.finditer(rb"[^\n]+", self._text[start:]) if self._patterns else ():
            for pattern in self._patterns:
                matches = pattern.finditer(self._text, start + line.start(), start + line.end())
                yield from (match.span() for match in matches if match.start() < tail)


def scrub(data: bytes, secrets: Secrets = ()) -> bytes:
    """Return `data`, which is complete, with its secrets overwritten."""
    known = know(secrets)
    clean = bytearray(data)
    for position in _SearchedText(*known, joined=False).add(data, 0, is_last=True):
        clean[position] = _ASTERISK
    return scrub(bytes(clean)) if any(known) else bytes(clean)


def know(secrets: Secrets) -> KnownSecrets:
    """Return secrets in the form that is searched for. Raises ValueError for a secret that cannot be searched for."""
    if isinstance(secrets, KnownSecrets):
        return secrets
    secrets = list(secrets)
    texts = {encoded for secret in secrets if isinstance(secret, str) for encoded in _encodings(secret)}
    return KnownSecrets(list(texts), [_in_bytes(secret) for secret in secrets if isinstance(secret, re.Pattern)])


def _encodings(secret: str) -> set[bytes]:
    """Return a secret text in bytes: as it is, in JSON with and without ASCII escapes, and in JSON inside JSON."""
    texts = {secret}
    for ensure_ascii in (False, True):
        written = secret
        for _ in range(2):
            written = json.dumps(written, ensure_ascii=ensure_ascii)[1:-1]
            texts.add(written)
    encoded = {text.encode(errors="surrogatepass") for text in texts}
    if not secret or max(map(len, encoded)) > LONGEST:
        raise ValueError(f"a secret text must have 1 to {LONGEST} bytes, also when it is escaped in JSON")
    return encoded


def _in_bytes(pattern: re.Pattern[str]) -> re.Pattern[bytes]:
    try:
        return re.compile(pattern.pattern.encode(), pattern.flags & ~re.UNICODE)
    except (re.error, ValueError) as error:
        raise ValueError(f"the pattern {pattern.pattern!r} cannot be applied to bytes: {error}") from None
