"""Secrets planted in an exchange, each where a recording has kept one: none is in the file, and harmless text is."""

from __future__ import annotations

import base64
import gzip
import io
import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from streamtools.errors import UnrecordedRequest
from streamtools.recording import (
    Head,
    RecordingTransport,
    RecordingWriter,
    ReplayTransport,
    Request,
    describe_request,
    read_recording,
)
from streamtools.recording.file_writer import import_stream
from streamtools.recording.redact import MANY, read_request
from tests.support.cases import together

SECRET = "Zq7fLw2mXc9vRk4tBn8s"  # of no known format, and random enough to be known in a path
SHORT = "tr0ub4dor"  # as people choose them; too short to be looked for elsewhere
NUMBER = 8675309123
PEM = f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n{SECRET}\n-----END PRIVATE KEY-----\n"
BOUNDARY = {"content-type": "multipart/form-data; boundary=b"}
IMAGE = b"\x89PNG\r\n\x1a\n\x00\xff"


def packed(value: Any) -> bytes:
    return gzip.compress(json.dumps(value).encode(), mtime=0)


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


def part(data: bytes, disposition: str, *more: str) -> bytes:
    head = "\r\n".join((f"Content-Disposition: form-data; {disposition}", *more))
    return f"--b\r\n{head}\r\n\r\n".encode() + data + b"\r\n"


def says(text: str) -> dict[str, Any]:
    """Return a request in which a user says this."""
    return {"json": {"messages": [{"role": "user", "content": text}]}}


IN_REQUEST: dict[str, dict[str, Any]] = {
    # under names
    "pwd": {"json": {"pwd": SHORT}},
    "passphrase": {"json": {"key": {"passphrase": SHORT}}},
    "signing_key": {"json": {"signing_key": SHORT}},
    "auth": {"json": {"tools": [{"auth": SHORT}]}},
    "connectionString": {"json": {"connectionString": f"Server=x;{SHORT}"}},
    "PASSWORD_2": {"json": {"PASSWORD_2": SHORT}},
    "cookies in JSON": {"json": {"headers": {"Cookie": f"a={SHORT}"}}},
    "nested in an object": {"json": {"credentials": {"user": {"login": "me", "word": SHORT}}}},
    "nested in a list": {"json": {"api_keys": ["one", [SHORT]]}},
    "a number": {"json": {"password": NUMBER}},
    "a pair": {"json": {"env": [{"name": "DB_PASSWORD", "value": SHORT}]}},
    "a default in a schema": {"json": {"properties": {"api_key": {"type": "string", "default": SHORT}}}},
    "no schema": {"json": {"properties": {"password": {"is": SHORT}}}},
    # in strings
    "JSON in a string": {"json": {"arguments": json.dumps({"auth": {"user": SHORT}})}},
    "JSON in JSON in a string": {"json": {"arguments": json.dumps({"a": json.dumps({"pwd": SHORT})})}},
    "lines of JSON": {"content": f'{{"a":1}}\n{{"passphrase":["{SHORT}"]}}\n'.encode()},
    "JSON with a byte order mark": {"content": f'\ufeff{{"pwd":{{"a":"{SHORT}"}}}}'.encode()},
    "JSON that is broken": {"content": f'{{"password" : "{SHORT}",}}'.encode()},
    "JSON in prose": says(f"Use {{'api_key': '{SHORT}'}} for it"),
    "escaped JSON in prose": says(f'It says {{\\"client_secret\\": \\"a{SHORT}\\"}}'),
    "an address of a database": says(f"postgresql+psycopg://app:{SHORT}@db:5432/x fails"),
    "an address with a token": says(f"git clone https://{SECRET}@git.example.org/x"),
    "ADO": says(f"Server=tcp:x,1433;User ID=sa;Password={SHORT};Encrypt=True"),
    "storage": says(f"AccountName=x;AccountKey={SECRET}==;EndpointSuffix=core.windows.net"),
    "libpq": says(f"host=db user=me password={SHORT} dbname=x"),
    "quoted": says(f"host=db password='a {SHORT}' dbname=x"),
    "environment": says(f"PATH=/bin\nexport OPENAI_API_KEY={SHORT}\n"),
    "a command": says(f"mysql --password={SHORT} x"),
    "a header in a command": says(f"curl -H 'X-Api-Key: {SHORT}' https://x"),
    "Basic in a command": says(f'curl -H "Authorization: Basic {base64.b64encode(SECRET.encode()).decode()}" x'),
    "a signed address": {"json": {"image_url": {"url": f"https://x/a.png?w=1&X-Amz-Signature={SECRET}"}}},
    "a link": says(f"[here](https://x/a?token={SHORT})"),
    "PEM": says(f"My key:\n{PEM}Thanks"),
    # in the address
    "a webhook": {"url": f"http://x/services/T0/B0/{SECRET}"},
    "a key in hexadecimal": {"url": f"http://x/mcp/{SECRET.encode().hex()}/sse"},
    "behind its name": {"url": f"http://x/token/{SHORT}/v1"},
    "in a segment": {"url": f"http://x/a;token={SHORT}/v1"},
    "in the query": {"url": f"http://x/?passphrase={SHORT}"},
    "JSON in the query": {"url": "http://x/", "params": {"q": json.dumps({"pwd": SHORT})}},
    "in the fragment": {"url": f"http://x/#access_token={SHORT}&a=b"},
    # in bodies of other kinds
    "a form": {"data": {"passphrase": SHORT}},
    "an address in a form": {"data": {"url": f"redis://me:{SHORT}@x"}},
    "gzip": {"content": packed({"pwd": SHORT}), "headers": {"content-encoding": "gzip"}},
    "gzip, undeclared": {"content": packed({"pwd": SHORT})},
    "deflate": {"content": zlib.compress(b'{"pwd":"%b"}' % SHORT.encode()), "headers": {"content-encoding": "deflate"}},
    "raw deflate": {
        "content": raw_deflate(b'{"pwd":"%b"}' % SHORT.encode()),
        "headers": {"content-encoding": "deflate"},
    },
    "packed twice": {"content": gzip.compress(packed([SHORT])), "headers": {"content-encoding": "gzip"}},
    "packed in an unknown way": {"content": f"pack {SHORT}".encode(), "headers": {"content-encoding": "br"}},
    "binary": {"content": IMAGE + SHORT.encode()},
    "a field": {"files": {"a": ("a.txt", b"x")}, "data": {"client_secret": SHORT}},
    "a file of JSON": {"files": {"a": ("a.json", json.dumps({"auth": [SHORT]}).encode())}},
    "a file of settings": {"files": {"a": (".env", f"DB_PASSWORD={SHORT}\n".encode())}},
    "a packed file": {"files": {"a": ("a.json.gz", packed({"auth": {"a": SHORT}}))}},
    "a binary file": {"files": {"a": ("a.png", IMAGE + SHORT.encode())}},
    "a file in base64": {
        "content": part(
            base64.b64encode(b"DB_PASSWORD=%b\n" % SHORT.encode()), 'name="a"', "Content-Transfer-Encoding: base64"
        )
        + b"--b--\r\n",
        "headers": BOUNDARY,
    },
    "parts in parts": {
        "content": part(
            b'--c\r\nContent-Disposition: form-data; name="pwd"\r\n\r\n%b\r\n--c--\r\n' % SHORT.encode(),
            'name="a"',
            "Content-Type: multipart/mixed; boundary=c",
        )
        + b"--b--\r\n",
        "headers": BOUNDARY,
    },
    "parts that are none": {"content": f'--c\r\nname="pwd"\r\n\r\n{SHORT}'.encode(), "headers": BOUNDARY},
}

ECHOED: dict[str, dict[str, Any]] = {
    "cookie": {"headers": {"Cookie": f"theme=dark; session={SECRET}"}},
    "cookie without a name": {"headers": {"Cookie": SECRET}},
    "function key": {"headers": {"x-functions-key": SECRET}},
    "session": {"headers": {"X-Session-Id": SECRET}},
    "path": {"url": f"http://x/{SECRET}/v1"},
    "nested": {"json": {"credentials": {"a": [SECRET]}}},
    "password of a database": says(f"postgresql://app:{SECRET}@db"),
    "packed": {"content": packed({"pwd": SECRET}), "headers": {"content-encoding": "gzip"}},
    "part": {"files": {"a": ("a.txt", b"x")}, "data": {"pwd": SECRET}},
    "setting": says(f"OPENAI_API_KEY={SECRET}, is it right?"),
    "cookie of the response": {},
}


def read_all(data: bytes) -> Iterator[bytes]:
    """Yield data, and what is packed in it, or written in base64, so that nothing is hidden from the test."""
    yield data
    for found in re.findall(rb"[A-Za-z0-9+/]{12,}={0,2}", data.replace(rb"\r\n", b"\n")):
        if len(found) % 4 == 0:
            yield from read_all(base64.b64decode(found))
    for way in (31, 15, -15):
        try:
            plain = zlib.decompress(data, way)
        except zlib.error:
            continue
        yield from read_all(plain)


def assert_absent(data: bytes) -> None:
    encoded = base64.b64encode(SECRET.encode())[:20]
    hidden = [secret.encode() for secret in (SHORT, SECRET, str(NUMBER), SECRET.encode().hex())]
    for each in read_all(data):
        assert [] == [secret for secret in (*hidden, encoded) if secret in each]


def ask(asked: dict[str, Any], answer: httpx.Response, **options: Any) -> io.BytesIO:
    """Return the recording of this request."""
    file = io.BytesIO()
    transport = RecordingTransport(httpx.MockTransport(lambda _: answer), file, **options)
    with httpx.Client(transport=transport) as client:
        client.request("POST", **({"url": "http://x/v1"} | asked))
    return file


@pytest.mark.parametrize("asked", IN_REQUEST.values(), ids=IN_REQUEST)
def test_planted_in_a_request(asked: dict[str, Any], tmp_path: Path) -> None:
    """It is not in the recording, and the same request finds it there, which was not so with a boundary."""
    file = ask(asked, httpx.Response(200, text="ok"))
    assert_absent(file.getvalue())
    path = tmp_path / "a.jsonl"
    path.write_bytes(file.getvalue())
    with httpx.Client(transport=ReplayTransport(path)) as client:
        assert "ok" == client.request("POST", **({"url": "http://x/v1"} | asked)).text
    again = io.BytesIO()
    import_stream(path, again)
    assert file.getvalue() == again.getvalue()


@together("asked", ECHOED.values(), ids=ECHOED)
def test_echoed_by_a_response(asked: dict[str, Any]) -> None:
    """It is overwritten there, and its length stays."""
    headers = {"Set-Cookie": f"sid={SECRET}; Domain=chat.example.org"}
    told = f"chat.example.org: no such key: {SECRET}!"
    written = ask(asked, httpx.Response(401, text=told, headers=headers)).getvalue()
    assert_absent(written)
    assert f"chat.example.org: no such key: {'*' * len(SECRET)}!" in written.decode()


HARMLESS: dict[str, Any] = {
    "counts": {"max_tokens": 4096, "usage": {"prompt_tokens": 123456, "cached_tokens": 2000, "total_tokens": 125456}},
    "words": {"author": "A. Key", "authority": "x", "authentication_methods": ["password", "token"], "tokenizer": "x"},
    "vocabulary": {"eos_token": "</s>", "token": 50256, "logit_bias": {"50256": -100}, "seed": 123456789},
    "keys": {"prompt_cache_key": "a", "key": "b", "primary_key": "id", "keyword": "c", "monkey": "d"},
    "switches": {"requires_auth": True, "password": None, "auth": False, "pass": 12, "signature": "Eq0B"},
    "a schema": {
        "properties": {"password": {"type": "string", "description": "Of the user."}, "token": {"$ref": "#/$defs/t"}},
        "required": ["password", "token"],
    },
    "an empty schema": {"properties": {"auth": {}}},
    "prose": "The token: what is it? A secret is no password. Use tokens=5, key=value; see the cookie: it is sweet.",
    "code": "def f(token, x):\n    g(token=token, key=x)\n    password = ask()\n    return token == ''\nf(token=get())",
    "more code": "if (pwd==x1) { authorization: required }",
    "addresses": "https://x.org:443/@scope/a?page=2&q=a:b@c ssh://git@example.org/x mailto:me@example.org",
    "braces": '{ "a": 1, "max_tokens": 5 } and {"b": [2]}',
    "spelled JSON": '{ "tokens" : 5 }',
    "lines": '{ "a":1 }\n{ "b" : 2 }\n',
    "redacted": "postgres://me:[redacted]@x?key=[redacted]; password=[redacted] 'pwd': '[redacted]'",
}


@together("body", HARMLESS.values(), ids=HARMLESS)
def test_harmless_bodies(body: Any) -> None:
    """They stay as they are."""
    assert body == describe_request("POST", "http://x", [], json.dumps(body).encode()).body


@together(
    "path",
    [
        "openai/deployments/gpt-4o-mini-2024-07-18/chat/completions?api-version=2024-10-21",
        "v1beta/models/gemini-2.0-flash-thinking-exp-01-21:streamGenerateContent?alt=sse",
        "v1/threads/thread_abc123DEF456ghi789JKL012/runs",
        "v1/responses/resp_67ccd2bed1ec8190b14f964abc054267",
        "model/anthropic.claude-3-5-sonnet-20241022-v2:0/converse",
        "api/Meta-Llama-3.1-8B-Instruct-Turbo/DeepSeek-R1-Distill-Qwen-32B/Qwen2.5-Coder-32B-Instruct-AWQ",
        "sessions/123e4567-e89b-12d3-a456-426614174000/events",
        "oauth/token/revoke/auth/v2.0/login",
        "#/route/a",
    ],
)
def test_harmless_addresses(path: str) -> None:
    """Names of models, ids that say whose they are, and versions stay."""
    assert f"https://x/{path}" == describe_request("POST", f"https://x/{path}", []).url


def head_of(file: io.BytesIO, folder: Path) -> Request:
    path = folder / "head.jsonl"
    path.write_bytes(file.getvalue())
    asked = read_recording(path).head.request
    assert asked is not None
    return asked


def test_parts_are_written_one_by_one(tmp_path: Path) -> None:
    """Without the boundary; of one that cannot be read the size is told."""
    asked = {"files": {"b": ("b.png", IMAGE, "image/png"), "c": ("c.json", b'{"a": 1}')}, "data": {"a": "é"}}
    written = head_of(ask(asked, httpx.Response(200)), tmp_path)

    assert written.body == [
        {"name": "a", "value": "é"},
        {"name": "b", "filename": "b.png", "type": "image/png", "left_out": "10 bytes"},
        {"name": "c", "filename": "c.json", "type": "application/json", "value": {"a": 1}},
    ]
    assert "1 of its parts, which cannot be looked through: b" == written.left_out


@pytest.mark.parametrize("options", [{}, {"keep_unreadable": True}], ids=["left out", "kept"])
def test_bodies_that_cannot_be_read(options: dict[str, Any], tmp_path: Path) -> None:
    """They are left out, with a note; kept, if that is wanted, byte by byte. Either is played to whoever asks again."""
    every = bytes(range(256))
    bodies: list[dict[str, Any]] = [{"content": every}, {"files": {"a": ("a.bin", every)}}]
    for asked in bodies:
        file = ask(asked, httpx.Response(200, text="ok"), **options)
        written = head_of(file, tmp_path)
        assert bool(options) is (base64.b64encode(every) in file.getvalue())
        assert bool(options) is not bool(written.left_out)
        with httpx.Client(transport=ReplayTransport(tmp_path / "head.jsonl", repeat=True)) as client:
            assert "ok" == client.post("http://x/v1", **asked).text
            with pytest.raises(UnrecordedRequest):
                client.post("http://x/v1", content=every + b"\xff")
        again = io.BytesIO()
        import_stream(tmp_path / "head.jsonl", again, **options)
        assert file.getvalue() == again.getvalue()


def test_a_writer_leaves_out_what_it_is_handed() -> None:
    """Whoever made the head: one that says nothing of it cannot have looked."""
    asked = Request(method="POST", url="http://x", body_base64=base64.b64encode(IMAGE).decode())
    file, kept = io.BytesIO(), io.BytesIO()
    RecordingWriter(file, Head(source="x", request=asked)).close()
    RecordingWriter(kept, Head(source="x", request=asked), keep_unreadable=True).close()

    assert (False, True) == tuple(b"body_base64" in each.getvalue() for each in (file, kept))


def test_what_grows_is_not_unpacked_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A body that is larger unpacked than a bound is left out."""
    monkeypatch.setattr("streamtools.recording.request_bodies.LARGEST", 1000)
    for size, body in ((1000, "x" * 1000), (1001, None)):
        assert body == describe_request("POST", "http://x", [], gzip.compress(b"x" * size)).body
    parts = part(b"x" * 1000, 'name="a"') + b"--b--\r\n"
    assert describe_request("POST", "http://x", [*BOUNDARY.items()], parts).left_out.startswith("1")


def test_parts_that_are_too_deep() -> None:
    """They are left out."""
    deep = b"x"
    for level in range(2000):
        head = b"Content-Type: multipart/mixed; boundary=a%d" % (level - 1) if level else b"Content-Type: text/plain"
        deep = b"--a%d\r\n%b\r\n\r\n%b\r\n--a%d--\r\n" % (level, head, deep, level)
    asked = describe_request("POST", "http://x", [("content-type", "multipart/mixed; boundary=a1999")], deep)
    assert asked.body is None
    assert asked.left_out


@pytest.mark.parametrize("name", ["Content-Disposition", "content-type"])
@pytest.mark.parametrize("line", ["{}: form-data; name=a{}", "{}: form-data;\r\n name=a{}"], ids=["one line", "folded"])
def test_parts_with_a_long_head(name: str, line: str) -> None:
    """They are left out: the time that they take to read is not in proportion to their length."""
    for size, parts in ((100, list), (1100, type(None))):
        content = f"--b\r\n{line.format(name, ';' * size)}\r\n\r\nx\r\n--b--\r\n".encode()
        assert isinstance(describe_request("POST", "http://x", [*BOUNDARY.items()], content).body, parts)


def test_an_old_recording_of_parts(tmp_path: Path) -> None:
    """It was text, and is read as parts today."""
    body = part(SHORT.encode(), 'name="pwd"') + b"--b--\r\n"
    told = {"method": "POST", "url": "http://x/v1", "headers": BOUNDARY, "body": body.decode()}
    path, out = tmp_path / "old.jsonl", tmp_path / "new.jsonl"
    head = {"streamtools": "recording", "version": 1, "source": "openai", "request": told}
    path.write_text(json.dumps(head) + '\n{"at":1,"end":"end"}\n', encoding="utf-8")

    import_stream(path, out)

    assert_absent(out.read_bytes())
    again = {"content": body.replace(b"--b", b"--c"), "headers": {"content-type": "multipart/form-data; boundary=c"}}
    with httpx.Client(transport=ReplayTransport(out)) as client:
        assert "" == client.post("http://x/v1", **again).text  # type: ignore[arg-type]


def test_no_more_than_some_are_looked_for_elsewhere() -> None:
    """Each costs time; those of headers and the URL come first, and all are replaced where they stand."""
    many = [f"{SECRET}{at:04}" for at in range(1000)]
    asked = {"api_keys": many, "text": f"{SECRET} {many[0]}"}
    headers = [("x-functions-key", SECRET)]
    written, found = read_request("POST", "http://x", headers, json.dumps(asked).encode(), (), False)

    assert [SECRET, *many[: MANY - 1]] == found
    assert_absent(json.dumps(written.body).encode())
