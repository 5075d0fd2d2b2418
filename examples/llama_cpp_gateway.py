"""Native calls in front of llama.cpp, for an editor or any other client that speaks to OpenAI.

    llama-server -m MODEL.gguf --port 8080 --jinja
    MODEL_URL=http://127.0.0.1:8080/v1 uvicorn llama_cpp_gateway:app --port 8766
    OPENAI_BASE_URL=http://127.0.0.1:8766/v1 OPENAI_API_KEY=none editor

The gateway sends the tools to llama.cpp. It finds the calls that leak into the text of the model, in the dialects of
the model's name. `api="llama.cpp"` keeps a forced call to a schema. `text_rules` removes keys from the
model's text. Without rules, `streamtools gateway --upstream URL --mode auto --api llama.cpp` does the same.
"""

from __future__ import annotations

import os

from streamtools import rules
from streamtools.gateway import app as gateway

app = gateway(
    os.environ.get("MODEL_URL", "http://127.0.0.1:8080/v1"), api="llama.cpp", mode="auto", text_rules=[rules.keys()]
)
