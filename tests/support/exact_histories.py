"""Complete histories in the formats of all providers, with every kind of message, block, item and part.

The types of the SDKs validate them (`tests/sdks/test_requests.py`). They contain nothing that is normalized, see
`docs/histories.md`.
"""

from __future__ import annotations

from typing import Any

Messages = list[dict[str, Any]]

DATA = "aGk="
CACHED = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}


def _user(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": [*blocks]}


def _said(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": [*blocks]}


def _text(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": text, **more}


# Anthropic.


def _use(id: str, **more: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": "f", "input": {"a": 1}, **more}


def _result(id: str, **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id, **more}


def _hosted(name: str, kind: str, content: Any, **more: Any) -> Messages:
    """Return the two blocks of a tool that Anthropic runs."""
    id = f"srvtoolu_{kind}"
    use = {"type": "server_tool_use", "id": id, "name": name, "input": {"x": "y"}}
    return [{**use, **more}, {"type": f"{kind}_tool_result", "tool_use_id": id, "content": content, **more}]


_QUOTES: Messages = [
    {"type": "char_location", "document_index": 0, "document_title": "t", "start_char_index": 0, "end_char_index": 1},
    {
        "type": "page_location",
        "document_index": 0,
        "document_title": None,
        "start_page_number": 1,
        "end_page_number": 2,
    },
    {"type": "content_block_location", "document_index": 0, "document_title": "t", "start_block_index": 0}
    | {"end_block_index": 1},
    {"type": "web_search_result_location", "url": "u", "title": "t", "encrypted_index": "i"},
    {"type": "search_result_location", "source": "s", "title": None, "search_result_index": 0, "start_block_index": 0}
    | {"end_block_index": 1},
]
_PDF = {
    "type": "document",
    "source": {"type": "base64", "media_type": "application/pdf", "data": DATA},
    "title": "t.pdf",
}
_FOUND = {"type": "search_result", "source": "s", "title": "t", "content": [_text("a")], "citations": {"enabled": True}}
_WEB = {"type": "web_search_result", "url": "u", "title": "t", "encrypted_content": "e", "page_age": None}
_RAN = {"return_code": 0, "stderr": "", "stdout": "1"}
_IMAGES: Messages = [
    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DATA}},
    {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}, **CACHED},
    {"type": "image", "source": {"type": "file", "file_id": "file_1"}},
]
_DOCUMENTS: Messages = [
    _PDF,
    {**_PDF, "context": "c", "citations": {"enabled": True}, **CACHED},
    {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "d"}, "title": "t"},
    {"type": "document", "source": {"type": "url", "url": "https://example.org/a.pdf"}},
    {"type": "document", "source": {"type": "content", "content": [_text("a"), _IMAGES[0]]}},
    {"type": "document", "source": {"type": "file", "file_id": "file_1"}},
]

ANTHROPIC: Messages = [
    _user(_text("Hi", **CACHED), *_IMAGES, *_DOCUMENTS, _FOUND, {"type": "container_upload", "file_id": "file_2"}),
    _said(
        {"type": "thinking", "thinking": "Hm", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "ZGF0YQ=="},
        _text("I look."),
        *_hosted("web_search", "web_search", [_WEB], caller={"type": "direct"}),
        *_hosted(
            "web_fetch", "web_fetch", {"type": "web_fetch_result", "url": "u", "content": _PDF, "retrieved_at": "2026"}
        ),
        *_hosted("web_fetch", "web_fetch", {"type": "web_fetch_tool_result_error", "error_code": "unavailable"}),
        *_hosted("code_execution", "code_execution", {"type": "code_execution_result", "content": [], **_RAN}),
        *_hosted(
            "bash_code_execution", "bash_code_execution", {"type": "bash_code_execution_result", "content": [], **_RAN}
        ),
        *_hosted(
            "text_editor_code_execution",
            "text_editor_code_execution",
            {"type": "text_editor_code_execution_create_result", "is_file_update": False},
        ),
        *_hosted(
            "tool_search_tool_regex",
            "tool_search",
            {
                "type": "tool_search_tool_search_result",
                "tool_references": [{"type": "tool_reference", "tool_name": "f"}],
            },
        ),
        _text("It is ", citations=[{"cited_text": "c", **each} for each in _QUOTES]),
        _text("so.", **CACHED),
        {"type": "thinking", "thinking": "", "signature": "c2lo"},
        _use("toolu_1", caller={"type": "code_execution_20250825", "tool_id": "srvtoolu_code_execution"}),
        _use("toolu_2", **CACHED),
        _use("toolu_3"),
        _use("toolu_4"),
    ),
    _user(
        _result("toolu_1", content="x"),
        _result("toolu_2", content=[_text("a"), _IMAGES[0], _PDF, _FOUND], **CACHED),
        _result("toolu_3", content=[{"type": "tool_reference", "tool_name": "g"}], is_error=False),
        _result("toolu_4", content="no", is_error=True),
        _text("And?"),
    ),
    _said(_text("Done.")),
]

ANTHROPIC_BETA: Messages = [
    _user(_text("Hi")),
    _said(
        {"type": "compaction", "content": "all of it", "encrypted_content": None},
        {"type": "fallback", "from": {"model": "a"}, "to": {"model": "b"}},
        {"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "e", "server_name": "s", "input": {}},
        {"type": "mcp_tool_result", "tool_use_id": "mcptoolu_1", "is_error": False, "content": [_text("a")]},
        *_hosted("advisor", "advisor", {"type": "advisor_result", "text": "a"}),
        _text("Done."),
    ),
]

# OpenAI's Responses.


def _item(kind: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "id": f"{kind}_1", **more}


def _function(id: str, /, **more: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": id, "name": "f", "arguments": '{"a":1}', **more}


def _output(id: str, output: Any, /, **more: Any) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": id, "output": output, **more}


_DONE = {"status": "completed"}
_PARTS: Messages = [
    {"type": "input_text", "text": "a"},
    {"type": "input_image", "image_url": f"data:image/png;base64,{DATA}", "detail": "low"},
    {"type": "input_image", "file_id": "file_1", "detail": "auto"},
    {"type": "input_file", "filename": "a.pdf", "file_data": f"data:application/pdf;base64,{DATA}"},
    {"type": "input_file", "file_id": "file_2"},
    {"type": "input_file", "file_url": "https://example.org/a.pdf"},
]
_NOTES: Messages = [
    {"type": "url_citation", "url": "u", "title": "t", "start_index": 0, "end_index": 1},
    {"type": "file_citation", "file_id": "f", "filename": "n", "index": 0},
    {"type": "container_file_citation", "container_id": "c", "file_id": "f", "filename": "n", "start_index": 0}
    | {"end_index": 1},
    {"type": "file_path", "file_id": "f", "index": 0},
]
_SHELL = {"stdout": "x", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}
_REASONING = _item("reasoning", summary=[{"type": "summary_text", "text": "Hm"}])


def _message(number: int, text: str, **more: Any) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": _NOTES}
    return {"type": "message", "id": f"msg_{number}", "role": "assistant", "content": [part], **_DONE, **more}


RESPONSES: Messages = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi"},
    {"role": "user", "content": _PARTS},
    {**_REASONING, "encrypted_content": "ZQ==", "content": [{"type": "reasoning_text", "text": "Hm"}], **_DONE},
    _item("web_search_call", action={"type": "search", "query": "x", "queries": ["x"]}, **_DONE),
    _item("web_search_call", action={"type": "open_page", "url": None}, **_DONE),
    _item("file_search_call", queries=["x"], results=None, **_DONE),
    _item("file_search_call", queries=["x"], results=[{"file_id": "f", "score": 0.5, "attributes": {}}], **_DONE),
    _item("code_interpreter_call", code="1", container_id="c", outputs=[{"type": "logs", "logs": "1"}], **_DONE),
    _item("image_generation_call", result=DATA, **_DONE),
    _item("mcp_list_tools", server_label="s", tools=[{"name": "n", "input_schema": {"type": "object"}}]),
    _item("mcp_approval_request", arguments="{}", name="n", server_label="s"),
    {"type": "mcp_approval_response", "approval_request_id": "mcp_approval_request_1", "approve": True},
    _item("mcp_call", arguments="{}", name="n", server_label="s", output="x", error=None, **_DONE),
    _item("tool_search_call", arguments={"query": "x"}, execution="server", call_id=None, **_DONE),
    _item("tool_search_output", tools=[], execution="server", call_id=None, **_DONE),
    _item("compaction", encrypted_content="ZQ=="),
    _item("program", call_id="call_p", code="f()", fingerprint="p"),
    _message(1, "I look.", phase="commentary"),
    _function("call_1", id="fc_1", namespace="n", caller={"type": "program", "caller_id": "call_p"}, **_DONE),
    _function("call_2"),
    {"type": "custom_tool_call", "id": "ctc_1", "call_id": "call_3", "name": "g", "input": "free {text"},
    _output("call_1", "x", id="fco_1", **_DONE),
    _output("call_2", _PARTS),
    {"type": "custom_tool_call_output", "call_id": "call_3", "output": "ok"},
    _item("program_output", call_id="call_p", result="1", **_DONE),
    _REASONING,
    _item("computer_call", call_id="call_4", pending_safety_checks=[], action={"type": "wait"}, **_DONE),
    {"type": "computer_call_output", "call_id": "call_4", "output": {"type": "computer_screenshot", "file_id": "f"}},
    _item("local_shell_call", call_id="call_5", action={"type": "exec", "command": ["ls"], "env": {}}, **_DONE),
    {"type": "local_shell_call_output", "id": "call_5", "output": "x"},
    _item("shell_call", call_id="call_6", action={"commands": ["ls"]}, **_DONE),
    {"type": "shell_call_output", "call_id": "call_6", "output": [_SHELL]},
    _item("apply_patch_call", call_id="call_7", operation={"type": "delete_file", "path": "p"}, **_DONE),
    {"type": "apply_patch_call_output", "call_id": "call_7", "output": "ok", **_DONE},
    _message(2, "Done.", phase="final_answer"),
    {"role": "user", "content": "And?"},
    {**_message(3, ""), "content": [{"type": "refusal", "refusal": "No."}]},
    {"role": "user", "content": "Why?"},
    {"role": "assistant", "content": "Because."},
]

# Gemini.


def _content(role: str, *parts: dict[str, Any]) -> dict[str, Any]:
    return {"role": role, "parts": [*parts]}


_BLOB = {"mimeType": "image/png", "data": DATA}

GEMINI: Messages = [
    _content(
        "user",
        {"text": "Hi"},
        {"inlineData": _BLOB},
        {"inlineData": {"mimeType": "application/pdf", "data": DATA, "displayName": "a.pdf"}},
        {"fileData": {"fileUri": "gs://x", "mimeType": "video/mp4"}, "videoMetadata": {"startOffset": "1s"}},
        {"text": "Look.", "partMetadata": {"a": 1}},
    ),
    _content(
        "model",
        {"text": "Hm", "thought": True},
        {"text": "So", "thought": True, "thoughtSignature": "cw=="},
        {"text": "I ", "thoughtSignature": "czE="},
        {"text": "look."},
        {"executableCode": {"language": "PYTHON", "code": "1", "id": "e"}, "thoughtSignature": "czI="},
        {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1", "id": "e"}},
        {"toolCall": {"toolType": "GOOGLE_SEARCH_WEB", "args": {}, "id": "t"}, "thoughtSignature": "czM="},
        {"toolResponse": {"toolType": "GOOGLE_SEARCH_WEB", "response": {}, "id": "t"}},
        {"inlineData": _BLOB, "thoughtSignature": "czQ="},
        {"functionCall": {"name": "f", "args": {"a": 1}, "id": "c1"}, "thoughtSignature": "czU="},
        {"functionCall": {"name": "g", "args": {}}},
        {"functionCall": {"name": "g", "args": {"b": 2}}},
        {"text": "", "thoughtSignature": "czY="},
    ),
    _content(
        "user",
        {"functionResponse": {"name": "f", "id": "c1", "response": {"output": "x"}, "parts": [{"inlineData": _BLOB}]}},
        {"functionResponse": {"name": "g", "response": {"error": "no"}, "scheduling": "WHEN_IDLE"}},
        {"functionResponse": {"name": "g", "response": {"result": [1]}}},
    ),
    _content("user", {"text": "And?"}),
    _content("model", {"text": "Done."}),
]

# Chat completions, with the additional fields of compatible APIs.


def _call(id: str, arguments: str = '{"a":1}', **more: Any) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": "f", "arguments": arguments}, **more}


def _tool(id: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": content, **more}


_ASK = {"role": "user", "content": "Hi"}
_PICTURE: dict[str, Any] = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{DATA}"}}

OPENAI: Messages = [
    {"role": "system", "content": "Be brief."},
    _user(
        _text("Hi"),
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png", "detail": "low"}},
        {"type": "input_audio", "input_audio": {"data": DATA, "format": "wav"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{DATA}"}},
        {"type": "file", "file": {"file_id": "file_1"}},
    ),
    {
        "role": "assistant",
        "content": "I look.",
        "tool_calls": [
            _call("call_1"),
            _call("call_2", '{"a'),
            {"id": "call_3", "type": "custom", "custom": {"name": "g", "input": "free {text"}},
        ],
    },
    _tool("call_1", "x"),
    _tool("call_2", "no JSON"),
    _tool("call_3", ""),
    {"role": "assistant", "content": None, "audio": {"id": "audio_1"}},
    _ASK,
    {"role": "assistant", "content": None, "refusal": "No."},
    _ASK,
    {"role": "assistant", "content": "Done.", "name": "n"},
]

_SIGNED: dict[str, Any] = {"extra_content": {"google": {"thought_signature": "cw=="}}}
_DETAILS: Messages = [
    {"type": "reasoning.text", "text": "Hm", "signature": "s", "format": "anthropic-claude-v1", "index": 0},
    {"type": "reasoning.encrypted", "data": "d", "id": "r", "format": "openai-responses-v1", "index": 1},
]

COMPATIBLE: Messages = [
    _ASK,
    {"role": "assistant", "content": None, "tool_calls": [_call("c1", **_SIGNED)], "reasoning_content": "Hm"},
    _tool("c1", "x"),
    {"role": "assistant", "content": "Done.", "reasoning_content": ""},
    _ASK,
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [_call("c2")],
        "reasoning": "Hm",
        "reasoning_details": _DETAILS,
    },
    _tool("c2", "x"),
]
"""Histories of servers with extended chat completions."""
BEYOND = frozenset(("reasoning_content", "reasoning", "reasoning_details", "extra_content"))
"""Messages with the extensions."""

_THINKS = {"type": "thinking", "thinking": [_text("Hm")], "closed": True}
_CITES = {"type": "reference", "reference_ids": [1]}

MISTRAL: Messages = [
    _user(_text("Hi"), _PICTURE, {"type": "document_url", "document_url": "https://example.org/a.pdf"}),
    {"role": "assistant", "content": [_THINKS, _text("I look.")], "tool_calls": [_call("c1")]},
    _tool("c1", [_text("a"), _PICTURE]),
    {"role": "assistant", "content": [_text("So"), _CITES, _text(".")]},
    _ASK,
    {"role": "assistant", "content": "D", "prefix": True},
]

OLLAMA: Messages = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi", "images": [DATA]},
    {
        "role": "assistant",
        "content": "I look.",
        "thinking": "Hm",
        "tool_calls": [{"id": "c1", "function": {"name": "f", "arguments": {"a": 1}}}],
    },
    {"role": "tool", "tool_name": "f", "tool_call_id": "c1", "content": "x", "images": [DATA]},
    {"role": "assistant", "content": "Done.", "thinking": "So"},
]

COHERE: Messages = [
    {"role": "system", "content": "Be brief."},
    _user(_text("Hi"), {**_PICTURE, "image_url": {**_PICTURE["image_url"], "detail": "low"}}),
    {"role": "assistant", "tool_plan": "I look.", "tool_calls": [_call("f_1"), _call("f_2")]},
    _tool("f_1", "x"),
    _tool("f_2", [{"type": "document", "document": {"data": {"a": 1}, "id": "d"}}]),
    {
        "role": "assistant",
        "content": [{"type": "thinking", "thinking": "Hm"}, _text("Yes")],
        "citations": [
            {"start": 0, "end": 1, "text": "Y", "sources": [{"type": "tool", "id": "f_1", "tool_output": {}}]}
        ],
    },
]

# Bedrock's Converse.


def _tool_use(id: str, **more: Any) -> dict[str, Any]:
    return {"toolUse": {"toolUseId": id, "name": "f", "input": {"a": 1}, **more}}


def _tool_result(id: str, *content: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"toolResult": {"toolUseId": id, "content": [*content], **more}}


_BYTES = {"source": {"bytes": DATA}}
_STORED = {"source": {"s3Location": {"uri": "s3://x/y"}}}
_CACHE = {"cachePoint": {"type": "default"}}
_SEARCHED = {"searchResult": {"source": "s", "title": "t", "content": [{"text": "a"}], "citations": {"enabled": True}}}
_LOCATION = {"documentChar": {"documentIndex": 0, "start": 0, "end": 1}}

BEDROCK: Messages = [
    _user(
        {"text": "Hi"},
        {"image": {"format": "png", **_BYTES}},
        {"image": {"format": "jpeg", **_STORED}},
        {"document": {"format": "pdf", "name": "a", **_BYTES, "context": "c", "citations": {"enabled": True}}},
        {"document": {"format": "md", "name": "a", **_STORED}},
        {"video": {"format": "mp4", **_STORED}},
        {"audio": {"format": "wav", **_BYTES}},
        {"guardContent": {"text": {"text": "a", "qualifiers": ["query"]}}},
        _SEARCHED,
        _CACHE,
    ),
    _said(
        {"reasoningContent": {"reasoningText": {"text": "Hm", "signature": "c2ln"}}},
        {"reasoningContent": {"redactedContent": "ZGF0YQ=="}},
        {"text": "I look."},
        {"toolUse": {"toolUseId": "t", "name": "nova_grounding", "input": {}, "type": "server_tool_use"}},
        {"toolResult": {"toolUseId": "t", "content": [{"json": {"a": 1}}], "type": "nova_grounding_result"}},
        {"citationsContent": {"content": [{"text": "a"}], "citations": [{"title": "t", "location": _LOCATION}]}},
        {"text": "So."},
        _CACHE,
        _tool_use("tooluse_1"),
        _tool_use("tooluse_2"),
        _tool_use("tooluse_3"),
    ),
    _user(
        _tool_result("tooluse_1", {"text": "x"}, status="success"),
        _tool_result("tooluse_2", {"text": "no"}, status="error"),
        _tool_result(
            "tooluse_3",
            {"json": {"a": 1}},
            {"text": "x"},
            {"image": {"format": "png", **_BYTES}},
            {"document": {"format": "pdf", "name": "a", **_BYTES}},
            {"video": {"format": "mp4", **_STORED}},
            _SEARCHED,
        ),
        _CACHE,
        {"text": "And?"},
    ),
    _said({"text": "Done."}),
]

# Google's Interactions.


def _ran(tool: str, arguments: dict[str, Any], result: Any) -> Messages:
    """Return the two steps of a tool that Google runs."""
    call = {"type": f"{tool}_call", "id": f"{tool}_1", "arguments": arguments, "signature": "cw=="}
    return [call, {"type": f"{tool}_result", "call_id": f"{tool}_1", "result": result, "signature": "cw=="}]


_CITED = {"type": "url_citation", "url": "u", "title": "t", "start_index": 0, "end_index": 1}
_STORED_VIDEO = {"type": "video", "uri": "https://example.org/a.mp4", "mime_type": "video/mp4"}

INTERACTIONS: Messages = [
    {
        "type": "user_input",
        "content": [
            _text("Hi"),
            {"type": "image", "data": DATA, "mime_type": "image/png"},
            {"type": "image", "uri": "https://example.org/a.png"},
            {"type": "image", "data": DATA, "mime_type": "image/png", "resolution": "low"},
            {"type": "document", "data": DATA, "mime_type": "application/pdf"},
            {"type": "audio", "data": DATA, "mime_type": "audio/wav"},
            _STORED_VIDEO,
        ],
    },
    {"type": "thought", "signature": "c2ln", "summary": [_text("Hm")]},
    *_ran("google_search", {"queries": ["x"]}, [{"search_suggestions": "s"}]),
    *_ran("url_context", {"urls": ["u"]}, [{"url": "u", "status": "success"}]),
    *_ran("code_execution", {"language": "python", "code": "1"}, "1"),
    *_ran("google_maps", {"queries": ["x"]}, [{"places": [{"place_id": "p"}]}]),
    {"type": "mcp_server_tool_call", "id": "m", "name": "n", "server_name": "s", "arguments": {}},
    {"type": "mcp_server_tool_result", "call_id": "m", "result": "x", "name": "n", "server_name": "s"},
    {"type": "retrieval_call", "id": "r", "arguments": {"queries": ["x"]}},
    {"type": "retrieval_result", "call_id": "r", "is_error": False},
    {"type": "file_search_result", "call_id": "r", "signature": "cw=="},
    {"type": "model_output", "content": [_text("I look.")]},
    {"type": "model_output", "content": [_text("It is", annotations=[_CITED]), _text(" so.")]},
    {"type": "model_output", "content": [{"type": "image", "data": DATA, "mime_type": "image/png"}]},
    {"type": "function_call", "id": "c1", "name": "f", "arguments": {"a": 1}},
    {"type": "function_call", "id": "c2", "name": "f", "arguments": {}},
    {"type": "function_result", "call_id": "c1", "name": "f", "result": "x"},
    {"type": "function_result", "call_id": "c2", "name": "f", "result": [_text("a"), _STORED_VIDEO], "is_error": True},
    {"type": "user_input", "content": [_text("And?")]},
    {"type": "model_output", "content": [_text("Done.")]},
]


EXACT: dict[str, tuple[str, Messages]] = {
    "openai": ("openai", OPENAI),
    "compatible": ("openai", COMPATIBLE),
    "mistral": ("openai", MISTRAL),
    "responses": ("responses", RESPONSES),
    "anthropic": ("anthropic", ANTHROPIC),
    "anthropic, beta": ("anthropic", ANTHROPIC_BETA),
    "gemini": ("gemini", GEMINI),
    "ollama": ("ollama", OLLAMA),
    "cohere": ("cohere", COHERE),
    "bedrock": ("bedrock", BEDROCK),
    "interactions": ("interactions", INTERACTIONS),
}
"""All histories with their formats."""
