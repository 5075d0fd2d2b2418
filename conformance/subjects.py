"""Adapters for the parser under test: a function, a command, or a server that streams.

An adapter takes a case and its deltas. It returns the report of the parser, or None if the parser does not read the
dialect.
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
"""Takes the deltas, the id of the dialect and the declared tools.

Returns any of `text`, `reasoning`, `calls` (objects with `name` and `arguments`) and `errors` (codes). Parts that it
leaves out are not judged. Returns None for a dialect that it does not read.
"""


def function(parse: Parse) -> Subject:
    """Return the adapter of a function."""

    def ask(case: Case, deltas: Sequence[str]) -> Reported | None:
        answer = parse(deltas, case.dialect, case.tools)
        return None if answer is None else Reported.of(answer)

    return ask


def ours(deltas: Sequence[str], dialect: str, tools: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Parse a text with streamtools, for `function`."""
    parser = Parser(dialect, list(tools))
    events = [event for delta in deltas for event in parser.feed(delta)] + parser.close()
    return {
        "text": "".join(event.text for event in events if isinstance(event, Text)),
        "reasoning": "".join(event.text for event in events if isinstance(event, Reasoning)),
        "calls": [{"name": call.name, "arguments": call.arguments} for call in parser.calls],
        "errors": [str(event.code) for event in events if isinstance(event, Error)],
    }


class Command:
    """The adapter of a program, which reads one line of JSON for each text and writes one line back.

    It reads `{"dialect": …, "tools": […], "deltas": […]}`. It writes the same as a `Parse` function returns, or
    `{"raised": …}`, or `null` if it does not read the dialect. The program is started once. If it does not answer
    within `timeout` seconds, it is stopped and started again for the next text. Use this as a context manager.
    """

    def __init__(self, command: str | Sequence[str], *, timeout: float = 30.0) -> None:
        self._command = shlex.split(command) if isinstance(command, str) else list(command)
        self._timeout = timeout
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Command:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def __call__(self, case: Case, deltas: Sequence[str]) -> Reported | None:
        """Test one text. Raises RuntimeError if the program does not answer, and OSError if it does not exist."""
        if self._process is None:
            self._process = subprocess.Popen(  # noqa: S603 - the user's own command
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
            )
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        timer = threading.Timer(self._timeout, process.kill)
        timer.start()
        try:
            question = {"dialect": case.dialect, "tools": case.tools, "deltas": deltas}
            process.stdin.write(json.dumps(question) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            timer.cancel()
        if not line:
            self._end()
            raise RuntimeError(f"the program {self._command[0]} gave no answer; it ended or took too long")
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
    """The adapter of a server with OpenAI's chat completions, which parses the text of an upstream model.

    The adapter is that model: it listens at `listen`, as `HOST:PORT`. `url` is the address of the server under test,
    without `/chat/completions`. The name of the model in a request is the id of the dialect. Status 404 or 501 means
    that the server does not read the dialect. Use this as a context manager.
    """

    def __init__(self, url: str, listen: str = "127.0.0.1:0", *, timeout: float = 30.0) -> None:
        host, _, port = listen.rpartition(":")
        self._answers: dict[str, tuple[Sequence[str], str]] = {}
        self._model = ThreadingHTTPServer((host or "127.0.0.1", int(port)), _model_of(self._answers))
        self._thread = threading.Thread(target=self._model.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self.upstream = "http://{}:{}/v1".format(*self._model.server_address[:2])
        """The address of the model."""
        self._url = f"{url.rstrip('/')}/chat/completions"
        self._client = httpx.Client(timeout=timeout)
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
        """Test one text. Raises httpx.HTTPError if the server fails or refuses."""
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
    """Read the chunks of a completion."""
    text, reasoning = [], []
    calls: dict[int, tuple[list[str], list[str]]] = {}  # names, of which the last counts, and arguments
    for line in lines:
        data = line.removeprefix("data:").strip()
        if not line.startswith("data:") or data == "[DONE]":
            continue
        chunk = json.loads(data)
        if "error" in chunk:
            raise RuntimeError(f"the server reported an error: {chunk['error']}")
        for choice in chunk.get("choices") or ():
            delta = choice.get("delta") or {}
            text.append(delta.get("content") or "")
            reasoning.append(delta.get("reasoning_content") or delta.get("reasoning") or "")
            for call in delta.get("tool_calls") or ():
                names, arguments = calls.setdefault(call.get("index", len(calls)), ([""], []))
                called = call.get("function") or {}
                names.append(called.get("name") or names[-1])
                arguments.append(called.get("arguments") or "")
    reported_calls = [(names[-1], "".join(arguments)) for names, arguments in calls.values()]
    return Reported("".join(text), reported_calls, "".join(reasoning))


def _model_of(answers: Mapping[str, tuple[Sequence[str], str]]) -> type[BaseHTTPRequestHandler]:
    """Return the handler of a model that looks up its answer by the last message of the request."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            question = request["messages"][-1]["content"]
            if not isinstance(question, str):
                question = "".join(part.get("text", "") for part in question)
            deltas, reason = answers[question]
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            head = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": request.get("model", "")}
            for delta in [{"role": "assistant", "content": ""}, *({"content": delta} for delta in deltas), {}]:
                choice = {"index": 0, "delta": delta, "finish_reason": None if delta else reason}
                self.wfile.write(f"data: {json.dumps({**head, 'choices': [choice]})}\n\n".encode())
            self.wfile.write(b"data: [DONE]\n\n")

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    return Handler
