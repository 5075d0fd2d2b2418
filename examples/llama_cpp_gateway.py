"""Native calls in front of llama.cpp, for an editor or any other client that speaks to OpenAI.

    llama-server -m MODEL.gguf --port 8080 --jinja
    MODEL_URL=http://127.0.0.1:8080/v1 uvicorn llama_cpp_gateway:app --port 8766
    OPENAI_BASE_URL=http://127.0.0.1:8766/v1 OPENAI_API_KEY=none editor

llama.cpp writes the prompt with the model's own template, tools included. With `api="llama.cpp"` the model is then
asked for what follows that prompt, past the parser of the server, and what it writes is read here, in the dialects of
that model. `text_rules` takes keys out of what it says. Without them, `streamtools gateway --upstream URL --mode auto
--api llama.cpp` is the same.
"""

from __future__ import annotations

import os

from streamtools import rules
from streamtools.gateway import app as gateway

app = gateway(
    os.environ.get("MODEL_URL", "http://127.0.0.1:8080/v1"),
    api="llama.cpp",
    mode="auto",
    text_rules=[rules.keys()],
)
