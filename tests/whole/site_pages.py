"""The pages of the documentation in the order of its navigation, `docs/llms.txt`, the list of pages for models, and the
public names on the API pages.

`python -m tests.whole.site_pages` writes that list and these names.
"""

from __future__ import annotations

import importlib
import inspect
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import streamtools
from streamtools.events import UI_EVENTS
from tests.support.readme import ROOT

DOCS = ROOT / "docs"
LIST = DOCS / "llms.txt"
WITH_PARAMETERS = ("Fallback", "HTTPModel", "LostRun", "MemoryEventLog", "ScriptedModel")
WITH_MEMBERS = ("Question", "RecordingFixture", "Run", "Runs", "Suspension", "Tool", "ToolContext", "ToolRegistry")
EXPLAINED = {
    **dict.fromkeys(("streamtools", "streamtools.conversation", "streamtools.outputs.asgi"), "reference"),
    **dict.fromkeys(("streamtools.sources", "streamtools.outputs"), "wire-formats"),
    **{f"streamtools.{page}": page for page in ("gateway", "rules", "testing", "tools")},
    "streamtools.history": "histories",
}
"""The page that explains many names of a module. The API page only names them."""
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


def write_api(page: str) -> str:
    """Return an API page with the public names of its modules. The directives, which the site expands, come last."""
    modules = re.findall(r"^::: (\S+)$", page, re.MULTILINE)
    parts = page.split("\n\n")[:2]
    seen: list[Any] = []
    for module in modules:
        parts += [f"From `{module}`:", "\n".join(_names(importlib.import_module(module), seen))]
    return "\n\n".join([*parts, "".join(f"::: {module}\n" for module in modules)])


def _names(module: ModuleType, seen: list[Any]) -> Iterator[str]:
    """Yield a line for each public class and function that was not `seen`. The reference lists events."""
    page = EXPLAINED.get(module.__name__)
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8") if page else ""
    explained = []
    for name in module.__all__:
        value = getattr(module, name)
        elsewhere = module is not streamtools and getattr(streamtools, name, None) is value
        if name.startswith("_") or elsewhere or value in UI_EVENTS or value in seen:
            continue
        if isinstance(value, type) or inspect.isroutine(value):
            seen.append(value)
            if re.search(rf"`(\w+\.)*{name}[`(]", text) and not _details(value):
                explained.append(f"`{name}`")
                continue
            first = re.split(r"(?<=[.:])[ ]", " ".join((inspect.getdoc(value) or "").split("\n\n")[0].split()))[0]
            yield f"- `{name}{_parameters(value)}`: {first.rstrip('.:')}.{_details(value)}"
    if explained:
        yield f"- On the page [{text.splitlines()[0][2:]}](../{page}.md): {', '.join(explained)}."


def _parameters(value: Any) -> str:
    """Return the names of the parameters of a function, and nothing for other values."""
    if not inspect.isroutine(value):
        return ""
    empty = inspect.Parameter.empty
    signature = inspect.signature(value)
    names = [each.replace(annotation=empty, default=empty) for each in signature.parameters.values()]
    return re.sub(r"=?None|self(, )?", "", str(signature.replace(parameters=names, return_annotation=empty)))


def _details(value: Any) -> str:
    """Return the members or parameters of a class that programs use and no other page lists."""
    if value.__name__ in WITH_PARAMETERS:
        return f" Parameters: {', '.join(f'`{each}`' for each in inspect.signature(value).parameters)}."
    if value.__name__ in WITH_MEMBERS:
        members = [each for each in dir(value) if not each.startswith("_")]
        return f" Members: {', '.join(f'`{each}{_parameters(getattr(value, each, None))}`' for each in members)}."
    return ""


if __name__ == "__main__":
    for each in (DOCS / "api").glob("*.md"):
        each.write_text(write_api(each.read_text(encoding="utf-8")), encoding="utf-8")
    LIST.write_text(write_list(), encoding="utf-8")
