"""The page, put together of its files into one document that needs no other.

There is no build step: style and scripts stand in it as they are in `static`, and the policy of the document names
their digests, so that nothing else in it is ever run, whatever a model writes.
"""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

_HERE = Path(__file__).parent
_SCRIPTS = (
    "vendor/marked.umd.js",
    "vendor/purify.min.js",
    *(f"static/{name}.js" for name in ("words", "dom", "markdown", "cards", "inspector", "turn", "server", "page")),
)
_SOURCE_MAP = re.compile(r"^//# sourceMappingURL=.*$", re.MULTILINE)  # what a browser's tools would ask for


class Page(NamedTuple):
    """The document, and the Content-Security-Policy under which it works."""

    html: str
    policy: str


@cache
def make_page() -> Page:
    """Return the page."""
    style = _read("static/page.css")
    scripts = [_read(name) for name in _SCRIPTS]
    html = _read("static/page.html")
    html = html.replace("/* style */", style)
    html = html.replace("<!-- scripts -->", "\n".join(f"<script>{script}</script>" for script in scripts))
    policy = [
        "default-src 'none'",
        f"script-src {' '.join(map(_digest, scripts))}",
        f"style-src {_digest(style)}",
        "connect-src 'self'",
        "img-src data:",  # the icon
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types dompurify",
    ]
    return Page(html, "; ".join(policy))


def _read(name: str) -> str:
    return _SOURCE_MAP.sub("", (_HERE / name).read_text(encoding="utf-8"))


def _digest(text: str) -> str:
    """Return the source of a policy that allows exactly this text."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
