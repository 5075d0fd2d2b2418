"""Which names are those of credentials, and which strings look like one although nothing names them.

Names are compared by their words, however they are joined: `apiKey`, `API-KEY` and `user[api_key]` are one. What is
last in a name decides, so that `author`, `max_tokens` and `authentication_methods` are none.
"""

from __future__ import annotations

import re

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_KEYS = (
    "access|account|admin|api|app|auth|client|connection|decryption|deploy|encryption|functions?|hmac|host|license"
    "|management|master|pre_?shared|private|root|rsa|secret|service|session|shared|signature|signing|ssh|storage"
    "|subscription|tls|user|webhook"
)
_SECRET = re.compile(
    rf"""(?:[a-z0-9_]*_)?(?:
        (?:{_KEYS})_?keys?
        | (?:access|api|auth|bearer|bot|oauth|refresh|secret|session)_?tokens
        | [a-z0-9]*(?:token|secrets?|pass_?(?:words?|phrases?|codes?|wd)|pwd)
        | (?:admin|db|login|root|smtp|user)_?pass
        | o?_?auth[0-9]*|authorization|authentication|bearer|credentials?|creds?|cookies?|jwt|otp
        | conn(?:ection)?_?str(?:ing)?s?|dsn|sas
    )(?:_?(?:[0-9]+|again|b(?:ase)?_?64|confirm(?:ation)?|hash|header|hex|pem|plain|raw|string|text|value))*
    | pass""",
    re.VERBOSE,
)
_HINT = re.compile("key|token|secret|pass|pwd|auth|bearer|cred|cookie|jwt|otp|conn|dsn|sas", re.IGNORECASE)
"""What a name has that matches; most names have none, and need not be cut into words."""
_VOCABULARY = re.compile(r"(?:[a-z0-9_]*_)?(?:bos|cls|eos|mask|pad|sep|special|stop|unk)_?token")  # of a model
_SECRET_IN_HEADER = re.compile(r"(?:[a-z0-9_]*_)?(?:assertion|keys?|session(?:_?id)?|sid|sig|signature|ticket)")
_SECRET_IN_URL = re.compile(r"(?:x_[a-z]+_)?(?:assertion|code|code_verifier|key|sid|sig|signature)")

_OPAQUE = re.compile(r"[A-Za-z0-9]{16,}+")
_GROUP = re.compile(r"[a-z]+|[A-Z]+|[0-9]+")
_TYPED_ID = re.compile(r"([a-z]{2,12})[_-]")
_LEAST_OPAQUE = 20


def _words(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", _CAMEL.sub("_", name).lower()).strip("_")


def is_secret(name: str) -> bool:
    """Tell whether a key is named like one that holds a credential: `api_key`, `X-Auth-Token`, `clientSecret`, `pwd`.

    The tokens of a model's vocabulary (`eos_token`), and counts of tokens, are none.
    """
    if not _HINT.search(name):
        return False
    words = _words(name)
    return _SECRET.fullmatch(words) is not None and _VOCABULARY.fullmatch(words) is None


def is_secret_in_url(name: str) -> bool:
    """Tell whether a key of a URL's query, or of a form, is named like one that holds a credential."""
    return is_secret(name) or _SECRET_IN_URL.fullmatch(_words(name)) is not None


def is_secret_header(name: str) -> bool:
    """Tell whether a header is named like one that holds a credential: `Cookie`, `x-functions-key`."""
    return is_secret(name) or _SECRET_IN_HEADER.fullmatch(_words(name)) is not None


def is_token(name: str) -> bool:
    """Tell whether a key is named as a token is, whose number is a place in a vocabulary, or a count."""
    return _words(name).endswith(("token", "tokens"))


def is_opaque(text: str) -> bool:
    """Tell whether a segment of a path is made like a key: 20 characters or more, of which 16 in one piece are letters
    and digits by turns, or hexadecimal ones.

    An id that says whose it is (`thread_…`, `file-…`) is none, nor is a UUID, nor are the names of models.
    """
    typed = _TYPED_ID.match(text)
    if len(text) < _LEAST_OPAQUE or (typed is not None and not is_secret_in_url(typed[1])):
        return False
    for run in _OPAQUE.findall(text):
        if sum(map(str.isdigit, run)) < 2:  # a version has one
            continue
        hexadecimal = len(run) >= _LEAST_OPAQUE and re.fullmatch("[0-9a-f]+|[0-9A-F]+", run)
        if hexadecimal or len(_GROUP.findall(run)) >= 0.4 * len(run):  # of a word it is less, of random text 0.6
            return True
    return False
