"""A text model behind chat completions on the loopback interface, for clients with a transport or a gateway.

It writes calls for questions, and text for results. A test can choose a status or a break in the stream. It writes only
the taught dialect. Without the tool `weather`, it calls the first tool.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from tests.support.gateway import stream, whole

CALL = {"name": "weather", "arguments": {"city": "Zürich"}}
CALLS = f"~~~tool_call\n{json.dumps([CALL, CALL | {'arguments': {'city': 'Bern'}}], ensure_ascii=False)}\n~~~"
ASKS = f"<think>Two towns.</think>I look at both.\n\n{CALLS}\n"
SAYS = "Both are sunny."
FORM = '{"city": "Bern"}'
FAULT = b'{"error": {"message": "It is too much."}}'

_TAUGHT = re.compile(r'^\{"name":"(?!weather")(\w+)"', re.MULTILINE)


class TextModel(ThreadingHTTPServer):
    """The server. `status` is the status of its responses, and `breaks` means that its streams break off.

    `asks` is its text for a question, and `says` its text for results.
    """

    daemon_threads = True
    asks, says = ASKS, SAYS
    status = 200
    breaks = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.url = f"http://127.0.0.1:{self.server_port}/v1"
        self.bodies: list[Any] = []


class _Answer(BaseHTTPRequestHandler):
    server: TextModel

    def do_POST(self) -> None:
        server = self.server
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        server.bodies.append(body)
        streams = bool(body.get("stream")) and server.status == 200
        text = self._text(body)
        response = stream([text[at : at + 5] for at in range(0, len(text), 5)]) if streams else whole(text)
        if server.status != 200:
            response = FAULT
        self.send_response(server.status)
        self.send_header("content-type", "text/event-stream" if streams else "application/json")
        self.send_header("content-length", str(len(response)))
        self.send_header("retry-after", "3")
        self.end_headers()
        self.wfile.write(response[: len(response) // 2] if server.breaks else response)

    def _text(self, body: Any) -> str:
        messages = body["messages"]
        if "response_format" in body:
            return FORM
        if "~~~tool_result" in json.dumps(messages[-1]):
            return self.server.says
        other = _TAUGHT.search(str(messages[0]["content"]))
        return f'~~~tool_call\n{{"name": "{other[1]}", "arguments": {FORM}}}\n~~~' if other else self.server.asks

    def log_message(self, format: str, *args: object) -> None:
        """Write no log."""


@contextmanager
def text_model() -> Iterator[TextModel]:
    """A text model that serves."""
    with TextModel() as server, ExitStack() as stack:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        stack.callback(thread.join)
        stack.callback(server.shutdown)
        yield server
