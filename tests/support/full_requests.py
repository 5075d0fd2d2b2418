"""One request of each format, in which every documented field that may hold text is filled.

`GATEWAY` has the bodies that clients send, `HISTORIES` the messages of each provider and front end, and `OPTIONS` the
other fields of a body.
"""

from __future__ import annotations

import base64
from typing import Any

PNG = "data:image/png;base64,iVBORw0KGgo="
FILE = base64.b64encode(b"A page.").decode()
"""A text file in Base64."""
TEXT_FILE = "data:text/plain;base64," + FILE
SCHEMA: dict[str, Any] = {
    "type": "object",
    "title": "a title",
    "description": "a place",
    "properties": {
        "city": {
            "type": "string", "description": "a city", "enum": ["Oslo"], "const": "Oslo", "default": "Oslo",
            "examples": ["Oslo"], "pattern": "O.*", "format": "name", "title": "City", "$comment": "a remark",
        },
        "enum": {"type": "object", "description": "a property with the name of a keyword"},
    },
    "required": ["city"],
    "$defs": {"const": {"description": "a definition"}},
}  # fmt: skip

_OPENAI: list[dict[str, Any]] = [
    {"role": "system", "content": "Be kind.", "name": "app"},
    {"role": "developer", "content": [{"type": "text", "text": "Be brief."}]},
    {"role": "user", "name": "ann", "content": [
        {"type": "text", "text": "Read these."},
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png?b=c", "detail": "low"}},
        {"type": "image_url", "image_url": {"url": PNG}},
        {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AAAA"}},
        {"type": "file", "file": {"filename": "a.txt", "file_data": TEXT_FILE}},
        {"type": "file", "file": {"file_id": "file-1"}},
        {"type": "video_url", "video_url": {"url": "https://example.org/a.mp4"}},
        {"type": "document_url", "document_url": "https://example.org/a.pdf", "document_name": "a paper"},
        {"type": "document", "document": {"id": "d1", "data": {"title": "t", "snippet": "s"}}},
        {"type": "document", "title": "a title", "context": "a context", "citations": {"enabled": True},
         "source": {"type": "text", "media_type": "text/plain", "data": "A page."}},
        {"type": "search_result", "source": "https://example.org", "title": "a title",
         "content": [{"type": "text", "text": "found"}]},
    ]},
    {"role": "assistant", "name": "bot", "content": "I look.", "reasoning_content": "Hm.", "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"q": "x", "url": "https://x.y"}'}},
        {"id": "c2", "type": "function", "function": {"name": "look", "arguments": "{}"}},
        {"id": "c3", "type": "custom", "custom": {"name": "run", "input": "print()"}}]},
    {"role": "tool", "tool_call_id": "c1", "name": "look", "content": "a page"},
    {"role": "tool", "tool_call_id": "c2", "content": [
        {"type": "text", "text": "a page"}, {"type": "text", "text": "a second page"},
        {"type": "image_url", "image_url": {"url": "https://example.org/b.png"}}]},
    {"role": "tool", "tool_call_id": "c3", "content": '{"page": "text"}'},
    {"role": "assistant", "content": [{"type": "text", "text": "It says so."}], "reasoning_details": [
        {"type": "reasoning.text", "text": "unsigned", "id": "r1", "format": "x"},
        {"type": "reasoning.summary", "summary": "a summary"},
        {"type": "reasoning.text", "text": "signed", "signature": "c2ln"},
        {"type": "reasoning.encrypted", "data": "ZW5j"}], "tool_calls": [
        {"id": "c4", "type": "function", "function": {"name": "look", "arguments": "{}"}}]},
    {"role": "tool", "tool_call_id": "c4", "content": "a page"},
    {"role": "assistant", "content": [
        {"type": "text", "text": "See"}, {"type": "reference", "reference_ids": [1]},
        {"type": "document_url", "document_url": "https://example.org/b.pdf", "document_name": "b"}],
     "refusal": "I refuse.", "audio": {"id": "audio_1"}},
    {"role": "user", "content": "Thanks."},
]  # fmt: skip
_RESPONSES: list[dict[str, Any]] = [
    {"type": "message", "id": "m0", "status": "completed", "role": "user", "content": [
        {"type": "input_text", "text": "Read these."},
        {"type": "input_image", "image_url": "https://example.org/a.png", "detail": "low"},
        {"type": "input_image", "file_id": "file-1"},
        {"type": "input_file", "filename": "a.txt", "file_data": TEXT_FILE},
        {"type": "input_file", "filename": "b.txt", "file_url": "https://example.org/b.txt"}]},
    {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}],
     "content": [{"type": "reasoning_text", "text": "Hm, hm."}]},
    {"type": "message", "id": "m1", "role": "assistant", "status": "completed", "content": [
        {"type": "output_text", "text": "I look.", "annotations": [
            {"type": "url_citation", "url": "https://example.org", "title": "t", "start_index": 0, "end_index": 1},
            {"type": "file_citation", "file_id": "f", "filename": "n", "index": 0}]}]},
    {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q"}},
    {"type": "file_search_call", "id": "fs_1", "queries": ["q"], "results": [
        {"file_id": "f", "filename": "n", "text": "found", "attributes": {"a": "b"}}]},
    {"type": "mcp_call", "id": "mcp_1", "name": "n", "server_label": "s", "arguments": "{}", "output": "o"},
    {"type": "code_interpreter_call", "id": "ci_1", "code": "1", "container_id": "x",
     "outputs": [{"type": "logs", "logs": "l"}]},
    {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"q": "x"}'},
    {"type": "function_call", "call_id": "c2", "name": "look", "arguments": "{}"},
    {"type": "custom_tool_call", "call_id": "c3", "name": "run", "input": "print()"},
    {"type": "function_call_output", "call_id": "c1", "output": "a page"},
    {"type": "function_call_output", "call_id": "c2", "output": [
        {"type": "input_text", "text": "a page"}, {"type": "input_file", "filename": "b.txt", "file_data": TEXT_FILE}]},
    {"type": "custom_tool_call_output", "call_id": "c3", "output": "1"},
    {"role": "user", "content": "Thanks."},
]  # fmt: skip
_ANTHROPIC: list[dict[str, Any]] = [
    {"role": "user", "content": [
        {"type": "text", "text": "Read these.", "cache_control": {"type": "ephemeral"}},
        {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
        {"type": "document", "title": "a title", "context": "a context", "citations": {"enabled": True},
         "source": {"type": "text", "media_type": "text/plain", "data": "A page."}},
        {"type": "document", "title": "b", "source": {"type": "content", "content": [
            {"type": "text", "text": "A block."}, {"type": "text", "text": "A second block."}]}},
        {"type": "document", "source": {"type": "content", "content": "A text."}},
        {"type": "document", "title": "c", "source": {"type": "url", "url": "https://example.org/a.pdf"}},
        {"type": "document", "title": "d", "context": "a context",
         "source": {"type": "base64", "media_type": "application/pdf", "data": "AAAA"}},
        {"type": "search_result", "source": "https://example.org", "title": "a title",
         "content": [{"type": "text", "text": "found"}], "citations": {"enabled": True}}]},
    {"role": "assistant", "content": [
        {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "ZW5j"},
        {"type": "text", "text": "I look.", "citations": [
            {"type": "char_location", "cited_text": "c", "document_index": 0, "document_title": "t",
             "start_char_index": 0, "end_char_index": 1}]},
        {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "q"}},
        {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": [
            {"type": "web_search_result", "url": "https://example.org", "title": "t", "encrypted_content": "ZW5j",
             "page_age": "p"}]},
        {"type": "tool_use", "id": "c1", "name": "look", "input": {"q": "x", "url": "https://x.y", "k": ["v"]}},
        {"type": "tool_use", "id": "c2", "name": "look", "input": {}}]},
    {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "c1", "content": "a page"},
        {"type": "tool_result", "tool_use_id": "c2", "is_error": True, "content": [
            {"type": "text", "text": "a page"}, {"type": "text", "text": "a second page"},
            {"type": "image", "source": {"type": "url", "url": "https://example.org/b.png"}},
            {"type": "search_result", "source": "https://example.org", "title": "a title",
             "content": [{"type": "text", "text": "found"}]},
            {"type": "document", "title": "e",
             "source": {"type": "text", "media_type": "text/plain", "data": "A page."}}]},
        {"type": "text", "text": "Go on."}]},
]  # fmt: skip
_OPTIONS: dict[str, Any] = {
    "stop": ["END"], "metadata": {"trace": "t"}, "user": "u", "documents": [{"title": "t", "text": "a page"}],
    "prediction": {"type": "content", "content": [{"type": "text", "text": "a file"}]},
    "response_format": {"type": "json_schema", "json_schema": {"name": "a", "description": "d", "schema": SCHEMA}},
    "chat_template": "{{ messages }}", "chat_template_kwargs": {"documents": ["a page"]}, "guided_regex": "a*",
    "web_search_options": {"user_location": {"type": "approximate", "approximate": {"city": "Oslo"}}},
}  # fmt: skip

GATEWAY: dict[str, dict[str, Any]] = {
    "openai": {
        "model": "tiny", "messages": _OPENAI, **_OPTIONS,
        "tools": [
            {"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": SCHEMA}},
            {"type": "custom", "custom": {"name": "run", "description": "Runs.", "format": {
                "type": "grammar", "grammar": {"syntax": "lark", "definition": "start: A"}}}}],
    },
    "responses": {
        "model": "tiny", "instructions": "Be kind.", "input": _RESPONSES, "metadata": {"trace": "t"}, "user": "u",
        "text": {"format": {"type": "json_schema", "name": "a", "description": "d", "schema": SCHEMA}},
        "prompt_cache_key": "k", "safety_identifier": "s", "documents": [{"text": "a page"}],
        "tools": [
            {"type": "function", "name": "look", "description": "Looks.", "parameters": SCHEMA},
            {"type": "custom", "name": "run", "description": "Runs.", "format": {
                "type": "grammar", "syntax": "lark", "definition": "start: A"}}],
    },
    "anthropic": {
        "model": "tiny", "max_tokens": 9, "system": [{"type": "text", "text": "Be kind."}], "messages": _ANTHROPIC,
        "stop_sequences": ["END"], "metadata": {"user_id": "u"}, "documents": [{"text": "a page"}],
        "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}},
        "tools": [{"name": "look", "description": "Looks.", "input_schema": SCHEMA}],
    },
}  # fmt: skip
"""Maps the format of a client of the gateway to a body."""
OPTIONS = _OPTIONS

HISTORIES: dict[str, list[dict[str, Any]]] = {
    "openai": _OPENAI,
    "responses": _RESPONSES,
    "anthropic": _ANTHROPIC,
    "bedrock": [
        {"role": "user", "content": [
            {"text": "Read these."},
            {"image": {"format": "png", "source": {"bytes": "AAAA"}}},
            {"document": {"format": "txt", "name": "a", "source": {"text": "A page."}, "context": "c",
                          "citations": {"enabled": True}}},
            {"document": {"format": "txt", "name": "b", "source": {"bytes": FILE}}},
            {"document": {"format": "md", "name": "c", "source": {"content": [{"text": "A block."}]}}},
            {"searchResult": {"source": "s", "title": "t", "content": [{"text": "found"}]}},
            {"guardContent": {"text": {"text": "g"}}}]},
        {"role": "assistant", "content": [
            {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "c2ln"}}},
            {"reasoningContent": {"redactedContent": "ZW5j"}},
            {"citationsContent": {"content": [{"text": "I look."}], "citations": [
                {"title": "t", "source": "s", "sourceContent": [{"text": "c"}]}]}},
            {"toolUse": {"toolUseId": "c1", "name": "look", "input": {"q": "x"}}}]},
        {"role": "user", "content": [{"toolResult": {"toolUseId": "c1", "status": "error", "content": [
            {"text": "a page"}, {"json": {"page": "text"}},
            {"document": {"format": "txt", "name": "d", "source": {"text": "A page."}}},
            {"searchResult": {"source": "s", "title": "t", "content": [{"text": "found"}]}}]}}]},
    ],
    "gemini": [
        {"role": "user", "parts": [
            {"text": "Read these."},
            {"inlineData": {"mimeType": "text/plain", "data": FILE, "displayName": "a"}},
            {"fileData": {"mimeType": "application/pdf", "fileUri": "https://example.org/a.pdf", "displayName": "b"}}]},
        {"role": "model", "parts": [
            {"text": "Hm.", "thought": True}, {"text": "I look.", "thoughtSignature": "c2ln"},
            {"executableCode": {"language": "PYTHON", "code": "1"}},
            {"codeExecutionResult": {"outcome": "OK", "output": "1"}},
            {"functionCall": {"id": "c1", "name": "look", "args": {"q": "x"}}, "thoughtSignature": "c2ln"}]},
        {"role": "user", "parts": [{"functionResponse": {"id": "c1", "name": "look", "response": {
            "page": "text", "signature": "s", "data": "d"}, "parts": [
                {"inlineData": {"mimeType": "text/plain", "data": FILE, "displayName": "e"}}]}}]},
    ],
    "interactions": [
        {"type": "user_input", "content": [
            {"type": "text", "text": "Read these."}, {"type": "image", "uri": "https://example.org/a.png"},
            {"type": "document", "data": FILE, "mime_type": "text/plain", "name": "n"},
            {"type": "document", "uri": "https://example.org/a.pdf", "mime_type": "application/pdf"}]},
        {"type": "thought", "signature": "c2ln", "summary": [{"type": "text", "text": "Hm."}]},
        {"type": "google_search_call", "id": "g1", "arguments": {"queries": ["q"]}},
        {"type": "google_search_result", "call_id": "g1", "result": [{"title": "t", "url": "https://example.org"}]},
        {"type": "model_output", "content": [{"type": "text", "text": "I look.", "annotations": [
            {"type": "url_citation", "url": "https://example.org", "title": "t"}]}]},
        {"type": "function_call", "id": "c1", "name": "look", "arguments": {"q": "x"}},
        {"type": "function_result", "call_id": "c1", "name": "look", "result": [
            {"type": "text", "text": "a page"}, {"type": "text", "text": "a second page"}]},
        {"type": "user_input", "content": "Thanks."},
    ],
    "cohere": [
        {"role": "user", "content": "Read."},
        {"role": "assistant", "tool_plan": "I look.", "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"q": "x"}'}}]},
        {"role": "tool", "tool_call_id": "c1", "content": [
            {"type": "document", "document": {"id": "d1", "data": {"title": "t", "page": "text"}}}]},
        {"role": "assistant", "content": [{"type": "text", "text": "It says so."}], "citations": [
            {"text": "so", "sources": [{"type": "document", "id": "d1", "document": {"title": "t", "page": "p"}}]}]},
        {"role": "user", "content": "Thanks."},
    ],
    "ollama": [
        {"role": "user", "content": "Read.", "images": ["AAAA"]},
        {"role": "assistant", "content": "I look.", "thinking": "Hm.", "tool_calls": [
            {"function": {"name": "look", "arguments": {"q": "x"}}}]},
        {"role": "tool", "tool_name": "look", "content": "a page"},
        {"role": "user", "content": "Thanks."},
    ],
    "ai_sdk": [
        {"id": "u1", "role": "user", "parts": [
            {"type": "text", "text": "Read."},
            {"type": "file", "mediaType": "text/plain", "filename": "a.txt", "url": TEXT_FILE},
            {"type": "file", "mediaType": "image/png", "filename": "b.png", "url": "https://example.org/b.png"},
            {"type": "file", "mediaType": "application/pdf", "filename": "c", "url": "https://example.org/c.pdf"}]},
        {"id": "a1", "role": "assistant", "parts": [
            {"type": "step-start"}, {"type": "reasoning", "text": "Hm."}, {"type": "text", "text": "I look."},
            {"type": "source-url", "sourceId": "s1", "url": "https://example.org", "title": "t"},
            {"type": "tool-look", "toolCallId": "c1", "state": "output-available", "input": {"q": "x"},
             "output": {"page": "text"}}]},
        {"id": "u2", "role": "user", "parts": [{"type": "text", "text": "Thanks."}]},
    ],
    "ag_ui": [
        {"id": "u1", "role": "user", "name": "ann", "content": [
            {"type": "text", "text": "Read."},
            {"type": "binary", "mimeType": "text/plain", "filename": "a.txt", "data": FILE},
            {"type": "binary", "mimeType": "image/png", "filename": "b.png", "url": "https://example.org/b.png"}]},
        {"id": "a1", "role": "assistant", "name": "bot", "content": "I look.", "toolCalls": [
            {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"q": "x"}'}}]},
        {"id": "t1", "role": "tool", "toolCallId": "c1", "content": "a page"},
        {"id": "u2", "role": "user", "content": "Thanks."},
    ],
}  # fmt: skip
"""Maps the format of a history to messages."""
