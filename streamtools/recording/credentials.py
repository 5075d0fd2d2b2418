"""Replace values that are named like a credential in the parts of a request, and keep them.

Replaced are values by the names before them: in JSON at any depth, with all that stands under such a name; in queries
and forms; in strings that are JSON themselves; and in other text where it has the form of a setting, `name=value` or
`"name": "value"`, as connection strings, environment files, headers and addresses have. Also replaced are the password
in `scheme://user:password@host`, private keys in PEM, and segments of a URL's path that are keys. What was replaced is
in `found`, to be looked for elsewhere: see `redact`. All of it takes time in proportion to what is read.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, unquote, unquote_plus, urlsplit, urlunsplit

import msgspec

DEEPEST = 100
"""Levels of JSON that are looked at, and written down: no request has a tenth of them, and more use up the stack."""

LEAST = 16
"""Characters of a credential that is looked for elsewhere. Shorter ones are often words, where no key is needed."""

REDACTED = "[redacted]"

_SCHEMES = {"apikey", "basic", "bearer", "digest", "key", "negotiate", "token"}  # in front of a credential
_SCHEMA = {"type", "$ref", "anyOf", "oneOf", "allOf", "enum", "const", "description", "title"}
_SCHEMA_VALUES = {"const", "default", "enum", "example", "examples", "value"}
_SMALL = 1000  # numbers below it are settings and counts
_BOT_TOKEN = re.compile(r"(?<=[0-9]:)[A-Za-z0-9_-]{30,}")  # behind a bot's number, in paths of Telegram and its like
_VERSION = re.compile(r"v[0-9][\w.]*")

_PEM = re.compile(r"(-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY[A-Z ]{0,10}-----)((?:(?!-----).)*+)", re.DOTALL)
_USER = re.compile(r"""://([^\s/?#@:"'<>\\]{0,256}+)(?::([^\s/@"'<>\\]{1,1024}+))?@""")
_SETTING = re.compile(r"""(?<!\w)([A-Za-z_][\w.-]{0,127}+)(?:=|\\*+["']\s{0,4}:\s{0,4}(?=\\*+["']))""")
_QUOTE = re.compile(r"""\\*+["']""")
_UNQUOTED = re.compile(r"""(?:[^\s;&"'\\]|\\(?![nrtu"'\\]))*+""")
_CODE = re.compile(r"[A-Za-z_.]++(?:\(.*|[)\]},:]+)|[=>].*", re.DOTALL)  # `f(token=token)`, `token=get()`, `==`
_FIELD = re.compile(
    r"(?<![\w-])((?:proxy-)?authorization|(?:set-)?cookie|x-[\w-]{1,60}+|[\w-]{1,60}-key): ?"
    r"""([^\s"'\\][^\r\n"'\\]*+)""",
    re.IGNORECASE,
)


def read_json(content: bytes) -> Any:
    """Return the JSON value that `content` is; raise ValueError for what is none, or too deep."""
    try:
        return msgspec.json.decode(content)
    except RecursionError:
        raise ValueError("the JSON is too deep") from None


class Credentials:
    """Replaces credentials in what it is given, and keeps them in `found`."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def header(self, name: str, value: str) -> None:
        """Find the credentials in a header that is named like one that holds them."""
        if is_secret_header(name):
            self.found += _in_header(name, value)

    def url(self, url: str) -> str:
        """Return `url` without user name and password, and without what is named or made like a key."""
        parts = urlsplit(url)
        user, _, host = parts.netloc.rpartition("@")
        self.found += map(unquote, user.partition(":")[::2])
        fragment = self.pairs(parts.fragment) if "=" in parts.fragment else parts.fragment
        path, query = self._path(parts.path), self.pairs(parts.query)
        return urlunsplit(parts._replace(netloc=host, path=path, query=query, fragment=fragment))

    def pairs(self, text: str) -> str:
        """Return the query of a URL, or a form, without the values of keys that are named like secrets."""
        return "&".join(self._pair(*pair.partition("=")) for pair in text.split("&"))

    def json(self, value: Any, level: int = 0, *, under: str = "", schema: bool = False) -> Any:
        """Return `value` without what stands, at any depth, under a key that is named like a secret.

        Replaced there are strings, and numbers from 1000 on but those of tokens; what is deeper than `DEEPEST` levels
        is replaced, too. In the JSON `schema` of a parameter that is named so only its values are, not its words.
        """
        if isinstance(value, str):
            return self._replace(under, value) if under else self.text(value, level)
        if isinstance(value, int | float) and not isinstance(value, bool):
            # Of what is named as a token is, a number is a place in a vocabulary, or a count.
            stays = not under or abs(value) < _SMALL or _words(under).endswith(("token", "tokens"))
            return value if stays else self._replace(under, str(value))
        if not isinstance(value, dict | list):
            return value
        if level == DEEPEST:
            return REDACTED
        if isinstance(value, list):
            return [self.json(each, level + 1, under=under) for each in value]
        label = value.get("name", value.get("key"))  # of a pair that is written as an object
        pair = label if isinstance(label, str) and is_secret(label) else ""
        clean: dict[str, Any] = {}
        for key, each in value.items():
            name = under or (key if is_secret(key) else pair if key == "value" else "")
            if schema and name and not under and isinstance(each, dict) and (not each or _SCHEMA & each.keys()):
                clean[key] = {
                    word: self.json(one, level + 2, under=name if word in _SCHEMA_VALUES else "")
                    for word, one in each.items()
                }
            else:
                clean[key] = self.json(each, level + 1, under=name, schema=key == "properties")
        return clean

    def text(self, text: str, level: int = 0) -> str:
        """Return `text` without what has the form of a credential's setting; one that is JSON is read as such."""
        if text.lstrip()[:1] in ("{", "[") and (clean := self._read(text, level)) is not None:
            return clean
        if "\n{" in text:
            text = "\n".join((each[:1] == "{" and self._read(each, level)) or each for each in text.split("\n"))
        if "-----BEGIN " in text:
            text = _PEM.sub(lambda found: found[1] + self._replace("pem", found[2]), text)
        if "://" in text:
            text = _USER.sub(self._user, text)
        return self._settings(_FIELD.sub(self._field, text)) if "=" in text or ":" in text else text

    def _read(self, text: str, level: int) -> str | None:
        """Return a string that is JSON without its secrets, as it is where it has none; None for any other."""
        try:
            value = read_json(text.encode())
        except ValueError:
            return None
        clean = self.json(value, level + 1)
        return text if clean == value else msgspec.json.encode(clean).decode()

    def _replace(self, name: str, value: str) -> str:
        if not value.strip("*") or value == REDACTED:
            return value
        self.found += _in_header(name, value)
        return REDACTED

    def _user(self, found: re.Match[str]) -> str:
        user, password = found[1], found[2]
        if password is None:
            return found[0] if len(user) < LEAST else f"://{self._replace('user', user)}@"
        if password == REDACTED:
            return found[0]
        self.found += (password, unquote(password), f"{user}:{password}@")
        return f"://{user}:{REDACTED}@"

    def _field(self, found: re.Match[str]) -> str:
        """Return a line of a header, as commands have it; unlike prose, its value holds a digit."""
        name, value = found[1], found[2].rstrip()
        if not is_secret_header(name) or not any(map(str.isdigit, value)):
            return found[0]
        return f"{name}: {self._replace(name, value)}"

    def _settings(self, text: str) -> str:
        pieces: list[str] = []
        done = 0
        while setting := _SETTING.search(text, done):
            start = stop = setting.end()
            before = text[setting.start() - 1 : setting.start()]
            if (is_secret_in_url if before in ("?", "&") else is_secret)(setting[1]):
                if quoted := _QUOTE.match(text, start):
                    start = quoted.end()
                    stop = _closing(text, quoted[0], start)
                else:
                    stop = _unquoted(text, start, sure=before in ("?", "&", ";"))
            pieces += (text[done:start], self._replace(setting[1], text[start:stop]))
            done = stop
        return "".join([*pieces, text[done:]])

    def _pair(self, key: str, equals: str, value: str) -> str:
        if equals and is_secret_in_url(unquote_plus(key)):
            return f"{key}={quote(self._replace('', unquote_plus(value)))}"
        plain = unquote_plus(value)
        clean = self.text(plain)
        return key + equals + (value if clean == plain else quote(clean, errors="replace"))

    def _path(self, path: str) -> str:
        """Return a path with `*` for each character of a key: of a segment that is one, or that is called one before.

        Behind `/token/`, `/keys/` and the like is a key what has a digit or `LEAST` characters, and is no version.
        """
        segments: list[str] = []
        before = ""
        for segment in path.split("/"):
            plain = unquote(segment)
            clean = self.text(plain)
            named = is_secret(before) or before in ("key", "keys")
            if bot := _BOT_TOKEN.search(clean):
                self.found.append(bot[0])
                clean = _BOT_TOKEN.sub(lambda token: "*" * len(token[0]), clean)
            elif is_opaque(clean) or (
                named and not _VERSION.fullmatch(clean) and (len(clean) >= LEAST or any(map(str.isdigit, clean)))
            ):
                self._replace("", clean)
                clean = "*" * len(clean)
            segments.append(segment if clean == plain else quote(clean, safe="*:@+,;=!~'()", errors="replace"))
            before = plain
        return "/".join(segments)


def _in_header(name: str, value: str) -> Iterator[str]:
    """Yield the credentials that a header, or a value of such a name, holds."""
    if name.lower() in ("cookie", "set-cookie"):
        cookies = value.split(";")
        for cookie in cookies[: 1 if name.lower() == "set-cookie" else len(cookies)]:  # behind it are its attributes
            label, equals, content = cookie.partition("=")
            content = (content if equals else label).strip().strip('"')
            yield from dict.fromkeys((content, unquote(content)))
        return
    scheme, _, token = value.partition(" ")
    if scheme.lower() not in _SCHEMES:
        yield value
        return
    yield token.strip() or scheme
    if scheme.lower() == "basic":
        with contextlib.suppress(binascii.Error, ValueError):
            user, _, password = base64.b64decode(token, validate=True).decode("latin-1").partition(":")
            yield from (user, password)


def _unquoted(text: str, start: int, *, sure: bool) -> int:
    """Return where the value ends that begins at `start`: there, if it is code, unless it is `sure` that it is none."""
    if text.startswith(REDACTED, start):
        return start + len(REDACTED)
    found = _UNQUOTED.match(text, start)
    assert found is not None
    stop = found.end()
    if not sure and text[stop : stop + 1] != ";" and _CODE.fullmatch(text, start, stop):
        return start
    return start + len(found[0].rstrip(",.:)]}"))


def _closing(text: str, quote_mark: str, start: int) -> int:
    """Return where the same quotation mark stands again, the end where it does not; one behind a backslash is none."""
    while (found := text.find(quote_mark, start)) > start and text[found - 1] == "\\":
        start = found + len(quote_mark)
    return len(text) if found < 0 else found


# Which names are those of credentials, and which strings look like one although nothing names them.
#
# Names are compared by their words, however they are joined: `apiKey`, `API-KEY` and `user[api_key]` are one. What is
# last in a name decides, so that `author`, `max_tokens` and `authentication_methods` are none.

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
