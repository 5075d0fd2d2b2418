"""Overwrite keys in the bytes of a stream, whatever the pieces in which they come.

A response may hold a key: in an error that echoes it, or because the model has read one and writes it down. A recording
is there to be shared, and it is there for its lengths, cuts and times; so a key is overwritten, byte by byte, by `*`,
and its prefix stays, for people to see what it was: `sk-****************`.

A format of a key is a prefix, which begins no later than a word does, and a number of characters behind it from which
on it is a key. So what is not yet certain at the end of a piece is short, at most the prefix and so many characters;
once it is certain the rest is overwritten as it comes, however long it is. Only a JWT has to be waited for up to the
dot behind its head. Three sieves follow one another: texts that are secrets, patterns, and known formats.

What is found are keys that stand in one piece in the bytes of the response: as they are, with `\\/` for `/`, and behind
the escapes of JSON and of URLs. What a model writes token by token is in many frames; see `deltas`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import TypeAlias

Secret: TypeAlias = str | re.Pattern[str]
"""What else is a secret: a text that is one, or a compiled pattern of them. A pattern reads bytes, so that its `\\w`
and `.` are those of ASCII; its matches lie in one line, are at most `LONGEST` bytes long, and look no further."""

LONGEST = 4096
"""Bytes that may be uncertain at once, in each sieve: a secret text, a match of a pattern, the head of a JWT."""

_STAR = b"*"
_CONTEXT = 16  # bytes before the next that a look behind may see
_SHOWN = 4  # bytes with which a secret text that was cut off begins, at most, for it to be left as it is

_TOKEN = rb"[A-Za-z0-9_-]"
_WIDE = rb"(?:[A-Za-z0-9._~+/=-]|\\/)"
_BEGIN = rb"(?:(?<![A-Za-z0-9_-])|(?<=\\[bfnrt])|(?<=\\u[0-9A-Fa-f]{4})|(?<=%[0-9A-Fa-f]{2}))"
_LEAST: dict[int, tuple[bytes, ...]] = {
    10: (b"xox[a-z]-", b"xapp-"),
    16: (b"sk-", b"csk-", b"[sr]k_live_", b"[sr]k_test_", b"A[KS]IA", b"glpat-", b"tvly-"),
    20: (b"gh[opsur]_", b"github_pat_", b"hf_", b"gsk_", b"xai-", b"pplx-", b"nvapi-", b"fw_", b"tgp_v1_", b"ya29[.]"),
    30: (b"AIza", b"AQ[.]Ab", b"r8_", b"npm_"),
}
"""The prefixes of keys, and how many characters behind them make a key."""

_BEARER = (b"[Bb]earer ", b"BEARER ", b"[Bb]earer%20")
_BEARER_LEAST = 16
_JWT = rb"eyJ(?=[A-Za-z0-9_-]{8,%d}\.[A-Za-z0-9_-]{8})" % (LONGEST - 16)
_JWT_BEGUN = rb"eyJ[A-Za-z0-9_-]*(?:(?<=[A-Za-z0-9_-]{8})\.[A-Za-z0-9_-]{0,7})?"

_RUNS = {
    "token": re.compile(_TOKEN + rb"*"),
    "bearer": re.compile(_WIDE + b"*"),
    "jwt": re.compile(rb"[A-Za-z0-9_.-]*"),
}
"""What belongs to a key behind its prefix. Each takes letters, digits, `_` and `-`: none begins where another ends."""


def _atoms(prefix: bytes) -> list[bytes]:
    return re.findall(rb"\[[^]]*\]|.", prefix)


def _begun(prefix: bytes, more: bytes, least: int) -> list[bytes]:
    """Return patterns of the beginnings of a key that is none yet."""
    atoms = _atoms(prefix)
    return [*(b"".join(atoms[:count]) for count in range(1, len(atoms))), prefix + more + b"{0,%d}" % (least - 1)]


def _either(patterns: Iterable[bytes]) -> bytes:
    return b"(?:" + b"|".join(patterns) + b")"


_KEY = re.compile(
    _BEGIN
    + _either(
        [
            b"(?P<token>"
            + b"|".join(_either(some) + b"(?=%s{%d})" % (_TOKEN, least) for least, some in _LEAST.items())
            + b")",
            b"(?P<bearer>%s(?=%s{%d}))" % (_either(_BEARER), _WIDE, _BEARER_LEAST),
            b"(?P<jwt>%s)" % _JWT,
        ]
    )
)
_KEY_BEGUN = re.compile(
    _BEGIN
    + _either(
        [
            *(each for least, some in _LEAST.items() for prefix in some for each in _begun(prefix, _TOKEN, least)),
            *(each for prefix in _BEARER for each in _begun(prefix, _WIDE, _BEARER_LEAST)),
            *(b"e", b"ey", _JWT_BEGUN),
        ]
    )
    + rb"\\?\Z"
)
_BEGUN_PREFIX = re.compile(_either([*(each for some in _LEAST.values() for each in some), *_BEARER, b"eyJ"]))
_HINTS = {
    max(re.sub(rb"\[.*?\]", b"|", prefix).split(b"|"), key=len)
    for prefix in (*(each for some in _LEAST.values() for each in some), *_BEARER, b"eyJ")
}
"""Where none of these is, is no key; to look for them is twenty times as fast."""
_SHORT = 64  # bytes that hold the beginning of any key that is no JWT


class Scrubber:
    """Overwrites secrets: `feed` takes bytes and gives those that are certain, `close` the rest, of equal length.

    Known formats are always found; `secrets` are more of them. Raises ValueError for one that cannot be looked for.
    """

    def __init__(self, secrets: Iterable[Secret] = ()) -> None:
        kinds = list(secrets)
        patterns = [_in_bytes(each) for each in kinds if isinstance(each, re.Pattern)]
        texts = {form for each in kinds if isinstance(each, str) for form in _forms(each)}
        self._sieves: list[_Sieve] = [_Keys()]
        if patterns:
            self._sieves.insert(0, _Patterns(patterns))
        if texts:
            self._sieves.insert(0, _Texts(texts))

    def feed(self, data: bytes) -> bytes:
        """Return what is certain by now of all that was fed and has not been returned."""
        for sieve in self._sieves:
            data = sieve.feed(data)
        return data

    def close(self, *, complete: bool) -> bytes:
        """Return the rest. Of a stream that is not complete, what may be the beginning of a key is overwritten too."""
        data = b""
        for sieve in self._sieves:
            data = sieve.feed(data) + sieve.close(complete)
        return data


class _Sieve:
    """Holds the bytes that are not certain, behind a few that are and that have been given."""

    def __init__(self) -> None:
        self._text = bytearray()
        self._given = 0

    def feed(self, data: bytes) -> bytes:
        self._text += data
        return self._give(self._scan(self._given))

    def close(self, complete: bool) -> bytes:
        raise NotImplementedError

    def _scan(self, start: int) -> int:
        """Overwrite what is to be overwritten from `start` on; return up to where all is certain."""
        raise NotImplementedError

    def _overwrite(self, start: int, stop: int) -> None:
        self._text[start:stop] = _STAR * (stop - start)

    def _give(self, stop: int) -> bytes:
        data = bytes(self._text[self._given : stop])
        forgotten = max(0, stop - _CONTEXT)
        del self._text[:forgotten]
        self._given = stop - forgotten
        return data


class _Keys(_Sieve):
    """Finds the known formats."""

    def __init__(self) -> None:
        super().__init__()
        self._run: str | None = None  # the key that the text ended in

    def close(self, complete: bool) -> bytes:
        if not complete and (begun := _BEGUN_PREFIX.match(self._text, self._given)):
            self._overwrite(begun.end(), len(self._text))
        return self._give(len(self._text))

    def _scan(self, start: int) -> int:
        text = self._text
        if self._run is not None:
            start, ended = self._overwrite_run(self._run, start)
            if not ended:
                return start
        likely = any(hint in text for hint in _HINTS)
        tail = self._begun(start)
        while likely and (found := _KEY.search(text, start)) and found.start() < tail:
            assert found.lastgroup is not None
            start, ended = self._overwrite_run(found.lastgroup, found.end())
            if not ended:
                return start
            tail = max(tail, start)
        return tail

    def _overwrite_run(self, run: str, start: int) -> tuple[int, bool]:
        """Overwrite a key from `start` on, and return up to where, and whether it ends there."""
        found = _RUNS[run].match(self._text, start)
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
        span = LONGEST if text.find(b"eyJ", max(start, len(text) - LONGEST)) >= 0 else _SHORT
        found = _KEY_BEGUN.search(text, max(start, len(text) - span))
        return found.start() if found else len(text)


class _Texts(_Sieve):
    """Finds texts, the longest of those that begin at one place."""

    def __init__(self, texts: Iterable[bytes]) -> None:
        super().__init__()
        self._texts = sorted(texts, key=len, reverse=True)
        self._any = re.compile(b"|".join(map(re.escape, self._texts)))

    def close(self, complete: bool) -> bytes:
        self._scan_all()
        if not complete:
            begun = self._begun(self._given)
            if len(self._text) - begun > _SHOWN:
                self._overwrite(begun, len(self._text))
        return self._give(len(self._text))

    def _scan(self, start: int) -> int:
        tail = self._begun(start)
        while (found := self._any.search(self._text, start)) and found.start() < tail:
            self._overwrite(*found.span())
            start = found.end()
            if start > tail:
                tail = self._begun(start)
        return tail

    def _scan_all(self) -> None:
        start = self._given
        while found := self._any.search(self._text, start):
            self._overwrite(*found.span())
            start = found.end()

    def _begun(self, start: int) -> int:
        return min(self._begun_text(text, start) for text in self._texts)

    def _begun_text(self, text: bytes, start: int) -> int:
        """Return where the beginning of `text` begins with which what is there ends."""
        length = len(self._text)
        at = self._text.find(text[:1], max(start, length - len(text) + 1))
        while at >= 0 and not text.startswith(self._text[at:]):
            at = self._text.find(text[:1], at + 1)
        return length if at < 0 else at


class _Patterns(_Sieve):
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


def scrub(data: bytes, secrets: Iterable[Secret] = ()) -> bytes:
    """Return bytes that are there as a whole with their secrets overwritten."""
    scrubber = Scrubber(secrets)
    return scrubber.feed(data) + scrubber.close(complete=True)


def _forms(secret: str) -> set[bytes]:
    """Return how a secret text is written in bytes: as it is, and as the two ways to write JSON have it."""
    forms = {secret, *(json.dumps(secret, ensure_ascii=ascii)[1:-1] for ascii in (False, True))}
    written = {form.encode(errors="surrogatepass") for form in forms}
    if not secret or max(map(len, written)) > LONGEST:
        raise ValueError(f"a text to be redacted has 1 to {LONGEST} bytes, and this one has not")
    return written


def _in_bytes(pattern: re.Pattern[str]) -> re.Pattern[bytes]:
    try:
        return re.compile(pattern.pattern.encode(), pattern.flags & ~re.UNICODE)
    except (re.error, ValueError) as error:
        raise ValueError(f"the pattern {pattern.pattern!r} cannot be looked for in bytes: {error}") from None
