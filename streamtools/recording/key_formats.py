"""The formats of keys that are known: how one begins, and what belongs to it.

A format is a prefix, which begins no later than a word does, and a number of characters behind it from which on it is a
key. So what is not certain yet at the end of a piece of text is short; once it is certain, the rest of the key is known
as it comes, however long it is. Only a JWT has to be waited for up to the dot behind its head.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

LONGEST = 4096
"""Bytes that may be uncertain at once, in each sieve: a secret text, a match of a pattern, the head of a JWT."""

_TOKEN = rb"[A-Za-z0-9_-]"
_WORD = rb"[A-Za-z0-9]"
_CAPITAL = rb"[A-Z0-9]"
_WIDE = rb"(?:[A-Za-z0-9._~+/=-]|\\/)"
_BEGIN = rb"(?:(?<![A-Za-z0-9_-])|(?<=\\[bfnrt])|(?<=\\u[0-9A-Fa-f]{4})|(?<=%[0-9A-Fa-f]{2}))"
_PREFIXES: dict[tuple[bytes, int], tuple[bytes, ...]] = {
    (_TOKEN, 10): (b"xox[a-np-z]-", b"xapp-"),  # those of hugs and kisses are none
    (_CAPITAL, 16): (b"A[KS]IA",),  # the beginning of words, too
    (_TOKEN, 16): (b"sk-", b"csk-", b"[sr]k_live_", b"[sr]k_test_", b"glpat-", b"tvly-"),
    (_TOKEN, 20): (
        *(b"gh[opsur]_", b"github_pat_", b"hf_oauth_", b"hf_jwt_", b"gsk_", b"xai-", b"pplx-", b"nvapi-", b"fw_"),
        *(b"tgp_v1_", b"ya29[.]"),
    ),
    (_TOKEN, 30): (b"AIza", b"AQ[.]Ab", b"r8_"),
    (_WORD, 20): (b"hf_",),  # with `-` and `_` in it, it is a name: `hf_hub_download`, `npm_config_registry`
    (_WORD, 30): (b"npm_",),
}
"""The prefixes of keys, and which characters behind them, how many, make a key."""

_BEARER = (b"[Bb]earer ", b"BEARER ", b"[Bb]earer%20")
_BEARER_LEAST = 16
_JWT = rb"eyJ(?=[A-Za-z0-9_-]{8,%d}\.[A-Za-z0-9_-]{8})" % (LONGEST - 16)
_JWT_BEGUN = rb"eyJ[A-Za-z0-9_-]*(?:(?<=[A-Za-z0-9_-]{8})\.[A-Za-z0-9_-]{0,7})?"

RUNS = {
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


KEY = re.compile(
    _BEGIN
    + _either(
        [
            b"(?P<token>" + b"|".join(_either(some) + b"(?=%s{%d})" % kind for kind, some in _PREFIXES.items()) + b")",
            b"(?P<bearer>%s(?=%s{%d}))" % (_either(_BEARER), _WIDE, _BEARER_LEAST),
            b"(?P<jwt>%s)" % _JWT,
        ]
    )
)
KEY_BEGUN = re.compile(
    _BEGIN
    + _either(
        [
            *(each for kind, some in _PREFIXES.items() for prefix in some for each in _begun(prefix, *kind)),
            *(each for prefix in _BEARER for each in _begun(prefix, _WIDE, _BEARER_LEAST)),
            *(b"e", b"ey", _JWT_BEGUN),
        ]
    )
    + rb"\\?\Z"
)
BEGUN_PREFIX = re.compile(_either([*(each for some in _PREFIXES.values() for each in some), *_BEARER, b"eyJ"]))
HINTS = {
    max(re.sub(rb"\[.*?\]", b"|", prefix).split(b"|"), key=len)
    for prefix in (*(each for some in _PREFIXES.values() for each in some), *_BEARER, b"eyJ")
}
"""Where none of these is, is no key; to look for them is twenty times as fast."""
LEAST = 15  # bytes of the shortest key
SHORT = 64  # bytes that hold the beginning of any key that is no JWT
