r"""Removes secrets from recordings, because recordings are committed and shared.

The head of an exchange is redacted before it is written:

- Only headers of an allow-list are recorded.
- A request body is recorded only with `record_body=True`. Otherwise only its size is recorded.
- In URLs, user names and passwords are removed. The value of a parameter whose name suggests a credential is replaced.
- These are overwritten in the text of the head: keys of known formats, the caller's secrets, and the credentials in
  the headers and URL of the request. They are also overwritten in the bytes of the response, because a server that
  refuses a key often repeats it.

A replay redacts a new request in the same way, to compare it with the recorded requests.

In the bytes of a stream, a `Scrubber` overwrites keys, even if chunk boundaries split a key. A response can contain a
key, because an error message repeats it or because the model writes it. Each byte after the prefix of a key is replaced
by `*`, as in `sk-****************`. This keeps all lengths. Other secrets, which the caller passes, are overwritten
completely.

The bytes are searched twice. First the raw bytes are searched for whole keys. In a key, `\/` may stand for `/`. A key
may follow an escape of JSON or a URL directly, as in `\nsk-…` or `%20sk-…`. Second, some JSON fields are searched:
those in which providers send text or arguments, such as `"content":"…"`. The values of all fields with the same name
are joined, because a model writes only a few characters of a key in each event. Text in other encodings is not
searched. A secret without a known format is found only if the caller passes it.

A key never contains a line end. So whole lines are searched, and an unfinished line is buffered. A line of more than
`MAX_LINE` bytes is searched in parts. If a part or a joined value ends with the beginning of a key, this beginning (at
most `MAX_SECRET` bytes) is searched again together with the next data. Events that contain the possible beginning of a
key are buffered until the key is complete or excluded, at most `MAX_BUFFERED` bytes.
"""

from __future__ import annotations

import base64
import json
import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias
from urllib.parse import quote, unquote, unquote_plus, urlsplit, urlunsplit

import msgspec
from msgspec.structs import replace

from streamtools.json_values import fits, with_texts
from streamtools.recording.format import ExchangeHead, RecordedRequest
from streamtools.rules.key_formats import FORMATS

MAX_SECRET = 4096
"""The maximum length in bytes of a secret text, and of the head of a JWT."""

MAX_LINE = 64 * 1024
"""The length in bytes up to which the fields of a line are joined. Events with text of a model are shorter."""

MAX_BUFFERED = 16 * 1024
"""The maximum number of bytes that are buffered because a joined field may end with the beginning of a key."""

_TOKEN = rb"[A-Za-z0-9_-]"
_WIDE = rb"(?:[A-Za-z0-9._~+/=-]|\\/)"
# A key does not begin inside a word. It may follow the end of an escape: "\n", "\u00e9" or "%20".
_BOUNDARY = rb"(?:(?<![A-Za-z0-9_-])|(?<=\\[bfnrt])|(?<=\\u[0-9A-Fa-f]{4})|(?<=%[0-9A-Fa-f]{2}))"
# Known key formats: the pattern of a character after the prefix, the minimum number of these characters, and the
# prefixes. The last row finds the values of Authorization headers, even inside JSON.
_FORMATS: list[tuple[bytes, int, list[bytes]]] = [
    *(
        (character.encode(), minimum, [prefix.encode() for prefix in prefixes])
        for character, minimum, prefixes in FORMATS
    ),
    (_WIDE, 16, [b"[Bb]earer ", b"BEARER ", b"[Bb]earer%20"]),
]
# A JWT such as "eyJhbGciOi….eyJzdWIiOi…", and the rest of an incomplete JWT after "eyJ"
_JWT = rb"eyJ(?=[A-Za-z0-9_-]{8,%d}\.[A-Za-z0-9_-]{8})([A-Za-z0-9_.-]*)" % (MAX_SECRET - 16)
_PARTIAL_JWT = rb"[A-Za-z0-9_-]*(?:(?<=[A-Za-z0-9_-]{8})\.[A-Za-z0-9_-]{0,7})?"


def _whole_key(character: bytes, minimum: int, prefix: bytes) -> bytes:
    """Return a pattern of whole keys. Its group is the part of the key to overwrite."""
    return rb"%s(?=%s{%d})(%s*)" % (prefix, character, minimum, _WIDE if character == _WIDE else _TOKEN)


def _key_beginning(prefix: bytes, rest: bytes) -> bytes:
    """Return a pattern that matches any beginning of `prefix`, or the whole prefix followed by the pattern `rest`."""
    pattern = rb"(%s\\?)" % rest  # a trailing backslash may begin an escaped slash
    for atom in reversed(re.findall(rb"\[[^]]*\]|.", prefix)):
        pattern = rb"%s(?:%s)?" % (atom, pattern)
    return pattern


def _compile_any(patterns: Iterable[bytes]) -> re.Pattern[bytes]:
    return re.compile(_BOUNDARY + b"(?:" + b"|".join(patterns) + b")")


_ROWS = [(character, minimum, prefix) for character, minimum, prefixes in _FORMATS for prefix in prefixes]
_KEY = _compile_any([*(_whole_key(*row) for row in _ROWS), _JWT])
# Patterns of the beginnings of keys. They are sorted, because the first alternative that matches wins: "hf_oa" may
# already begin a key of `hf_`.
_BEGINNINGS = sorted((prefix, b"%s{0,%d}" % (character, minimum - 1)) for character, minimum, prefix in _ROWS)
_PARTIAL_KEY = _compile_any(b"(?:%s)\\Z" % _key_beginning(*row) for row in [*_BEGINNINGS, (b"eyJ", _PARTIAL_JWT)])
_HINTS = {max(re.sub(rb"\[.*?\]", b"|", prefix).split(b"|"), key=len) for _, _, prefix in _ROWS} | {b"eyJ"}
"""Each key contains one of these texts. Fast path: a search for them is 20 times as fast as a search for patterns."""

Secrets: TypeAlias = Iterable[str] | Iterable[bytes]
"""Secret texts, or the result of `encode_secrets`. With the result, they are encoded only once for many searches."""

# JSON fields in which providers send pieces of a model's text or arguments
_FIELDS = (
    *("content", "text", "delta", "arguments", "partial_json", "thinking", "reasoning", "reasoning_content"),
    *("reasoning_text", "refusal", "response", "input", "output", "textDelta", "inputTextDelta", "argsTextDelta"),
)
# "content": "a piece of text". The groups are the name of the field and its value.
_PIECE = re.compile(rb'"(%s)"[ ]*:[ ]*"(?!")([^"\\]*+(?:\\.[^"\\]*+)*+)"' % "|".join(_FIELDS).encode())
_SHORTEST_KEY = 15  # the minimum length of a key in bytes
_LOOKBEHIND = 16  # patterns look back at most this many bytes before a match
_MAX_SHOWN = 4  # if the stream ends within a secret text, up to this many bytes of the secret are not overwritten
_ASTERISK = ord("*")


class Scrubber:
    """Overwrites secrets in a stream of bytes.

    `feed` returns the bytes that are decided: it is known whether they belong to a secret. `close` returns the rest.

    Keys of known formats are always overwritten. `secrets` holds additional secrets. Raises ValueError for an invalid
    secret.
    """

    def __init__(self, secrets: Secrets = ()) -> None:
        self._texts = encode_secrets(secrets)
        # A key directly after a secret is inside a word, and is not found. When the secret is overwritten, the key
        # begins a word. Search again.
        self._second_pass = Scrubber() if self._texts else None
        self._raw = _SearchedText(self._texts, joined=False)
        self._fields: dict[bytes, _SearchedText] = {}  # maps the name of a field to its joined values
        self._buffer = bytearray()  # the bytes that were fed and not returned
        self._buffer_start = 0  # the position of the first byte in the buffer; positions count from the first byte fed
        self._searched = 0  # the position of the first byte that was not searched
        self._line_start = 0  # the position at which the unfinished line begins

    def feed(self, data: bytes) -> bytes:
        """Add `data`. Return the decided bytes that were not returned before."""
        self._buffer += data
        end = self._buffer_start + len(self._buffer)
        whole_lines = self._buffer.rfind(b"\n", len(self._buffer) - len(data)) + 1
        stop = max(self._buffer_start + whole_lines, self._searched)
        stop = end if end - stop > MAX_LINE else stop
        if stop > self._searched:
            self._search(stop)
        texts = (self._raw, *self._fields.values())
        decided = self._take(min(text.first_undecided(self._searched) for text in texts))
        return decided if self._second_pass is None else self._second_pass.feed(decided)

    def close(self, *, complete: bool) -> bytes:
        """Return the remaining bytes.

        With `complete=False`, overwrite the possible beginning of a key or of a secret text at the end. A beginning of
        a secret text with at most `_MAX_SHOWN` bytes stays.
        """
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
        self._overwrite(self._raw.add(data, self._searched))
        for line in re.findall(rb"[^\n]*\n|[^\n]+", data):
            if self._searched + len(line) - self._line_start <= MAX_LINE:
                for piece in _PIECE.finditer(line):
                    field = self._fields.setdefault(piece[1], _SearchedText(self._texts, joined=True))
                    self._overwrite(field.add(piece[2], self._searched + piece.start(2)))
            self._searched += len(line)
            self._line_start = self._searched if line.endswith(b"\n") else self._line_start
            for name in () if is_last else list(self._fields):
                if self._searched - self._fields[name].first_undecided(self._searched) > MAX_BUFFERED:
                    del self._fields[name]  # no key is that long, so stop buffering for this field

    def _overwrite(self, positions: Iterable[int]) -> None:
        for position in positions:
            self._buffer[position - self._buffer_start] = _ASTERISK

    def _take(self, stop: int) -> bytes:
        data = bytes(self._buffer[: stop - self._buffer_start])
        del self._buffer[: stop - self._buffer_start]
        self._buffer_start = stop
        return data


class _SearchedText:
    """A growing text that is searched for secrets: the raw bytes, or the joined values of a field.

    An index is an offset in this text, a position is an offset in the stream. Keys have been searched up to the index
    `_search_from`, and secret texts up to the index `_decided`.
    """

    def __init__(self, texts: list[bytes], *, joined: bool) -> None:
        self._text = bytearray()  # the context that lookbehinds read, and then the undecided text
        self._positions = array("q") if joined else range(0)  # the position in the stream of each byte of the text
        self._search_from = 0
        self._decided = 0
        self._texts = texts

    def first_undecided(self, default: int) -> int:
        """Return the position of the first undecided byte. Returns `default` if all bytes are decided."""
        return self._positions[self._decided] if self._decided < len(self._positions) else default

    def add(self, data: bytes, position: int) -> list[int]:
        """Append `data`, which starts at `position` in the stream. Return the positions of the bytes of secrets."""
        self._forget(self._search_from + MAX_SECRET, self._decided)  # drop the middle of a very long key
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
        partial = self._find_partial_key()
        # No later key can contain a byte before the index `tail`.
        self._search_from = tail = partial.start() if partial else size
        # The next data may continue a key at the end of the text, so the next search starts where this key begins. The
        # same applies to a key before a final backslash, as the backslash may begin an escaped slash.
        for key in keys:
            if key.start() < tail:
                continues = text[key.end() : key.end() + 2] in (bytearray(), bytearray(b"\\"))
                tail = max(tail, key.end())
                self._search_from = key.start() if continues else tail
        spans = [*(key.span(key.lastindex or 0) for key in keys), *self._find_texts()]
        self._decided = min(tail, self._find_partial_text())
        return [item for first, last in spans for item in self._positions[max(first, decided) : last]]

    def find_cut_secret(self) -> Sequence[int]:
        """Return the positions of an incomplete secret at the end of the text."""
        size, text_start, partial = len(self._text), self._find_partial_text(), self._find_partial_key()
        key_start = partial.start(partial.lastindex) if partial and partial.lastindex else size
        return self._positions[min(key_start, text_start) if size - text_start > _MAX_SHOWN else key_start :]

    def _forget(self, start: int, stop: int) -> None:
        """Delete the text from the index `start` to the index `stop`, if `stop` is greater."""
        if start < stop:
            del self._text[start:stop]
            if isinstance(self._positions, array):
                del self._positions[start:stop]
            self._decided -= stop - start
            self._search_from -= 0 if start else stop

    def _find_partial_key(self) -> re.Match[bytes] | None:
        """Return the match of an incomplete key at the end of the text. It is in the unfinished line."""
        return _PARTIAL_KEY.search(
            self._text, max(self._decided, self._text.rfind(b"\n") + 1, len(self._text) - MAX_SECRET)
        )

    def _find_texts(self) -> Iterator[tuple[int, int]]:
        """Yield the spans of the secret texts. Overlapping spans of one text are cut, so that they do not overlap."""
        for text in self._texts:
            start, index = 0, self._text.find(text, self._decided)
            while index >= 0:
                yield max(start, index), index + len(text)
                start, index = index + len(text), self._text.find(text, index + 1)

    def _find_partial_text(self) -> int:
        """Return the index at which an incomplete secret text at the end begins, or else the length of the text."""
        partial = size = len(self._text)
        for text in self._texts:
            index = self._text.find(text[:1], max(self._decided, size - len(text) + 1))
            while 0 <= index < partial and not text.startswith(self._text[index:]):
                index = self._text.find(text[:1], index + 1)
            partial = index if 0 <= index < partial else partial
        return partial


def scrub(data: bytes, secrets: Secrets = ()) -> bytes:
    """Return `data` with its secrets overwritten. `data` must be complete."""
    encoded = encode_secrets(secrets)
    clean = bytearray(data)
    for position in _SearchedText(encoded, joined=False).add(data, 0):
        clean[position] = _ASTERISK
    return scrub(bytes(clean)) if encoded else bytes(clean)


def encode_secrets(secrets: Secrets) -> list[bytes]:
    """Encode secrets for searching. Raises ValueError for a secret that is empty or too long."""
    encoded = set[bytes]()
    for secret in secrets:
        encoded |= {secret} if isinstance(secret, bytes) else _encodings(secret)
    return list(encoded)


def _encodings(secret: str) -> set[bytes]:
    """Return the encodings of a secret text: plain, as a JSON string, and as a JSON string inside a JSON string.

    Both JSON encodings are returned with and without ASCII escapes.
    """
    texts = {secret}
    for ensure_ascii in (False, True):
        escaped = secret
        for _ in range(2):
            escaped = json.dumps(escaped, ensure_ascii=ensure_ascii)[1:-1]
            texts.add(escaped)
    encoded = {text.encode(errors="surrogatepass") for text in texts}
    if not secret or max(map(len, encoded)) > MAX_SECRET:
        raise ValueError(f"a secret text must have 1 to {MAX_SECRET} bytes, also when it is escaped in JSON")
    return encoded


# The heads of exchanges.

HEADERS = frozenset({
    "accept", "content-type", "request-id", "retry-after", "server", "user-agent", "x-request-id",
    "x-vercel-ai-data-stream", "x-vercel-ai-ui-message-stream",
})  # fmt: skip
"""The names of the headers that are recorded. `content-encoding` is missing, because decoded bytes are recorded."""

REDACTED = "[redacted]"

_SECRET_NAME = re.compile(
    "auth|key|token|secret|pass|pwd|credential|cookie|session|signature|sig$|sid$|jwt|code$", re.IGNORECASE
)
"""Matches the names of headers and URL parameters whose values are credentials."""
# "Bearer " in "Bearer sk-…"
_SCHEME = re.compile(r"(?:apikey|basic|bearer|digest|key|negotiate|token) +", re.IGNORECASE)
_MIN_CREDENTIAL = 16  # length in characters; a shorter value may be an ordinary word
_MAX_CREDENTIALS = 32  # at most this many credentials of a request are searched for; each search takes time
_MAX_DEPTH = 100  # levels of nested JSON; a deeper value would exhaust the stack

Headers = Iterable[tuple[str, str]]


def describe_request(
    method: str, url: str, headers: Headers, content: bytes = b"", *, record_body: bool = False
) -> RecordedRequest:
    """Return a request for a recording. Without `record_body`, it has only the size of the body.

    Its URL and its body still contain secrets, which `redact_request` overwrites.
    """
    request = RecordedRequest(method=method, url=url, headers=keep_headers(headers))
    if record_body:
        return with_body(request, content)
    return replace(request, left_out=f"{len(content)} bytes") if content else request


def credentials_in(headers: Headers, url: str = "") -> list[str]:
    """Return the credentials in headers and a URL, to overwrite them in other text. Short values are skipped."""
    found: list[str] = []
    for name, value in headers:
        if name.lower() in ("cookie", "set-cookie"):
            # In `set-cookie`, only the first item is a cookie.
            cookies = value.split(";")[: 1 if name.lower() == "set-cookie" else None]
            found += [cookie.partition("=")[2].strip().strip('"') for cookie in cookies]
        elif _SECRET_NAME.search(name):
            found.append(_SCHEME.sub("", value.strip(), count=1))
    parts = urlsplit(url)
    found += map(unquote, parts.netloc.rpartition("@")[0].partition(":")[::2])  # user name and password
    for parameter in (*parts.query.split("&"), *parts.fragment.split("&")):
        name, _, value = parameter.partition("=")
        if _SECRET_NAME.search(unquote_plus(name)):
            found.append(unquote_plus(value))
    # A search finds at most `MAX_SECRET` bytes, so only the beginning of a long credential is searched for. One
    # character takes up to 14 bytes: in JSON inside JSON, a character above U+FFFF is two escapes such as `\\ud83d`.
    long_enough = [value[: MAX_SECRET // 14] for value in found if len(value) >= _MIN_CREDENTIAL]
    return list(dict.fromkeys(long_enough))[:_MAX_CREDENTIALS]


def redact_head(head: ExchangeHead, redact: Secrets = ()) -> ExchangeHead:
    """Return a head in which keys of known formats and the secrets in `redact` are overwritten."""
    secrets, response = encode_secrets(redact), head.response
    if response is not None:
        headers = {name: redact_text(value, secrets) for name, value in response.headers.items()}
        response = replace(response, headers=headers)
    request = head.request and redact_request(head.request, secrets)
    return replace(head, title=redact_text(head.title, secrets), request=request, response=response)


def keep_headers(headers: Headers) -> dict[str, str]:
    """Return the headers whose names are in the allow-list. Names are in lower case, repeated headers are joined."""
    kept: dict[str, str] = {}
    for name, value in headers:
        if (key := name.lower()) in HEADERS:
            kept[key] = f"{kept[key]}, {value}" if key in kept else value
    return kept


def redact_url(url: str) -> str:
    """Return `url` without user name and password. Values of parameters whose names suggest a credential are replaced.

    >>> redact_url("https://me:pass@example.org/v1/chat?alt=sse&api_key=123")
    'https://example.org/v1/chat?alt=sse&api_key=%5Bredacted%5D'
    """
    parts = urlsplit(url)
    fragment = _redact_parameters(parts.fragment) if "=" in parts.fragment else parts.fragment
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=host, query=_redact_parameters(parts.query), fragment=fragment))


def redact_text(text: str, secrets: Secrets = ()) -> str:
    """Return `text` in which keys of known formats and `secrets` are overwritten."""
    data = text.encode(errors="surrogatepass")
    clean = scrub(data, secrets)
    return text if clean == data else clean.decode(errors="replace")


def redact_request(request: RecordedRequest, secrets: list[bytes]) -> RecordedRequest:
    """Return a request in which keys of known formats and `secrets` are overwritten.

    It has only the allowed headers, and a URL without credentials. A body that is nested too deeply is replaced by
    `REDACTED`.
    """
    body = request.body if fits(request.body, _MAX_DEPTH) else REDACTED
    return replace(
        request,
        url=_redact_escaped(redact_url(request.url), secrets),
        headers={name: redact_text(value, secrets) for name, value in keep_headers(request.headers.items()).items()},
        body=with_texts(body, lambda text: redact_text(text, secrets)),
        body_base64=base64.b64encode(scrub(base64.b64decode(request.body_base64), secrets)).decode(),
        left_out=redact_text(request.left_out, secrets),
    )


def with_body(request: RecordedRequest, content: bytes) -> RecordedRequest:
    """Return `request` with a body as JSON, text or base64. Empty content is no body."""
    if not content:
        return request
    try:
        return replace(request, body=msgspec.json.decode(content))
    except (ValueError, RecursionError):
        pass
    try:
        return replace(request, body=content.decode())
    except UnicodeDecodeError:
        return replace(request, body_base64=base64.b64encode(content).decode())


def _redact_parameters(text: str) -> str:
    parameters = []
    for parameter in text.split("&"):
        name, equals, _ = parameter.partition("=")
        is_secret = equals and _SECRET_NAME.search(unquote_plus(name))
        parameters.append(f"{name}={quote(REDACTED)}" if is_secret else parameter)
    return "&".join(parameters)


def _redact_escaped(url: str, secrets: list[bytes]) -> str:
    """Return `url` in which secrets are overwritten, also percent-encoded secrets."""

    def clean(part: re.Match[str]) -> str:
        plain = unquote(part[0])
        redacted = redact_text(plain, secrets)
        return part[0] if redacted == plain else quote(redacted, safe="*:@+,;!~'()")

    return re.sub("[^/?&=#]+", clean, url)
