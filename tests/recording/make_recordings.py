"""Record the streams that ship with the package, from a real model behind any OpenAI-compatible server.

    python tests/recording/make_recordings.py http://127.0.0.1:8080 streamtools/recording/shipped [NAME …]

The shipped recordings come from llama.cpp with Gemma 3 270M (base), on one processor core. A base model follows worked
examples and no instructions, so each scenario has two or three examples. The stream is recorded chunk by chunk with its
times, and is not edited. Another model streams other bytes.
"""

from __future__ import annotations

import json
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from streamtools.recording import ExchangeHead
from streamtools.recording.files import RecordingWriter
from streamtools.recording.format import EndKind, RecordedResponse
from streamtools.recording.redaction import describe_request, keep_headers

Shots = tuple[tuple[str, str], ...]


class Scenario(NamedTuple):
    """The content of a request: worked examples, then the question."""

    title: str
    shots: Shots
    question: str
    max_tokens: int = 400


def tilde(name: str, **arguments: Any) -> str:
    """Return a call in the dialect `tilde_fence`."""
    return f"~~~tool_call\n{json.dumps({'name': name, 'arguments': arguments}, ensure_ascii=False)}\n~~~"


def hashes(name: str, **parameters: Any) -> str:
    """Return a call in the dialect `hash_marker`."""
    call = {"toolName": name, "parameters": parameters}
    return f"###:{json.dumps(call, ensure_ascii=False, separators=(',', ':'))}"


def guide(title: str, what: str, origin: str, making: str, needs: str, heat: str, note: str) -> tuple[str, str]:
    """Return a question and its answer, with headings of all six levels."""
    return (
        f"Write a guide to {title.lower()}.",
        f"# {title}\n\n{what}\n\n## Where it comes from\n\n{origin}\n\n### How it is made\n\n{making}\n\n"
        f"#### What you need\n\n{needs}\n\n##### Temperature\n\n{heat}\n\n###### Note\n\n{note}\n\n"
        f"### Summary\n\nNow you know what {title.lower()} is.",
    )


def lesson(name: str, example: str) -> tuple[str, str]:
    """Return a question and its answer, which shows both dialects in code blocks."""
    return (
        f"How does a model call the {name} tool?",
        "It can write the call in two ways. Here, in code blocks, they are only examples.\n\n"
        f'A fence of tildes:\n\n```\n~~~tool_call\n{{"name": "{name}", "arguments": {example}}}\n~~~\n```\n\n'
        f'Three hashes and a colon:\n\n```json\n###:{{"toolName": "{name}", "parameters": {example}}}\n```\n\n'
        f'In a sentence, `###:{{"toolName": "{name}"}}` is an example too.',
    )


def both_cities(first: str, second: str) -> tuple[str, str]:
    """Return a question and its answer, with two calls and text around them."""
    calls = f"{tilde('get_weather', city=first)}\n\n{tilde('get_weather', city=second)}"
    return f"What is the weather in {first} and in {second}?", f"I will look up both.\n\n{calls}\n\nOne moment, please."


def both_tools(city: str, a: float, b: float) -> tuple[str, str]:
    """Return a question and its answer, with one call of each tool."""
    weather, total = hashes("get_weather", city=city), hashes("add", a=a, b=b)
    return (
        f"What is the weather in {city}, and what is {a} plus {b}?",
        f"First the weather in {city}:\n{weather}\nThen the sum of {a} and {b}:\n{total}\nThese are two calls.",
    )


def greeting(what: str, lines: str) -> tuple[str, str]:
    """Return a request to repeat a text, and the text."""
    text = f"**{what}**\n\n" + "\n".join(f"- {line}" for line in lines.split("/"))
    return f"Repeat this text:\n\n{text}", text


def weather(city: str) -> tuple[str, str]:
    """Return a question and its answer, with one call in the dialect `tilde_fence`."""
    call = tilde("get_weather", city=city)
    return f"What is the weather in {city}?", f"I will look up the weather in {city}.\n\n{call}\n\nOne moment, please."


def addition(a: float, b: float) -> tuple[str, str]:
    """Return a question and its answer, with one call in the dialect `hash_marker`."""
    return f"What is {a} plus {b}?", f"I will add {a} and {b}.\n\n{hashes('add', a=a, b=b)}\n\nThe sum will follow."


def day(city: str) -> tuple[str, str]:
    """Return a question and its answer, with a call between headings."""
    call = hashes("get_weather", city=city)
    plan = f"### Plan\n\nA day in {city}.\n\n### Weather\n\n{call}\n\n### Food\n\nEat well in {city}."
    return f"Plan a day in {city}.", plan


GUIDES: Shots = (
    guide(
        "Tea",
        "Tea is a drink made from leaves.",
        "Most tea comes from China and India.",
        "The leaves are dried and rolled.",
        "You need leaves, water and a pot.",
        "Use water of 80 degrees.",
        "Do not let it boil.",
    ),
    guide(
        "Bread",
        "Bread is a food baked from flour.",
        "Bread comes from the Middle East.",
        "The dough is kneaded and baked.",
        "You need flour, water and an oven.",
        "Bake it at 240 degrees.",
        "Let it cool before you cut it.",
    ),
    guide(
        "Cheese",
        "Cheese is a food made from milk.",
        "Most cheese comes from Europe.",
        "The milk is curdled and pressed.",
        "You need milk, rennet and a mould.",
        "Keep it at 12 degrees.",
        "Do not eat the wax.",
    ),
)

SCENARIOS = {
    "tilde-call": Scenario(
        "A call in a ~~~ block",
        (weather("Oslo"), weather("Rome")),
        weather("Paris")[0],
    ),
    "hash-call": Scenario(
        "A call after ###",
        (addition(2, 3), addition(10.5, 4)),
        addition(17.5, 24)[0],
    ),
    "two-calls": Scenario(
        "Two calls in one answer",
        (both_cities("Oslo", "Rome"), both_cities("Berlin", "Madrid")),
        both_cities("Paris", "Tokyo")[0],
    ),
    "two-tools": Scenario(
        "Calls of two tools, with text between them",
        (both_tools("Oslo", 2, 3), both_tools("Rome", 7, 1)),
        both_tools("Lima", 8, 9)[0],
    ),
    "headings": Scenario("Headings that begin like a call", GUIDES, "Write a guide to coffee."),
    "quoted-markers": Scenario(
        "Calls quoted in code blocks: they do not run",
        (lesson("get_weather", '{"city": "Oslo"}'), lesson("add", '{"a": 1, "b": 2}')),
        "How does a model call the search tool?",
    ),
    "cut-call": Scenario(
        "A call cut off by max_tokens: it does not run",
        (weather("Oslo"), weather("Rome")),
        weather("Paris")[0],
        max_tokens=25,
    ),
    "no-call": Scenario(
        "A short answer without a call",
        (
            ("What is the capital of Italy?", "The capital of Italy is Rome. It lies on the river Tiber."),
            ("What is the capital of Austria?", "The capital of Austria is Vienna. It lies on the river Danube."),
            ("What is the capital of Egypt?", "The capital of Egypt is Cairo. It lies on the river Nile."),
        ),
        "What is the capital of France?",
    ),
    "unicode": Scenario(
        "Emoji and many scripts",
        (
            greeting("Hello 👋", "こんにちは/你好/안녕하세요/مرحبا/Cafe\u0301 e\u0301te\u0301/👩\u200d🚀 🇫🇷"),
            greeting("Thanks 🙏", "ありがとう/谢谢/감사합니다/شكرا/Nai\u0308ve ångström/👨\u200d🍳 🇯🇵"),
        ),
        greeting("Night 🌙", "おやすみ/晚安/잘 자요/سلام/De\u0301ja\u0300 vu, Zürich/🧑\u200d🌾 🇧🇷")[0],
    ),
    "unicode-call": Scenario(
        "A call with a Japanese argument",
        (
            ("オスロの天気は?", f"調べます。🔎\n\n{tilde('get_weather', city='オスロ')}\n\nお待ちください。"),
            ("北京の天気は?", f"調べます。🔎\n\n{tilde('get_weather', city='北京')}\n\nお待ちください。"),
        ),
        "東京の天気は?",
    ),
    "headings-and-call": Scenario(
        "A call between headings",
        (day("Oslo"), day("Rome")),
        day("Vienna")[0],
    ),
}  # fmt: skip


def request_of(scenario: Scenario) -> dict[str, Any]:
    """Return the body of the request for a scenario."""
    turns = [turn for shot in scenario.shots for turn in zip(("user", "assistant"), shot, strict=True)]
    return {
        "model": "gemma-3-270m",
        "messages": [{"role": role, "content": text} for role, text in [*turns, ("user", scenario.question)]],
        "stop": ["<|im_end|>"],
        "temperature": 0,
        "cache_prompt": False,  # with a warm cache, llama.cpp rounds differently
        "max_tokens": scenario.max_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def record(url: str, title: str, body: dict[str, Any], path: Path) -> None:
    """Record the response to one request."""
    client = httpx.Client(base_url=url, timeout=60, trust_env=False, headers={"accept-encoding": "identity"})
    start, now = time.perf_counter(), datetime.now(UTC).isoformat(timespec="seconds")
    with client, client.stream("POST", "/v1/chat/completions", json=body) as response:
        asked = response.request
        head = ExchangeHead(
            source="openai",
            title=title,
            recorded=now,
            request=describe_request(asked.method, str(asked.url), asked.headers.multi_items(), asked.content),
            response=RecordedResponse(
                status=response.status_code, headers=keep_headers(response.headers.multi_items())
            ),
        )
        with path.open("wb") as file:
            writer = RecordingWriter(file, head)
            kind: EndKind = "end"
            error = ""
            try:
                for chunk in response.iter_bytes():
                    writer.chunk(chunk, (time.perf_counter() - start) * 1000)
            except httpx.TransportError as failure:
                kind = "timeout" if isinstance(failure, httpx.ReadTimeout) else "reset"
                error = type(failure).__name__
            writer.end(kind, (time.perf_counter() - start) * 1000, error)


def main(url: str, folder: str, *names: str) -> None:
    """Record the named scenarios. Without names, record all scenarios."""
    for name in names or SCENARIOS:
        record(url, SCENARIOS[name].title, request_of(SCENARIOS[name]), Path(folder, f"{name}.jsonl"))
        print(name)


if __name__ == "__main__":
    main(*sys.argv[1:])
