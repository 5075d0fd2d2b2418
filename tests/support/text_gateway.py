"""A small server that parses the text of an upstream model, for the conformance suite to test."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx

from conformance import ours


@contextmanager
def gateway(upstream: list[str]) -> Iterator[str]:
    """Run the server. `upstream` holds the address of its model."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if body["model"] == "raw_json":
                self.send_error(404)
                return
            body["messages"][-1]["content"] = [{"type": "text", "text": body["messages"][-1]["content"]}]
            lines = httpx.post(f"{upstream[0]}/chat/completions", json=body).text.splitlines()
            chunks = [json.loads(line[6:])["choices"][0] for line in lines if line.startswith("data: {")]
            self.send_response(200)
            self.end_headers()
            if body["model"] == "hash_marker":
                self.wfile.write(b'data: {"error": {"message": "no"}}\n\n')
                return
            tools = [tool["function"] for tool in body["tools"]]
            report = ours([chunk["delta"].get("content", "") for chunk in chunks], body["model"], tools)
            made = [
                {"index": at, "function": {"name": call["name"], "arguments": json.dumps(call["arguments"])}}
                for at, call in enumerate(report["calls"])
            ]
            delta = {"content": report["text"], "reasoning_content": report["reasoning"], "tool_calls": made}
            choice = {"delta": delta, "finish_reason": chunks[-1]["finish_reason"]}
            self.wfile.write(f": hello\n\ndata: {json.dumps({'choices': [choice]})}\n\n".encode())
            self.wfile.write(b'data: {"choices": []}\n\ndata: [DONE]\n\n')

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
