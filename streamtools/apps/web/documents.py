"""The documents that the server hands out, and the Content-Security-Policy under which they work.

Each is one response and needs no other. Style and scripts stand in it as they are in `static`, without a build step,
and the policy names their digests, so that nothing else in it is ever run, whatever a model writes. What stands in
`client` are modules of `@streamtools/client` as its build makes them (`python -m tests.clients.typescript_package`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

from streamtools.serving.guard import digest

_HERE = Path(__file__).parent
_SHARED = (
    *("client/frames.js", "client/turn.js", "vendor/marked.umd.js"),
    *(f"vendor/{name}.min.js" for name in ("purify", "temml", "highlight")),
    *(f"static/{name}.js" for name in ("words", "dom", "code", "mathematics", "markdown", "cards", "turn_view")),
)
_DOCUMENTS = {
    "page": (
        ("page",),
        (
            *_SHARED,
            *(f"static/{name}.js" for name in ("inspector", "server", "images", "page", "conversations", "doings")),
        ),
    ),
    "debugger": (("page", "debugger"), (*_SHARED, "static/server.js", "static/debugger.js")),
}
"""For each document its styles, and its scripts in their order."""
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function\*?|class|const) (\w+))", re.MULTILINE)
_SOURCE_MAP = re.compile(r"^//# sourceMappingURL=.*$", re.MULTILINE)  # which the tools of a browser would request


class Documents(NamedTuple):
    """The page, the debugger, and the policy of both."""

    page: str
    debugger: str
    policy: str


@cache
def make_documents() -> Documents:
    policy = [
        "default-src 'none'",
        f"script-src {_digests(file for _, scripts in _DOCUMENTS.values() for file in scripts)}",
        f"style-src {_digests(f'static/{name}.css' for styles, _ in _DOCUMENTS.values() for name in styles)}",
        "connect-src 'self'",
        "img-src data:",  # the icon, and what is written out
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types dompurify",
    ]
    return Documents(_make("page"), _make("debugger"), "; ".join(policy))


def _make(name: str) -> str:
    styles, scripts = _DOCUMENTS[name]
    html = _read_file(f"static/{name}.html")
    html = html.replace(
        "<!-- styles -->", "\n".join(f"<style>{_read_file(f'static/{each}.css')}</style>" for each in styles)
    )
    return html.replace("<!-- scripts -->", "\n".join(f"<script>{_read_file(each)}</script>" for each in scripts))


def _digests(files: Iterable[str]) -> str:
    return " ".join(dict.fromkeys(digest(_read_file(each)) for each in files))


def _read_file(name: str) -> str:
    text = _SOURCE_MAP.sub("", (_HERE / name).read_text(encoding="utf-8"))
    if not name.startswith("client/"):
        return text
    names = ", ".join(_EXPORT.findall(text))  # of a page that is one response nothing can be imported
    return f'const {{ {names} }} = (() => {{\n"use strict";\n{_EXPORT.sub("", text)}\nreturn {{ {names} }};\n}})();\n'
