"""The documentation site: each page is in its navigation, and each module that a page uses in its API."""

from __future__ import annotations

import ast
import re

from streamtools.outputs import FORMATS
from streamtools.sources import ADAPTERS
from tests.support.cases import cases
from tests.support.readme import PAGES, read_blocks
from tests.whole.site_pages import CONFIGURATION, DOCS, LIST, pages, write_api, write_list


def test_each_page_is_in_the_navigation() -> None:
    """It is there once, and nothing else is."""
    listed = list(pages(CONFIGURATION["nav"]))

    assert sorted(DOCS.rglob("*.md")) == sorted(listed)


def test_the_list_for_models_is_current() -> None:
    """`python -m tests.whole.site_pages` writes it."""
    assert write_list() == LIST.read_text(encoding="utf-8")


def test_the_api_pages_list_the_public_names() -> None:
    """`python -m tests.whole.site_pages` writes them."""
    for page in (DOCS / "api").glob("*.md"):
        text = page.read_text(encoding="utf-8")
        assert write_api(text) == text, page.name


def test_each_module_of_a_page_is_in_the_api() -> None:
    shown = {
        module
        for page in (DOCS / "api").glob("*.md")
        for module in re.findall(r"^::: (\S+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    }
    used = {}
    for page in {*PAGES, *DOCS.glob("*.md")}:
        for block in read_blocks(page.read_text(encoding="utf-8")):
            if block.language == "python":
                for node in ast.walk(ast.parse(block.text)):
                    if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("streamtools"):
                        used[node.module] = page.name
    assert len(used) > 10
    with cases() as case:
        for module, name in used.items():
            with case(module, name):
                assert module in shown


def test_the_page_of_wire_formats_is_complete() -> None:
    """It has each input format, and each output format with its content type."""
    text = (DOCS / "wire-formats.md").read_text(encoding="utf-8")
    read, written = re.findall(r"<!-- formats: \w+ -->\n((?:- .*\n)+)", text)

    assert [*ADAPTERS] == re.findall(r"^- `(\w+)`", read, re.MULTILINE)
    shown = re.findall(r"^- `(\w+)`(?: \(content type `(.+?)`\))?: ", written, re.MULTILINE)
    assert [(name, make().content_type) for name, make in FORMATS.items()] == [
        (name, kind or "text/event-stream") for name, kind in shown
    ]


def test_links_to_files_outside_of_the_site_are_urls() -> None:
    """The site does not contain the files of the repository."""
    with cases() as case:
        for page in DOCS.rglob("*.md"):
            for link in re.findall(r"\]\((?!https?://)([^)#\s]+)", page.read_text(encoding="utf-8")):
                with case(page.name, link):
                    assert DOCS in (page.parent / link).resolve().parents
