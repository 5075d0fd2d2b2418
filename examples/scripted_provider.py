"""A provider without a model: it answers requests to OpenAI's API from a script.

    .venv/bin/uvicorn --app-dir examples scripted_provider:app --port 8080

If the request offers `get_weather`, `weather` or `pay`, the answer calls it. A question such as `send {"to": "Ann"}`
calls any other tool. Calls in text have the form that the system prompt teaches: `~~~tool_call` or `<<call`. Any other
answer counts, so slowly that you can reload the page or stop the answer. The model `short` answers in one sentence
instead, unless the question has the word "count". If the model has the name of a recording in the package, the
recording is played.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import AsyncIterator
from typing import Any

import anyio
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse

from streamtools.recording import read_recording, shipped

app = FastAPI()
DELAY = float(os.environ.get("DELAY", "0.3"))
CALLS = {"get_weather": {"city": "Paris"}, "weather": {"city": "Bern"}, "pay": {"to": "Ann", "amount": 5}}
RESULT = re.compile("~~~tool_result|<tool_response>")


def script(body: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the deltas of the answer."""
    last = body["messages"][-1]
    has_result = last["role"] == "tool" or bool(RESULT.search(str(last["content"])))
    questions = [str(each["content"]) for each in body["messages"] if each["role"] == "user"]
    question = next((each for each in reversed(questions) if not RESULT.search(each)), "")
    asked = re.search(r"(\w+) (\{.*?\})", question)
    calls = {asked[1]: json.loads(asked[2])} if asked else CALLS
    offered = json.dumps([body.get("tools"), body["messages"][0]["content"]])
    name = next((name for name in calls if f'"{name}"' in offered.replace("\\", "")), None)
    if has_result and body["model"] == "short" and "count" not in question:
        return [{"content": "It is "}, {"content": "18 °C in Paris.\n" if name == "get_weather" else "done.\n"}]
    if name is None or has_result:
        return [{"content": f"{number} "} for number in range(30)]
    arguments = json.dumps(calls[name])
    if "tools" in body:
        function = {"name": name, "arguments": arguments}
        return [{"tool_calls": [{"index": 0, "id": "call_0", "type": "function", "function": function}]}]
    if "<<call" in offered:
        return [{"content": f"I look. <<call {name} {arguments}>>"}]
    return [{"content": f'~~~tool_call\n{{"name": "{name}", "arguments": {arguments}}}\n~~~\n'}]


async def write(body: dict[str, Any]) -> AsyncIterator[bytes]:
    """Yield the server-sent events of the answer."""
    if body["model"] in shipped():
        for chunk in read_recording(shipped()[body["model"]]).chunks:
            yield chunk.data
        return
    for delta in script(body):
        yield b"data: %b\n\n" % json.dumps({"choices": [{"index": 0, "delta": delta}]}).encode()
        await anyio.sleep(DELAY)
    reason = "tool_calls" if "tool_calls" in delta else "stop"
    yield b"data: %b\n\n" % json.dumps({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}).encode()
    if (body.get("stream_options") or {}).get("include_usage"):
        yield b'data: {"choices": [], "usage": {"prompt_tokens": 20, "completion_tokens": 10, "total_tokens": 30}}\n\n'
    yield b"data: [DONE]\n\n"


@app.post("/v1/chat/completions")
async def answer(request: Request) -> StreamingResponse:
    """Answer a request, which must stream."""
    return StreamingResponse(write(await request.json()), media_type="text/event-stream")
