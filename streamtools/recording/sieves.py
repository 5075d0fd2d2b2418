"""Sieves for bytes: each overwrites one kind of secret, in whatever pieces the bytes come.

`feed` takes bytes and gives those that are certain, which it holds no longer; `close` gives the rest. Sieves stand side
by side and not one behind the other: each sees the bytes as they came. A key of which another has overwritten a part
would be known for one no more, and its rest would stay.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Protocol

from streamtools.recording.key_formats import BEGUN_PREFIX, HINTS, KEY, KEY_BEGUN, LEAST, LONGEST, RUNS, SHORT

_STAR = b"*"
_CONTEXT = 16  # bytes before the next that a look behind may see
_SHOWN = 4  # bytes with which a secret text that was cut off begins, at most, for it to be left as it is


class Sieve(Protocol):
    """What all sieves can. Of a stream that is not `complete`, what may be half of a secret is overwritten too."""

    def feed(self, data: bytes) -> bytes: ...
    def close(self, complete: bool) -> bytes: ...


class Together:
    """Several sieves over the same bytes: what one of them overwrites is overwritten."""

    def __init__(self, sieves: Iterable[Sieve]) -> None:
        self._sieves = list(sieves)
        self._text = bytearray()  # what has not been given
        self._found = [bytearray() for _ in self._sieves]

    def feed(self, data: bytes) -> bytes:
        if len(self._sieves) == 1:
            return self._sieves[0].feed(data)
        self._text += data
        return self._merge([sieve.feed(data) for sieve in self._sieves])

    def close(self, complete: bool) -> bytes:
        if len(self._sieves) == 1:
            return self._sieves[0].close(complete)
        return self._merge([sieve.close(complete) for sieve in self._sieves])

    def _merge(self, pieces: Iterable[bytes]) -> bytes:
        """Return what is certain to all of them."""
        for found, piece in zip(self._found, pieces, strict=True):
            found += piece
        count = min(map(len, self._found))
        text = bytes(self._text[:count])
        merged = text
        for found in self._found:
            if found[:count] != text:
                merged = bytes(one if one == other else _STAR[0] for one, other in zip(merged, found, strict=False))
            del found[:count]
        del self._text[:count]
        return merged


class _Holding(ABC):
    """Holds the bytes that are not certain, behind a few that are and that have been given."""

    def __init__(self) -> None:
        self._text = bytearray()
        self._given = 0

    def feed(self, data: bytes) -> bytes:
        self._text += data
        return self._give(self._scan(self._given))

    @abstractmethod
    def _scan(self, start: int) -> int:
        """Overwrite what is to be overwritten from `start` on; return up to where all is certain."""

    def _overwrite(self, start: int, stop: int) -> None:
        self._text[start:stop] = _STAR * (stop - start)

    def _give(self, stop: int) -> bytes:
        data = bytes(self._text[self._given : stop])
        forgotten = max(0, stop - _CONTEXT)
        del self._text[:forgotten]
        self._given = stop - forgotten
        return data


class Keys(_Holding):
    """Finds the known formats."""

    def __init__(self) -> None:
        super().__init__()
        self._run: str | None = None  # the key that the text ended in

    def close(self, complete: bool) -> bytes:
        if not complete and (begun := BEGUN_PREFIX.match(self._text, self._given)):
            self._overwrite(begun.end(), len(self._text))
        return self._give(len(self._text))

    def _scan(self, start: int) -> int:
        text = self._text
        if self._run is not None:
            start, ended = self._overwrite_run(self._run, start)
            if not ended:
                return start
        likely = len(text) - start >= LEAST and any(hint in text for hint in HINTS)
        tail = self._begun(start)
        while likely and (found := KEY.search(text, start)) and found.start() < tail:
            assert found.lastgroup is not None
            start, ended = self._overwrite_run(found.lastgroup, found.end())
            if not ended:
                return start
            tail = max(tail, start)
        return tail

    def _overwrite_run(self, run: str, start: int) -> tuple[int, bool]:
        """Overwrite a key from `start` on, and return up to where, and whether it ends there."""
        found = RUNS[run].match(self._text, start)
        assert found is not None
        stop = found.end()
        self._overwrite(start, stop)
        escape = run == "bearer" and self._text[stop:] == b"\\"  # of a slash, perhaps
        ended = stop < len(self._text) and not escape
        self._run = None if ended else run
        return stop, ended

    def _begun(self, start: int) -> int:
        """Return where what may become a key begins."""
        text = self._text
        if text.endswith(b"\n"):
            return len(text)
        span = LONGEST if text.find(b"eyJ", max(start, len(text) - LONGEST)) >= 0 else SHORT
        found = KEY_BEGUN.search(text, max(start, len(text) - span))
        return found.start() if found else len(text)


class Texts(_Holding):
    """Finds texts, also where one overlaps another."""

    def __init__(self, texts: Iterable[bytes]) -> None:
        super().__init__()
        self._texts = list(texts)
        self._spans: list[tuple[int, int]] = []  # of those that were found, not overwritten before they are given

    def close(self, complete: bool) -> bytes:
        end = len(self._text)
        self._find(self._given, end)
        begun = end if complete else self._begun(self._given)
        if end - begun > _SHOWN:
            self._spans.append((begun, end))
        return self._give(end)

    def _scan(self, start: int) -> int:
        tail = self._begun(start)
        self._find(start, tail)
        return tail

    def _find(self, start: int, stop: int) -> None:
        """Find all texts that begin from `start` on, before `stop`."""
        for text in self._texts:
            at = self._text.find(text, start)
            while 0 <= at < stop:
                self._spans.append((at, at + len(text)))
                at = self._text.find(text, at + 1)

    def _give(self, stop: int) -> bytes:
        given, spans = self._given, self._spans
        data = super()._give(stop)
        if not spans:
            return data
        clean = bytearray(data)
        for start, end in spans:
            low, high = max(start, given) - given, min(end, stop) - given
            clean[low:high] = _STAR * (high - low)
        moved = stop - self._given
        self._spans = [(start - moved, end - moved) for start, end in spans if end > stop]
        return bytes(clean)

    def _begun(self, start: int) -> int:
        return min(self._begun_text(text, start) for text in self._texts)

    def _begun_text(self, text: bytes, start: int) -> int:
        """Return where the beginning of `text` begins with which what is there ends."""
        length = len(self._text)
        at = self._text.find(text[:1], max(start, length - len(text) + 1))
        while at >= 0 and not text.startswith(self._text[at:]):
            at = self._text.find(text[:1], at + 1)
        return length if at < 0 else at


class Patterns(_Holding):
    """Finds what patterns match, line by line. What is not certain is the last line, as far as it is not too long."""

    def __init__(self, patterns: Iterable[re.Pattern[bytes]]) -> None:
        super().__init__()
        self._patterns = list(patterns)

    def close(self, complete: bool) -> bytes:
        self._scan_up_to(self._given, len(self._text))
        return self._give(len(self._text))

    def _scan(self, start: int) -> int:
        line = self._text.rfind(b"\n", start) + 1 or start
        stop = max(line, len(self._text) - LONGEST)
        self._scan_up_to(start, stop)
        return stop

    def _scan_up_to(self, start: int, stop: int) -> None:
        """Overwrite all matches that begin before `stop`."""
        spans = []
        while start < stop:
            line = self._text.find(b"\n", start)
            end = len(self._text) if line < 0 else line
            spans += [span for pattern in self._patterns for span in self._matches(pattern, start, min(stop, end), end)]
            start = end + 1
        for span in spans:
            self._overwrite(*span)

    def _matches(self, pattern: re.Pattern[bytes], start: int, stop: int, end: int) -> list[tuple[int, int]]:
        spans = []
        while start < stop and (found := pattern.search(self._text, start, end)) and found.start() < stop:
            start = min(found.end(), found.start() + LONGEST)
            spans.append((found.start(), start))
            start += start == found.start()  # an empty match
        return spans
