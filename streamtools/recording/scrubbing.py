"""Overwrite keys in the bytes of a stream, whatever the pieces in which they come.

A response may hold a key: in an error that echoes it, or because the model has read one and writes it down. A recording
is there to be shared, and it is there for its lengths, cuts and times; so a key is overwritten, byte by byte, by `*`,
and its prefix stays, for people to see what it was: `sk-****************`.

Found are keys that stand in one piece in the bytes of the response, as they are, with `\\/` for `/`, and behind the
escapes of JSON and of URLs; and keys that a model writes piece by piece, into many events (`deltas`). Not found is what
is encoded in any other way, and what is no key to anybody who does not know it: that is to be told, as a `Secret`.

What is not certain yet is held: what may become a key, of at most `LONGEST` bytes; the unfinished line of an event, of
at most `deltas.LINE`; and events that end in a piece of what may become a key, at most `deltas.BEHIND` bytes of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import TypeAlias

from streamtools.recording.deltas import Deltas
from streamtools.recording.key_formats import LONGEST
from streamtools.recording.sieves import Keys, Patterns, Sieve, Texts, Together

Secret: TypeAlias = str | re.Pattern[str]
"""What else is a secret: a text that is one, or a compiled pattern of them. A pattern reads bytes, so that its `\\w`
and `.` are those of ASCII; its matches lie in one line, are at most `LONGEST` bytes long, and look no further."""


class Scrubber:
    """Overwrites secrets: `feed` takes bytes and gives those that are certain, `close` the rest, of equal length.

    Known formats are always found; `secrets` are more of them, of which patterns are not looked for across events.
    Raises ValueError for one that cannot be looked for. `events` tells whether the bytes are those of a stream.
    """

    def __init__(self, secrets: Iterable[Secret] = (), *, events: bool = True) -> None:
        kinds = list(secrets)
        patterns = [_in_bytes(each) for each in kinds if isinstance(each, re.Pattern)]
        texts = {form for each in kinds if isinstance(each, str) for form in _forms(each)}
        sieves: list[Sieve] = [Keys()]
        if events:
            sieves.append(Deltas(texts))
        if texts:
            sieves.append(Texts(texts))
        if patterns:
            sieves.append(Patterns(patterns))
        self._sieves = Together(sieves)

    def feed(self, data: bytes) -> bytes:
        """Return what is certain by now of all that was fed and has not been returned."""
        return self._sieves.feed(data)

    def close(self, *, complete: bool) -> bytes:
        """Return the rest. Of a stream that is not complete, what may be the beginning of a key is overwritten too."""
        return self._sieves.close(complete)


def scrub(data: bytes, secrets: Iterable[Secret] = ()) -> bytes:
    """Return bytes that are there as a whole with their secrets overwritten."""
    scrubber = Scrubber(secrets, events=False)
    return scrubber.feed(data) + scrubber.close(complete=True)


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
