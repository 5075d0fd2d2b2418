"""The system prompt that teaches a model to call tools in text: which there are, and how a call is written.

It is a section of the prompt, between `<tool_instructions>` and `</tool_instructions>`, each on
a line of its own. That is how the section is found again: another call of `augment_system_prompt` replaces it where it
stands, and with no tools takes it away. What tools say of themselves is data; it is neutralised, so that a description
can neither show a call that nobody meant nor end the section.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from streamtools.history.content import given
from streamtools.json_values import compact as compact_json
from streamtools.parsing.dialects import Dialect, choose_dialects
from streamtools.parsing.dialects.neutralising import neutralise, neutralise_all
from streamtools.tools import Tool, ToolRegistry
from streamtools.tools.definitions import write_line
from streamtools.tools.registry import ToolsLike
from streamtools.tools.schemas import inline

# Arguments for the example of a call, where a tool has none of its own: read from its JSON schema.

_FORMATS = {
    "date": "2025-01-31",
    "date-time": "2025-01-31T12:00:00Z",
    "time": "12:00:00Z",
    "email": "name@example.org",
    "uri": "https://example.org",
}
_SAMPLES: Final = 3
_PLAUSIBLE = {
    "address": ("12 High Street", "4 Mill Lane", "9 Park Road"),
    "author user person name": ("Ada", "Grace", "Alan"),
    "category tag topic subject": ("music", "sports", "history"),
    "city location place destination town": ("Paris", "Oslo", "Lima"),
    "code expression formula": ("1 + 1", "2 * 3", "8 - 5"),
    "color colour": ("blue", "green", "red"),
    "command": ("ls", "pwd", "date"),
    "country": ("France", "Norway", "Peru"),
    "currency": ("EUR", "USD", "JPY"),
    "date day": ("2025-01-31", "2025-03-08", "2025-06-21"),
    "email mail recipient to": ("ada@example.org", "grace@example.org", "alan@example.org"),
    "file path filename document": ("notes.txt", "report.md", "data.csv"),
    "id number key": ("1042", "2077", "3151"),
    "language lang locale": ("en", "fr", "nb"),
    "phone": ("+44 20 7946 0958", "+44 20 7946 0147", "+44 20 7946 0321"),
    "query question search keyword q": ("tall ships", "solar panels", "bread recipes"),
    "symbol ticker": ("AAPL", "MSFT", "SAP"),
    "text message content body note": ("Good morning", "See you at noon", "All is done"),
    "title": ("Minutes", "Plans", "Ideas"),
    "time": ("09:00", "12:30", "18:45"),
    "url uri link website": ("https://example.org", "https://example.com", "https://example.net"),
    "zone timezone": ("Europe/Paris", "Europe/Oslo", "America/Lima"),
}
"""Three values for a text, by the words that a parameter's name may hold; those further right in a name come first."""
_BY_WORD = {word: values for words, values in _PLAUSIBLE.items() for word in words.split()}
_LAST = ("name", "id", "key", "number", "text", "q", "to")  # words that say less than others of the same name
_OTHERS = ("alpha", "beta", "gamma")
_each_word = re.compile("[A-Z]?[a-z]+|[A-Z]+(?![a-z])").findall


def sample_arguments(tool: Tool) -> list[dict[str, Any]]:
    """Return arguments that a model might give `tool`: its own examples, or else up to three that its schema tells.

    Those have the required parameters, or, if none is, the first one.
    """
    if examples := tool.parameters.get("examples"):
        return [dict(each) for each in examples]
    schema = inline(tool.parameters)
    made = [_members(schema, number) for number in range(_SAMPLES)]
    return [each for number, each in enumerate(made) if each not in made[:number]]


def _members(schema: Mapping[str, Any], number: int) -> dict[str, Any]:
    properties: Mapping[str, Any] = schema.get("properties", {})
    required = set(schema.get("required", ()))
    names = [name for name in properties if name in required] or list(properties)[:1]
    return {name: _value(properties[name], name, number) for name in names}


def _value(schema: Any, name: str, number: int) -> Any:
    """Return a value that a schema allows, as far as it is a simple one; a text is one that its name makes likely."""
    if not isinstance(schema, Mapping):
        return "..."
    if "const" in schema:
        return schema["const"]
    for key in ("examples", "enum"):
        if isinstance(schema.get(key), list) and schema[key]:
            return schema[key][number % len(schema[key])]
    if schema.get("default") is not None:
        return schema["default"]
    for key in ("anyOf", "oneOf", "allOf"):
        if each := next((each for each in schema.get(key, ()) if given(each, "type") != "null"), None):
            return _value(each, name, number)
    kinds = schema.get("type")
    kind = kinds if isinstance(kinds, str) else next((each for each in kinds or () if each != "null"), None)
    match kind:
        case "integer" | "number":
            return schema.get("minimum", 1)
        case "boolean":
            return True
        case "array":
            return [_value(schema.get("items", {}), name, number)]
        case "object":
            return _members(schema, number)
        case "string":
            return _FORMATS.get(schema.get("format", "")) or _plausible(name)[number]
    return "..."


def _plausible(name: str) -> Sequence[str]:
    """Return texts that a parameter of this name may have."""
    words = [each.lower() for each in reversed(_each_word(name))]
    known = [each for each in sorted(words, key=_LAST.__contains__) if each in _BY_WORD]
    return _BY_WORD[known[0]] if known else _OTHERS


BEGIN: Final = "<tool_instructions>"
END: Final = "</tool_instructions>"

_section = re.compile(rf"^{BEGIN}\n(?:(?!{BEGIN}$).*\n)*?{END}$", re.MULTILINE)
_mark = re.compile(f"<(?={BEGIN[1:]}|{END[1:]})")

_SEPARATOR = "\n\n"
_RESULTS = ("41, low", "7, high", "23, even", "12, low", "88, high", "35, even")
"""Of the examples that are made: they say nothing and differ, so that it can be seen what an answer takes from them."""


@dataclass(frozen=True)
class Example:
    """A call as it should be: a question that needs it, what the tool said, and the answer that follows.

    A `result` that is a text goes to the model as it is, anything else as JSON, as with real results.
    """

    question: str
    name: str
    arguments: Mapping[str, Any]
    result: Any
    answer: str


def augment_system_prompt(
    base: str | None,
    tools: ToolsLike,
    dialect: str | Dialect | Sequence[str | Dialect] = "tilde_fence",
    *,
    compact: bool = False,
    examples: Sequence[Example] = (),
) -> str:
    """Return the system prompt `base` with a section that teaches a model to call `tools` in a `dialect`.

    A section that is there already is replaced in its place, and without tools it is taken out: a prompt that has none
    is then returned as it is. Otherwise the section comes last, behind a blank line. Tools are told in the order of
    their registration, with their JSON schemas or, if `compact`, in one line each. Where several dialects are enabled,
    give all of them, first the one that is taught: what tools say of themselves is no call in any. Raises ValueError
    for a dialect that is unknown or cannot be taught, and `UnknownTool` for an example of another tool.
    """
    registry = ToolRegistry.of(tools)
    section = _write_section(registry, _enabled(dialect), short=compact, examples=examples) if registry else ""
    return put_section(base, section)


def put_section(base: str | None, section: str) -> str:
    """Return the prompt `base` with a section that `augment_system_prompt` has written alone; "" takes it out."""
    base = base or ""
    before, *behind = _section.split(base)
    if behind:
        *between, last = (each.removeprefix(_SEPARATOR) for each in behind)
        rest = [*(each.removesuffix(_SEPARATOR) for each in between), last]
        return _joined(before.removesuffix(_SEPARATOR), section, *rest)
    return _joined(base if base.strip() else "", section) if section else base


def few_shot(
    dialect: str | Dialect | Sequence[str | Dialect], tools: ToolsLike, examples: Sequence[Example] = ()
) -> list[dict[str, str]]:
    """Return messages in which tools have been called before: what a base model goes by, which follows no instructions.

    Each example is a question of the user, the call, its result and the answer, as OpenAI's chat has messages (and
    `read_messages` reads them): they belong between the system prompt and the conversation. Three with one tool, or two
    for each of several, make small models call much more often than one does. Without `examples` they are made of the
    arguments that tools give as examples, six at most. No tools, no messages. Raises as `augment_system_prompt` does.
    """
    registry = ToolRegistry.of(tools)
    if not registry:
        return []
    enabled = _enabled(dialect)
    return [
        {"role": role, "content": content}
        for example in examples or _made_examples(registry, enabled)
        for role, content in zip(("user", "assistant") * 2, _exchange(example, registry, enabled), strict=True)
    ]


def _enabled(dialects: str | Dialect | Sequence[str | Dialect]) -> list[Dialect]:
    """Return the dialect that is taught, and behind it all others in which something may be a call."""
    chosen = choose_dialects((dialects,) if isinstance(dialects, str | Dialect) else dialects)
    if not chosen:
        raise ValueError("a dialect is wanted that is taught, and there is none")
    if not (first := chosen[0]).teachable:
        raise ValueError(f"calls of the dialect {first.id!r} hold tokens of a chat template, which no prompt can write")
    ids = {each.id for each in chosen}
    return [*chosen, *(each for each in choose_dialects("auto") if each.id not in ids)]


def _write_section(registry: ToolRegistry, enabled: list[Dialect], *, short: bool, examples: Sequence[Example]) -> str:
    first = next(iter(registry))
    parts = [
        "You can use these tools:",
        "\n".join(_told_in_line(tool, enabled) if short else _told(tool, enabled) for tool in registry),
        enabled[0].instructions(first.name, neutralise_all(sample_arguments(first)[0], enabled)).rstrip("\n"),
    ]
    if examples:
        parts += ["This is how it goes:", *(_transcript(each, registry, enabled) for each in examples)]
    written = _mark.sub("<\u2060", _SEPARATOR.join(parts))  # which may not end the section
    return f"{BEGIN}\n{written}\n{END}"


# What a tool says of itself is told without anything that a model which repeats it would call. What we write around it
# stays as it is: no call begins like the JSON of a definition, though some have its keys.


def _told(tool: Tool, enabled: list[Dialect]) -> str:
    about = {"description": tool.description, "parameters": tool.parameters}
    told = compact_json({"name": tool.name, **neutralise_all(about, enabled)})
    return neutralise(told, [replace(each, unmarked=()) for each in enabled])


def _told_in_line(tool: Tool, enabled: list[Dialect]) -> str:
    line, named = write_line(tool), len(f"- {tool.name}(")
    return line[:named] + neutralise(line[named:], enabled)


def _transcript(example: Example, registry: ToolRegistry, enabled: list[Dialect]) -> str:
    turns = zip(("User", "You", "Result", "You"), _exchange(example, registry, enabled), strict=True)
    return _SEPARATOR.join(f"{who}:\n{text}" for who, text in turns)


def _exchange(example: Example, registry: ToolRegistry, enabled: list[Dialect]) -> tuple[str, str, str, str]:
    """Return the question, the call, the result and the answer as texts. Raises `UnknownTool`."""
    name = registry.find(example.name).name
    result = example.result if isinstance(example.result, str) else compact_json(example.result)
    call = enabled[0].write_call(name, neutralise_all(dict(example.arguments), enabled))
    return example.question, call, enabled[0].write_result(name, neutralise(result, enabled)), example.answer


def _made_examples(registry: ToolRegistry, enabled: list[Dialect]) -> list[Example]:
    """Return examples made of what tools give as examples: the first of each, then the second, and so on."""
    rounds = itertools.zip_longest(*([(tool, each) for each in sample_arguments(tool)] for tool in registry))
    pairs = [pair for each in rounds for pair in each if pair is not None]
    made = []
    for (tool, arguments), result in zip(pairs, _RESULTS, strict=False):
        values = ", ".join(each if isinstance(each, str) else compact_json(each) for each in arguments.values())
        question = f"What does {tool.name} say" + (f" about {neutralise(values, enabled)}?" if values else "?")
        made.append(Example(question, tool.name, arguments, result, f"It says {result}."))
    return made


def _joined(*parts: str) -> str:
    return _SEPARATOR.join(filter(None, parts))
