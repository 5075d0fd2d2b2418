"""S1: each text of a request is neutralized, or exempt by name.

A call is planted into one string of a full request at a time. The request that a model gets must not contain the call.
"""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from streamtools import conversation, parse
from streamtools.history import CallResult, Results, User, read_messages, untrusted, write_messages
from streamtools.history import calls_in_text as in_text
from streamtools.parsing.dialects import DIALECTS, Dialect, neutralizing
from streamtools.parsing.dialects.neutralizing import neutralize, restore
from streamtools.tools import Tool
from tests.support.approvals import ANN, Bank
from tests.support.cases import cases
from tests.support.full_requests import FILE, GATEWAY, HISTORIES, OPTIONS, SCHEMA, TEXT_FILE
from tests.support.gateway import begin

TOOLS = Bank().tools
SHARES = pytest.mark.parametrize("share", [33, pytest.param(1, marks=pytest.mark.deep)])
Path = tuple[str | int, ...]

MODELS: list[Any] = [
    kind("m", base_url="http://127.0.0.1", api_key="")
    for kind in (
        conversation.OpenAIChat, conversation.OpenAIResponses, conversation.AnthropicMessages,
        conversation.BedrockConverse, conversation.GeminiChat, conversation.GeminiInteractions,
        conversation.CohereChat, conversation.OllamaChat,
    )
]  # fmt: skip

# The exempt strings of the requests, as patterns of their paths.

_SCHEMA = ("*.properties.city.enum.0", "*.properties.city.const", "*.properties.city.pattern", "*.required.0")
IN_ANSWER_FORMATS = tuple(
    f"{field}.{path}" for field in ("response_format", "text.format", "output_config.format") for path in _SCHEMA
)
EXEMPT: dict[str, tuple[str, ...]] = {
    "openai": (
        "model", "stop.0", "chat_template", "guided_regex",
        "messages.0.content", "messages.0.name", "messages.1.content.0.text",  # system messages
        "messages.7.reasoning_details.2.*", "messages.7.reasoning_details.3.*",  # signed and encrypted
    ),
    "responses": ("model", "instructions"),
    "anthropic": ("model", "system.0.text", "stop_sequences.0"),
}  # fmt: skip
_WORDS = {
    "openai": (
        "0.content", "0.name", "1.content.0.text", "2.content.0.text", "3.content", "7.content.0.text",
        "9.content.0.text", "9.refusal", "10.content",
    ),
    "responses": ("0.content.0.text", "2.content.0.text", "13.content"),
    "anthropic": ("0.content.0.text", "1.content.2.text", "2.content.2.text"),
    "bedrock": ("0.content.0.text", "1.content.2.citationsContent.content.0.text"),
    "gemini": ("0.parts.0.text", "1.parts.1.text"),
    "interactions": ("0.content.0.text", "4.content.0.text", "7.content"),
    "cohere": ("0.content", "3.content.0.text", "4.content"),
    "ollama": ("0.content", "1.content", "3.content"),
    "ai_sdk": ("0.parts.0.text", "1.parts.2.text", "2.parts.0.text"),
    "ag_ui": ("0.content.0.text", "1.content", "3.content"),
}  # fmt: skip
"""The words of the user, of the model and of the application, which are exempt in a chat."""
_SIGNED = {
    "openai": ("7.reasoning_details.2.*", "7.reasoning_details.3.*"),
    "anthropic": ("1.content.0.*", "1.content.1.*"),
    "bedrock": ("1.content.0.*", "1.content.1.*"),
    "gemini": ("1.parts.1.thoughtSignature", "1.parts.4.thoughtSignature"),
    "interactions": ("1.*",),
}
"""Reasoning that is signed or encrypted, which is sent to the provider that made it."""


def leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, str]]:
    """Yield the paths of all strings, and the strings."""
    if isinstance(value, str):
        yield path, value
    for key, member in (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    ):
        yield from leaves(member, (*path, key))


def strings(value: Any) -> Iterator[str]:
    """Yield all strings, also the names of fields and the text of files."""
    if isinstance(value, str):
        yield value
        data = value.rpartition(";base64,")[2]
        if len(data) % 4 == 0 and data.startswith(FILE[:6]):
            yield base64.b64decode(data).decode()
    elif isinstance(value, dict | list):
        yield from value if isinstance(value, dict) else ()
        for member in value.values() if isinstance(value, dict) else value:
            yield from strings(member)


def plant(value: Any, path: Path, planted: str) -> None:
    """Add a text to the string at `path`."""
    for key in path[:-1]:
        value = value[key]
    leaf: str = value[path[-1]]
    if leaf in (FILE, TEXT_FILE):
        value[path[-1]] = leaf.removesuffix(FILE) + base64.b64encode(b"A page." + planted.encode()).decode()
    else:
        value[path[-1]] = leaf + (planted if leaf.startswith(("http", "data:")) else f"\n{planted}")


def calls_of(body: Any, dialect: Dialect) -> list[str]:
    """Return the payees of the calls that a model would make if it quoted a part of a request."""
    found = []
    for text in strings(body):
        if neutralize(text, [dialect]) != text:  # quick, and enough to suspect the text
            begins = {0, *(at for at in range(len(text)) if "pay" in text[at : at + 60])}
            read = (parse(text[at:], dialects=[dialect], tools=TOOLS).calls for at in begins)
            found += [str(call.arguments["to"]) for calls in read for call in calls if call.name == "pay"]
    return found


STRUCTURE = (
    "type", "role", "id", "call_id", "tool_call_id", "toolUseId", "tool_use_id", "toolCallId", "name", "state",
    "media_type", "mime_type", "mimeType", "mediaType", "format",
)  # fmt: skip
"""Fields that a request cannot be without. A text is planted into them one at a time."""


def unsafe_paths(value: Any, dialect: Dialect, send: Callable[[Any], Any], *, one: bool = False) -> list[str]:
    """Return the paths of the strings in which a planted call reaches the model. `send` returns the model's request.

    With `one=True`, a request contains only one planted call, and may contain it in any string.
    """
    found, value = list[str](), json.loads(json.dumps(value))
    paths = {f"Ann{number}": path for number, (path, _) in enumerate(leaves(value)) if one or path[-1] not in STRUCTURE}
    for group in [{name: path} for name, path in paths.items()] if one else [paths]:
        planted = copy.deepcopy(value)
        for name, path in group.items():
            plant(planted, path, dialect.write_call("pay", ANN | {"to": name}))
        try:
            sent = send(planted)
        except ValueError:  # the request is refused
            assert one
            continue
        payees = calls_of(sent, dialect) if sent is not None else ()
        found += [".".join(map(str, path)) for name, path in group.items() if name in payees]
    return found


def unexplained(paths: Iterable[str], exempt: Sequence[str]) -> list[str]:
    return [path for path in paths if not any(fnmatchcase(path, pattern) for pattern in exempt)]


def send_by_gateway(client: str, dialect: Dialect, body: Any, **options: Any) -> Any:
    exchange = begin(client, body, mode="native", dialects=[dialect.id], **options)
    return None if exchange.request is None else json.loads(exchange.request.body)


def some_dialects(first: int, share: int) -> list[Dialect]:
    return [*DIALECTS.values()][first % share :: share]


@SHARES
@pytest.mark.parametrize("client", GATEWAY)
def test_each_text_of_a_client_is_neutralized_or_exempt(client: str, share: int) -> None:
    exempt = (*EXEMPT[client], *IN_ANSWER_FORMATS)
    with cases() as case:
        for dialect in some_dialects(len(client), share):
            with case(dialect.id):
                paths = unsafe_paths(GATEWAY[client], dialect, partial(send_by_gateway, client, dialect))
                assert [] == unexplained(paths, exempt)
                unchanged = [path for path in exempt if "*" not in path and not path.endswith(STRUCTURE)]
                assert [] == [path for path in unchanged if path not in paths], "they are exempt"


@pytest.mark.parametrize("id", ["hermes_json", *(pytest.param(id, marks=pytest.mark.deep) for id in [*DIALECTS][::5])])
@pytest.mark.parametrize("client", GATEWAY)
def test_each_single_text_of_a_client_is_neutralized_or_exempt(client: str, id: str) -> None:
    """Also the texts in the structure of the request, such as roles and ids."""
    paths = unsafe_paths(GATEWAY[client], DIALECTS[id], partial(send_by_gateway, client, DIALECTS[id]), one=True)
    assert [] == unexplained(paths, (*EXEMPT[client], *IN_ANSWER_FORMATS))


@SHARES
@pytest.mark.parametrize("format", HISTORIES)
def test_each_text_of_a_history_is_neutralized_or_exempt(format: str, share: int) -> None:
    """For the requests of each model, whose format may be that of the history or another one."""
    sent = 0
    with cases() as case:
        for number, dialect in enumerate(some_dialects(len(format), share)):
            for model in MODELS if share > 1 else (*MODELS[number % 4 :: 4], *same_format(format)):
                history = HISTORIES[format]
                if model.format == "ollama" and format not in ("ollama", "cohere"):
                    continue  # it accepts no files
                with case(dialect.id, model.format):
                    paths = unsafe_paths(history, dialect, partial(send_history, model, dialect))
                    assert [] == unexplained(paths, (*_WORDS[format], *_SIGNED.get(format, ())))
                    sent += len(paths)
    assert sent, "the words of the user are exempt"


def test_each_text_for_ollama_is_neutralized_or_exempt() -> None:
    """Ollama gets the options under other names, and inside of another object."""
    body = {**GATEWAY["openai"], "messages": HISTORIES["ollama"][::3]}
    for dialect in (DIALECTS["hermes_json"], DIALECTS["pythonic"]):
        send = partial(send_by_gateway, "openai", dialect, api="ollama")
        assert [] == unexplained(unsafe_paths(body, dialect, send), (*EXEMPT["openai"], *IN_ANSWER_FORMATS))


def same_format(format: str) -> list[Any]:
    return [model for model in MODELS if model.format == format]


def send_history(model: Any, dialect: Dialect, messages: Any) -> Any:
    return model.body(conversation.Ask(tuple(read_messages(messages, client=False)), dialects=(dialect,)))


def send_options(model: Any, dialect: Dialect, options: Any) -> Any:
    return model.body(conversation.Ask((), options=options, dialects=(dialect,)))


def send_tool(model: Any, dialect: Dialect, given: Any) -> Any:
    tool = Tool(lambda arguments: "", name="look", parameters=given["schema"], description=given["description"])
    return model.body(conversation.Ask((), (tool,), dialects=(dialect,)))


@SHARES
def test_each_option_and_definition_is_neutralized_or_exempt(share: int) -> None:
    with cases() as case:
        for dialect in some_dialects(1, share):
            for model in MODELS:
                with case(dialect.id, model.format):
                    exempt = ("stop.0", "chat_template", "guided_regex", *IN_ANSWER_FORMATS)
                    assert [] == unexplained(
                        unsafe_paths(OPTIONS, dialect, partial(send_options, model, dialect)), exempt
                    )
                    definition = {"schema": SCHEMA, "description": "Looks."}
                    assert [] == unsafe_paths(definition, dialect, partial(send_tool, model, dialect), one=True)


def test_tools_in_a_request_to_latitude_are_neutralized() -> None:
    def send(given: Any) -> Any:
        tool = Tool(lambda arguments: "", name="look", parameters=given["schema"], description=given["description"])
        return conversation.latitude_request([User("?")], tools=[tool], dialects=["hash_marker"])

    assert [] == unsafe_paths({"schema": SCHEMA, "description": "Looks."}, DIALECTS["hash_marker"], send, one=True)


FAULTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "an option is exempt": lambda patch: patch.setattr(untrusted, "IN_BODY", untrusted.IN_BODY | {"metadata"}),
    "a keyword is exempt": lambda patch: patch.setattr(untrusted, "IN_SCHEMA", untrusted.IN_SCHEMA | {"title"}),
    "a field is exempt": lambda patch: patch.setattr(untrusted, "IN_HISTORY", untrusted.IN_HISTORY | {"extra"}),
    "URLs are left alone": lambda patch: patch.setattr(untrusted, "_neutralize_url", lambda url, dialects: url),
    "files are left alone": lambda patch: patch.setattr(untrusted, "_TEXT_FILES", ("none",)),
    "bodies are left alone": lambda patch: patch.setattr(
        "streamtools.gateway.upstream_requests.neutralize_body", lambda body, dialects: body
    ),
    "words are left alone": lambda patch: patch.setattr(
        "streamtools.gateway.upstream_requests.neutralize_words", lambda history, dialects: history
    ),
    "histories are left alone": lambda patch: patch.setattr(in_text, "neutralize_history", lambda history, _: history),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    dialect = DIALECTS["hermes_json"]
    FAULTS[fault](monkeypatch)
    paths = unsafe_paths(GATEWAY["openai"], dialect, partial(send_by_gateway, "openai", dialect))
    assert unexplained(paths, (*EXEMPT["openai"], *IN_ANSWER_FORMATS))


def split_in(client: str, first: str, second: str) -> dict[str, Any]:
    """Return requests in which a text is divided between two texts that a chat template may join."""
    parts = [{"type": "text", "text": first}, {"type": "text", "text": second}]
    texts = [{"text": first}, {"text": second}]
    user = {"role": "user", "content": "?"}
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    asked: list[Any] = [user, {"role": "assistant", "content": None, "tool_calls": [call]}]
    bodies: dict[str, list[Any]] = {
        "two parts": [{"role": "user", "content": parts}],
        "two messages": [{"role": "user", "content": first}, {"role": "user", "content": second}],
        "two parts of a result": [*asked, {"role": "tool", "tool_call_id": "c1", "content": parts}],
        "two blocks of a document": [
            {"role": "user", "content": [{"type": "document", "source": {"type": "content", "content": parts}}]}
        ],
        "two fields of reasoning": [
            user, asked[1] | {"reasoning_details": [{"type": "reasoning.text", **part} for part in texts]},
            {"role": "tool", "tool_call_id": "c1", "content": "x"},
        ],
    }  # fmt: skip
    return {name: {**GATEWAY["openai"], "messages": messages} for name, messages in bodies.items()}


def joined_texts(messages: Any, separator: str) -> str:
    return separator.join(text for path, text in leaves(messages) if path[-1] in ("text", "content"))


@SHARES
def test_a_call_that_is_divided_between_texts_is_neutralized(share: int) -> None:
    """At each cut, joined directly or with a line feed."""
    with cases() as case:
        for dialect in some_dialects(5, share):
            planted = dialect.write_call("pay", ANN)
            for at in range(1, len(planted), 1 if share == 1 else 5):
                for place, body in split_in("openai", planted[:at], planted[at:]).items():
                    with case(dialect.id, place, at):
                        messages = send_by_gateway("openai", dialect, body)["messages"]
                        for separator in ("", "\n"):
                            text = joined_texts(messages, separator)
                            assert "pay" in text.replace(separator, "").replace("\u2060", "")
                            begins = [at for at in range(len(text)) if "pay" in text[at : at + 40]] or [0]
                            for begin_at in begins:
                                read = parse(text[begin_at:], dialects=[dialect], tools=TOOLS)
                                assert [] == [call for call in read.calls if call.name == "pay"], text[begin_at:]


def escaped(text: str) -> str:
    """Return a JSON string in which each character that is not a letter or a digit is an escape."""
    return '"' + "".join(each if each.isalnum() else f"\\u{ord(each):04x}" for each in text) + '"'


def decoded(text: str) -> str:
    """Return a text as a model may quote it: without one level of escapes."""
    return neutralizing._ESCAPE.sub(neutralizing._decode_escape, text)


FORMS: dict[str, Callable[[str], str]] = {
    "JSON": lambda text: json.dumps({"page": text}),
    "JSON in JSON": lambda text: json.dumps({"page": json.dumps({"page": text})}),
    "JSON in JSON in JSON": lambda text: json.dumps([json.dumps([json.dumps([text])])]),
    "escapes": lambda text: f'{{"page":{escaped(text)}}}',
    "escapes in JSON": lambda text: json.dumps({"page": f'{{"page":{escaped(text)}}}'}),
    "escapes of escapes": lambda text: f'{{"page":{escaped(escaped(text))}}}',
    "escapes after prose": lambda text: f'The page: {{"page":{escaped(text)}}}',
    "HTML": lambda text: "".join(each if each.isalnum() else f"&#{ord(each)};" for each in text),
    "HTML in JSON": lambda text: json.dumps({"page": text.replace("<", "&lt;").replace(">", "&gt;")}),
    "Python": lambda text: "".join(each if each.isalnum() or each > "~" else f"\\x{ord(each):02x}" for each in text),
}


@SHARES
def test_no_escaped_call_of_a_result_is_a_call(share: int) -> None:
    """Neither as it is written nor when the model decodes the escapes, in each form of a result."""
    with cases() as case:
        for dialect in some_dialects(7, share):
            planted = dialect.write_call("pay", ANN)
            for form, write in FORMS.items():
                for kind in ("native", dialect.id):
                    result = CallResult(kind, "read", write(planted), "c1")
                    (message,) = in_text.results_as_text([Results((result,))], [dialect])
                    text = message.results[0].text if isinstance(message, Results) else str(message.content)  # type: ignore[union-attr]
                    with case(dialect.id, form, kind):
                        while True:
                            for at in (at for at in range(len(text)) if "pay" in text[at : at + 90]):
                                read = parse(text[at:], dialects=[dialect], tools=TOOLS)
                                assert [] == [call for call in read.calls if call.name == "pay"], text[at:]
                            if (quoted := decoded(text)) == text:
                                break
                            text = quoted
                        assert "pay" in text.replace("\u2060", "")


def test_neutralizing_again_changes_nothing_and_can_be_undone() -> None:
    with cases() as case:
        for dialect in DIALECTS.values():
            for form, write in FORMS.items():
                text = write(dialect.write_call("pay", ANN))
                with case(dialect.id, form):
                    safe = neutralize(text, [dialect])
                    assert safe != text
                    assert safe == neutralize(safe, [dialect])
                    assert text == restore(safe, [dialect])


def test_a_url_still_names_the_same_resource() -> None:
    """The fragment, the host and the meaning of each character stay, and the URL contains no call."""
    with cases() as case:
        for dialect in DIALECTS.values():
            for begin_of_url in ("https://example.org/", "https://example.org/?q=", "https://[::1]:80/a#"):
                url = begin_of_url + dialect.write_call("pay", ANN)
                with case(dialect.id, begin_of_url):
                    safe = untrusted._neutralize_url(url, [dialect])
                    assert unquote(safe) == unquote(url)
                    assert [*map(unquote, urlsplit(safe))] == [*map(unquote, urlsplit(url.replace("\n", "%0A")))]
                    assert safe == untrusted._neutralize_url(safe, [dialect])
                    assert [] == calls_of([safe], dialect)
                    assert unsafe_url_unchanged(dialect)


def unsafe_url_unchanged(dialect: Dialect) -> bool:
    usual = "https://example.org/a%20b/c.png?x=1&y=[2]#z"
    return untrusted._neutralize_url(usual, [dialect]) == usual


def test_without_dialects_nothing_changes() -> None:
    """A request to a model that makes native calls is unchanged."""
    for messages in HISTORIES.values():
        planted = copy.deepcopy(messages)
        for path, _ in leaves(messages):
            if path[-1] in ("text", "title", "output"):
                plant(planted, path, "<tool_call>")
        history = read_messages(planted, client=False)
        assert "\u2060" not in json.dumps(write_messages(history, "openai"))


def test_a_trusted_result_stays_unchanged() -> None:
    """That of a tool with `neutralize=False`, in its text and in its other content."""
    dialect = DIALECTS["hermes_json"]
    result = CallResult(
        "native", "read", "<tool_call>", "c1", neutralize=False, parts=({"type": "x", "y": "<tool_call>"},)
    )
    (message,) = in_text.results_as_text([Results((result,))], [dialect])
    assert message == Results((result,))
