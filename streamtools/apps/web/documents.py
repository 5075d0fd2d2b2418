"""Builds the HTML documents of the web page, and their Content-Security-Policy.

Each document is one response, which contains its styles and scripts. The styles and scripts are files in the folders
`static`, `vendor` and `client`. The policy lists their digests. So the browser runs no script that a model writes.
`client` holds modules of `@streamtools/client`, which `python -m tests.clients.typescript_package` builds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

from streamtools.serving.guard import digest

_FOLDER = Path(__file__).parent


def _static_scripts(*names: str) -> tuple[str, ...]:
    return tuple(f"static/{name}.js" for name in names)


_SHARED_SCRIPTS = (
    "client/frames.js",
    "client/turn.js",
    "vendor/marked.umd.js",
    "vendor/purify.min.js",
    "vendor/highlight.min.js",
    *_static_scripts("words", "dom", "code", "markdown", "cards", "turn_view"),
)
_PAGE_SCRIPTS = (*_SHARED_SCRIPTS, *_static_scripts("inspector", "server", "page", "conversations", "answer_actions"))
_DEBUGGER_SCRIPTS = (*_SHARED_SCRIPTS, *_static_scripts("server", "debugger"))
_PAGE_STYLES = ("static/page.css",)
_DEBUGGER_STYLES = (*_PAGE_STYLES, "static/debugger.css")

# "export async function name", "export class name" or "export const name"
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function\*?|class|const) (\w+))", re.MULTILINE)
# This line is removed, because developer tools would request the source map.
_SOURCE_MAP = re.compile(r"^//# sourceMappingURL=.*$", re.MULTILINE)


class Documents(NamedTuple):
    """The HTML of the chat page and of the debugger, and the Content-Security-Policy for both."""

    page: str
    debugger: str
    policy: str


@cache
def make_documents() -> Documents:
    policy = [
        "default-src 'none'",
        f"script-src {_digests((*_PAGE_SCRIPTS, *_DEBUGGER_SCRIPTS))}",
        f"style-src {_digests(_DEBUGGER_STYLES)}",
        "connect-src 'self'",
        "img-src data:",  # allows the icon
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types dompurify",
    ]
    return Documents(
        page=_inline("page", _PAGE_STYLES, _PAGE_SCRIPTS),
        debugger=_inline("debugger", _DEBUGGER_STYLES, _DEBUGGER_SCRIPTS),
        policy="; ".join(policy),
    )


def _inline(name: str, styles: Iterable[str], scripts: Iterable[str]) -> str:
    """Return the HTML file `name` with the styles and scripts in it."""
    html = _read_file(f"static/{name}.html")
    html = html.replace("<!-- styles -->", "\n".join(f"<style>{_read_file(path)}</style>" for path in styles))
    return html.replace("<!-- scripts -->", "\n".join(f"<script>{_read_file(path)}</script>" for path in scripts))


def _digests(paths: Iterable[str]) -> str:
    return " ".join(dict.fromkeys(digest(_read_file(path)) for path in paths))


def _read_file(name: str) -> str:
    """Read a file to insert into a document.

    A module is converted to a script, because modules in a document cannot import each other.
    """
    text = _SOURCE_MAP.sub("", (_FOLDER / name).read_text(encoding="utf-8"))
    if not name.startswith("client/"):
        return text
    names = ", ".join(_EXPORT.findall(text))
    return f'const {{ {names} }} = (() => {{\n"use strict";\n{_EXPORT.sub("", text)}\nreturn {{ {names} }};\n}})();\n'
