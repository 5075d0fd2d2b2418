"""The pages of the documentation in the order of its navigation, and `docs/llms.txt`, the list of pages for models.

`python -m tests.whole.site_pages` writes that list.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.readme import ROOT

DOCS = ROOT / "docs"
LIST = DOCS / "llms.txt"
CONFIGURATION = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]


def pages(part: Any) -> Iterator[Path]:
    """Yield the pages of a part of the navigation: a path, a list of parts, or a part with a title."""
    if isinstance(part, str):
        yield DOCS / part
    else:
        for each in part.values() if isinstance(part, dict) else part:
            yield from pages(each)


def entry(page: Path) -> str:
    """Return the line of a page: its title as a link, and the first sentence of its text."""
    title, *paragraphs = re.sub(r"(?ms)^```.*?^```$", "", page.read_text(encoding="utf-8")).split("\n\n")
    text = next(each for each in paragraphs if re.match(r"[A-Z`\[]", each))
    sentence = re.split(r"(?<=[.:])\s", re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", " ".join(text.split())))[0]
    return f"- [{title.strip('# ')}]({page.relative_to(DOCS)}): {sentence.rstrip(':.')}."


def write_list() -> str:
    """Return the text of `llms.txt`, in the format of llmstxt.org."""
    lines = [f"# {CONFIGURATION['site_name']}", "", f"> {CONFIGURATION['site_description']}"]
    for section in CONFIGURATION["nav"]:
        for title, part in section.items():
            listed = [page for page in pages(part) if page.parent == DOCS]  # those of the API are made by the site
            lines += ["", f"## {title}", "", *map(entry, listed)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    LIST.write_text(write_list(), encoding="utf-8")
