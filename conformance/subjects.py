"""What is judged: a parser behind an adapter, which is a function, a command, or a server that streams.

Each takes a case and its deltas, and returns what the parser reported, or None where it does not read the dialect.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias

import httpx

from conformance.cases import Case, Reported
from streamtools.events import Error, Reasoning, Text
from streamtools.parsing import Parser

Subject: TypeAlias = Callable[[Case, Sequence[str]], Reported | None]
Parse: TypeAlias = "Callable[[Sequence[str], str, Sequence[Mapping[str, Any]]], Mapping[str, Any] | None]"
"""Takes the deltas, the id of the dialect and the declared tools. Returns `text`, `reasoning`, `calls`, which are
objects with `name` and `arguments`, and `errors`, which are codes; what is left out is not judged. Returns None for a
dialect that it does not read."""


def function(parse: Parse) -> Subject:
    """Return a parser that is a function."""

    def ask(case: Case, deltas: Sequence[str]) -> Reported | None:
        answer = parse(deltas, case.dialect, case.tools)
        return None if answer is None else Reported.of(answer)

    return ask


def ours(deltas: Sequence[str], dialect: str, tools: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Read a text with the parser of streamtools, as `function` takes it."""
    parser = Parser(dialect, list(tools))
    events = [event for delta in deltas for event in parser.feed(delta)] + parser.close()
    return {
        "text": "".join(event.text for event in events if isinstance(event, Text)),
        "reasoning": "".join(event.text for event in events if isinstance(event, Reasoning)),
        "calls": [{"name": call.name, "arguments": call.arguments} for call in parser.calls],
        "errors": [str(event.code) for event in events if isinstance(event, Error)],
    }


class Command:
    """A parser that is a program, started once: a line of JSON for a text on its input, and one back on its output.

    It reads `{"dialect": …, "tools": […], "deltas": […]}`, and answers as `function` does, or with `{"raised": …}`;
    `null` says that it does not read the dialect. Without an answer in `patience` seconds it is stopped, and started
    again for the next text. Use it as a context manager.
    """

    def __init__(self, command: str | Sequence[str], *, patience: float = 30.0) -> None:
        self._command = shlex.split(command) if isinstance(command, str) else list(command)
        self._patience = patience
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Command:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def __call__(self, case: Case, deltas: Sequence[str]) -> Reported | None:
        """Ask about a text. Raises RuntimeError where no answer comes, OSError where there is no such program."""
        if self._process is None:
            self._process = subprocess.Popen(  # noqa: S603 - the user's own command
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
            )
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        watch = threading.Timer(self._patience, process.kill)
        watch.start()
        try:
            question = {"dialect": case.dialect, "tools": case.tools, "deltas": deltas}
            process.stdin.write(json.dumps(question) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            watch.cancel()
        if not line:
            self._end()
            raise RuntimeError(f"{self._command[0]} has given no answer")
        answer = json.loads(line)
        if answer is not None and "raised" in answer:
            raise RuntimeError(answer["raised"])
        return None if answer is None else Reported.of(answer)

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


class Server:
    """A server that speaks OpenAI's chat completions and reads calls in the text of the model behind it.

    We are that model: `listen` is the address at which the server under judgement finds it, as `HOST:PORT`, and `url`
    is where it answers itself; both end before `/chat/completions`. It is asked with the id of the dialect as the name
    of the model. A refusal with 404 or 501 says that it does not read the dialect. Use it as a context manager.
    """

    def __init__(self, url: str, listen: str = "127.0.0.1:0", *, patience: float = 30.0) -> None:
        host, _, port = listen.rpartition(":")
        self._answers: dict[str, tuple[Sequence[str], str]] = {}
        self._model = ThreadingHTTPServer((host or "127.0.0.1", int(port)), _model_of(self._answers))
        self._thread = threading.Thread(target=self._model.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self.upstream = "http://{}:{}/v1".format(*self._model.server_address[:2])
        """The address of the model that we are."""
        self._url = f"{url.rstrip('/')}/chat/completions"
        self._client = httpx.Client(timeout=patience)
        self._count = 0

    def __enter__(self) -> Server:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()
        self._model.shutdown()
        self._model.server_close()
        self._thread.join()

    def __call__(self, case: Case, deltas: Sequence[str]) -> Reported | None:
        """Ask about a text. Raises httpx.HTTPError where the server fails or refuses."""
        self._count += 1
        question = f"conformance {self._count}"
        self._answers[question] = deltas, "length" if case.rule == "cut off" else "stop"
        body = {
            "model": case.dialect,
            "stream": True,
            "messages": [{"role": "user", "content": question}],
            "tools": [{"type": "function", "function": tool} for tool in case.tools],
        }
        try:
            with self._client.stream("POST", self._url, json=body) as response:
                if response.status_code in (404, 501):
                    return None
                return _reported(response.raise_for_status().iter_lines())
        finally:
            del self._answers[question]


def _reported(lines: Iterable[str]) -> Reported:
    """Return what the chunks of a completion tell."""
    text, reasoning = [], []
    calls: dict[int, tuple[list[str], list[str]]] = {}  # names, the last of which counts, and arguments
    for line in lines:
        data = line.removeprefix("data:").strip()
        if not line.startswith("data:") or data == "[DONE]":
            continue
        chunk = json.loads(data)
        if "error" in chunk:
            raise RuntimeError(f"the server says: {chunk['error']}")
        for choice in chunk.get("choices") or ():
            delta = choice.get("delta") or {}
            text.append(delta.get("content") or "")
            reasoning.append(delta.get("reasoning_content") or delta.get("reasoning") or "")
            for each in delta.get("tool_calls") or ():
                names, arguments = calls.setdefault(each.get("index", len(calls)), ([""], []))
                made = each.get("function") or {}
                names.append(made.get("name") or names[-1])
                arguments.append(made.get("arguments") or "")
    made_calls = [(names[-1], "".join(arguments)) for names, arguments in calls.values()]
    return Reported("".join(text), made_calls, "".join(reasoning))


def _model_of(answers: Mapping[str, tuple[Sequence[str], str]]) -> type[BaseHTTPRequestHandler]:
    """Return the handler of a model whose answers are at hand, by the last message that it is asked with."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            question = asked["messages"][-1]["content"]
            if not isinstance(question, str):
                question = "".join(part.get("text", "") for part in question)
            deltas, reason = answers[question]
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            head = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": asked.get("model", "")}
            for delta in [{"role": "assistant", "content": ""}, *({"content": delta} for delta in deltas), {}]:
                choice = {"index": 0, "delta": delta, "finish_reason": None if delta else reason}
                self.wfile.write(f"data: {json.dumps({**head, 'choices': [choice]})}\n\n".encode())
            self.wfile.write(b"data: [DONE]\n\n")

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    return Handler
