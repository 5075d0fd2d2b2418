"""Requests for the upstream: teaching, instructions, neutralized text and refusals."""

from __future__ import annotations

import json
from typing import Any

import pytest
from structlog.testing import capture_logs

from streamtools import rules
from streamtools.gateway import Exchange, Rewrite
from streamtools.parsing.dialects import DIALECTS
from tests.support.gateway import CLIENTS, SCHEMA, answer, begin, collect, request, stream, whole

CALL = '~~~tool_call\n{"name":"get_weather","arguments":{"city":"Zürich"}}\n~~~'
FOLLOW_UPS: dict[str, Any] = {
    "openai": [
        {"role": "assistant", "content": "I look.", "tool_calls": [
            {"id": "call_text_1", "type": "function",
             "function": {"name": "get_weather", "arguments": '{"city": "Zürich"}'}}]},
        {"role": "tool", "tool_call_id": "call_text_1", "content": "RESULT"},
    ],
    "responses": [
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
        {"type": "message", "id": "msg_1", "role": "assistant",
         "content": [{"type": "output_text", "text": "I look."}]},
        {"type": "function_call", "call_id": "call_text_1", "name": "get_weather", "arguments": '{"city": "Zürich"}'},
        {"type": "function_call_output", "call_id": "call_text_1", "output": "RESULT"},
    ],
    "anthropic": [
        {"role": "assistant", "content": [
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "call_text_1", "name": "get_weather", "input": {"city": "Zürich"}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call_text_1", "content": "RESULT"}]},
    ],
}  # fmt: skip


def sent(exchange: Exchange) -> Any:
    """Return the body for the upstream."""
    assert exchange.request is not None, exchange.close()
    return json.loads(exchange.request.body)


def follow_up(client: str, result: str = "Sunny.", **more: Any) -> Any:
    """Return the request that continues with the result of a call."""
    body = request(client, **more)
    key = "input" if client == "responses" else "messages"
    body[key] = body[key] + json.loads(json.dumps(FOLLOW_UPS[client]).replace("RESULT", result))
    return body


def status(exchange: Exchange) -> int | None:
    """Return the status for the client, or None before it is certain."""
    return exchange.head.status if exchange.head else None


def refusal(client: str, body: Any, **options: Any) -> tuple[int, str]:
    """Return the status and the message for a refused request."""
    exchange = begin(client, body, **options)
    assert exchange.request is None
    assert exchange.head is not None
    return exchange.head.status, json.loads(exchange.close())["error"]["message"]


def test_each_request_begins_like_the_one_before() -> None:
    """The messages of earlier requests are equal byte by byte, so the upstream can use its cache."""
    for client in CLIENTS:
        first = sent(begin(client, request(client)))
        assert "tools" not in first
        assert "get_weather" in first["messages"][0]["content"]
        second = sent(begin(client, follow_up(client)))
        before = json.dumps(first["messages"])
        assert json.dumps(second["messages"])[: len(before) - 1] == before[:-1], client
        said, result = second["messages"][-2:]
        assert said == {"role": "assistant", "content": f"I look.\n{CALL}"}, client
        assert result == {"role": "user", "content": "~~~tool_result get_weather\nSunny.\n~~~"}, client


def test_instructions_about_calls_come_last() -> None:
    named: dict[str, Any] = {
        "openai": {"type": "function", "function": {"name": "get_time"}},
        "responses": {"type": "function", "name": "get_time"},
        "anthropic": {"type": "tool", "name": "get_time", "disable_parallel_tool_use": True},
    }
    single: dict[str, Any] = {
        "openai": {"parallel_tool_calls": False},
        "responses": {"parallel_tool_calls": False},
        "anthropic": {},
    }
    for client in CLIENTS:
        messages = sent(begin(client, request(client, tool_choice=named[client], **single[client])))["messages"]
        told = messages[-1]["content"].removeprefix("What is it like in Zürich?\n\n")
        form = "in the form that was described. Make one call at most."
        assert told == f"Your answer has to be a call of the tool get_time, {form}", client
    only = [{"type": "function", "function": {"name": "get_time"}}]
    choice: dict[str, Any] = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": only}}
    messages = sent(begin("openai", request("openai", tool_choice=choice)))["messages"]
    assert "get_weather" in messages[0]["content"]
    assert "In your answer, use only these tools: get_time." in messages[-1]["content"]
    choice = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "get_time"}]}
    assert "get_time." in sent(begin("responses", request("responses", tool_choice=choice)))["messages"][-1]["content"]
    messages = sent(begin("openai", request("openai", tool_choice="none")))["messages"]
    assert [each["role"] for each in messages] == ["user"]


def test_options_are_renamed_for_the_upstream() -> None:
    body = sent(begin("openai", request("openai", temperature=0, stop=["X"], top_k=3, response_format={"type": "x"})))
    assert (body["temperature"], body["stop"], body["top_k"], body["response_format"]) == (0, ["X"], 3, {"type": "x"})
    assert body["stream_options"] == {"include_usage": True}
    text = {"format": {"type": "json_schema", "name": "a", "schema": SCHEMA, "strict": True}}
    more: dict[str, Any] = {
        "max_output_tokens": 9,
        "reasoning": {"effort": "low"},
        "text": text,
        "instructions": "Be kind.",
    }
    body = sent(begin("responses", request("responses", **more)))
    assert (body["max_tokens"], body["reasoning_effort"]) == (9, "low")
    assert body["response_format"]["json_schema"] == {"name": "a", "schema": SCHEMA, "strict": True}
    assert body["messages"][0]["content"].startswith("Be kind.")
    form = {"format": {"type": "json_schema", "schema": SCHEMA}}
    body = sent(begin("anthropic", request("anthropic", system="S", stop_sequences=["X"], output_config=form)))
    assert (body["stop"], body["max_tokens"]) == (["X"], 100)
    assert body["response_format"]["json_schema"]["schema"] == SCHEMA


def test_the_upstream_may_call_natively() -> None:
    """Chat completions are forwarded unchanged, other formats are converted. Calls in text are found in both cases."""
    body = json.dumps(request("openai")).encode()
    exchange = begin("openai", body, mode="native")
    assert exchange.request is not None
    assert exchange.request.body == body
    told = b"data: whatever\n\n"
    assert answer(exchange, told) == told
    for odd in (b"[]", json.dumps(request("openai") | {"functions": [{}]}).encode()):
        passed = begin("openai", odd, mode="auto").request
        assert passed is not None
        assert passed.body == odd
    for client in CLIENTS[1:]:
        written = sent(begin(client, request(client), mode="native"))
        assert [each["function"]["name"] for each in written["tools"]] == ["get_weather", "get_time"], client
        assert [each["role"] for each in written["messages"]] == ["user"], client
    leaked = "So.\n<tool_call>\n" + json.dumps({"name": "get_time", "arguments": {"city": "x"}}) + "\n</tool_call>"
    for client in CLIENTS:
        for options in ({"mode": "native", "dialects": ["hermes_json"]}, {"mode": "auto"}):
            asked = request(client, model="Qwen/Qwen3-8B")
            seen = collect(client, answer(begin(client, asked, **options), stream([leaked])))
            assert [name for _, name, _ in seen.calls] == ["get_time"], (client, options)


def test_auto_mode_warns_once_of_an_unknown_model() -> None:
    """Calls in its text reach the client as text."""
    with capture_logs() as logs:
        for model in ("house-model", "house-model", "Qwen/Qwen3-8B"):
            begin("openai", request("openai", model=model), mode="auto")
    assert ["house-model"] == [each["model"] for each in logs if each["event"] == "model_unknown"]


def test_watch_gets_the_events() -> None:
    seen: list[Any] = []
    exchange = Rewrite().begin("openai", json.dumps(request("openai")).encode(), watch=seen.append)
    answer(exchange, stream(["So.\n", CALL, '\n\n`###:{"` ']))
    assert [each.call.dialect for each in seen if each.type == "call"] == ["tilde_fence"]
    assert [each.type for each in seen[-2:]] == ["step-end", "done"]
    assert "text" not in {each.type for each in seen}


def test_custom_tools_hold_a_text() -> None:
    text = '~~~tool_call\n{"name": "run", "arguments": {"input": "print(\\"é\\")"}}\n~~~'
    tool: dict[str, Any] = {"type": "custom", "custom": {"name": "run", "description": "Run it."}}
    for streamed in (True, False):
        asked = request("openai", streamed=streamed) | {"tools": [tool]}
        body = answer(begin("openai", asked), stream([text]) if streamed else whole(text))
        assert b'"custom":{"name":"run","input":"print(\\"\xc3\xa9\\")"}' in body
    asked = request("responses", tools=[])
    asked["tools"] = [{"type": "custom", "name": "run", "format": {"type": "grammar", "definition": "G"}}]
    exchange = begin("responses", asked)
    assert "in this form" in sent(exchange)["messages"][0]["content"]
    body = answer(exchange, stream([text]))
    (item,) = json.loads(body.rpartition(b"data: ")[2])["response"]["output"]
    assert (item["type"], item["input"]) == ("custom_tool_call", 'print("é")')
    asked["input"] = [{"role": "user", "content": "?"}, item,
                      {"type": "custom_tool_call_output", "call_id": item["call_id"], "output": "1"}]  # fmt: skip
    assert "~~~tool_result run\n1" in sent(begin("responses", asked))["messages"][-1]["content"]


def test_several_choices_are_refused_where_the_answer_is_rewritten() -> None:
    several = request("openai", n=2)
    by_rules: dict[str, Any] = {"mode": "native", "text_rules": [rules.email()]}
    rewriting: list[dict[str, Any]] = [{}, {"mode": "native", "dialects": ["hermes_json"]}, by_rules]
    for options in rewriting:
        told = refusal("openai", several, **options)
        assert told == (400, "`n` must be 1 if answers are rewritten, got 2. Send several requests."), options
    assert sent(begin("openai", several, mode="native")) == several


REFUSED: dict[str, tuple[str, Any, str]] = {
    "no JSON": ("openai", b"{", "not JSON"),
    "a model that is no text": ("openai", {"model": 5}, "must be a string"),
    "no messages": ("openai", {"messages": []}, "`messages` must be a list"),
    "no max_tokens": ("anthropic", {"messages": [{"role": "user", "content": ""}]}, "max_tokens"),
    "functions": ("openai", {"functions": [{}]}, "`tools`"),
    "several responses": ("responses", request("responses", n=2), "several requests"),
    "log probabilities": ("responses", request("responses", top_logprobs=3), "have no log prob"),
    "log probabilities inside": (
        "responses", request("responses", include=["message.output_text.logprobs"]), "have no log prob"),
    "a server of tools": ("anthropic", {"max_tokens": 1, "mcp_servers": [{"type": "url"}]}, "Declare a function tool"),
    "previous_response_id": ("responses", {"previous_response_id": "resp_1"}, "in `input`"),
    "background": ("responses", {"background": True}, "Leave it out"),
    "a hosted tool": ("responses", {"tools": [{"type": "web_search"}]}, "Declare a function"),
    "a tool without a name": ("openai", {"tools": [{"type": "function", "function": {}}]}, "has no name"),
    "a choice of no tool": ("openai", {"tool_choice": "fly"}, "but the tools are"),
    "a choice without tools": ("openai", {"tool_choice": "required"}, "there are no tools"),
    "a name that none may have": ("openai", request("openai", tools=["a b"]), "is not a valid tool name"),
    "a result without its call": (
        "openai", {"messages": [{"role": "tool", "tool_call_id": "x", "content": ""}]}, "only tool results"),
}  # fmt: skip


@pytest.mark.parametrize("streamed", [True, False])
def test_dropped_options_are_logged(streamed: bool) -> None:
    """Unknown options are sent to the upstream. Options that the upstream cannot express are logged once."""
    more: dict[str, Any] = {
        "n": 1,
        "min_p": 0.1,
        "chat_template_kwargs": {"enable_thinking": False},
        "stop": ["X"],
        "logprobs": False,
    }
    own: dict[str, Any] = {
        "openai": {"stream_options": {"continuous_usage_stats": True}},
        "responses": {
            "text": {"verbosity": "low"},
            "truncation": "auto",
            "top_logprobs": 0,
            "max_tokens": 9,
            "max_tool_calls": 3,
        },
        "anthropic": {
            "metadata": {"user_id": "u"},
            "output_config": {"effort": "low"},
            "thinking": {"type": "adaptive"},
        },
    }
    with capture_logs() as logs:
        rewrite = Rewrite()
        written = {}
        for client in (*CLIENTS, *CLIENTS):
            body = request(client, streamed=streamed, **more, **own[client])
            written[client] = sent(rewrite.begin(client, json.dumps(body).encode()))  # type: ignore[arg-type]
    for client in CLIENTS:
        passed = {name: written[client].get(name) for name in ("min_p", "chat_template_kwargs", "stop")}
        assert passed == {name: more[name] for name in passed}, client
    assert written["openai"].get("stream_options") == (own["openai"]["stream_options"] if streamed else None)
    assert (written["responses"]["verbosity"], written["responses"]["max_tokens"]) == ("low", 9)
    assert (written["anthropic"]["user"], written["anthropic"]["reasoning_effort"]) == ("u", "low")
    told = [(each["client"], each["option"]) for each in logs if each["event"] == "option_dropped"]
    assert told == [("responses", "truncation"), ("responses", "max_tool_calls"), ("anthropic", "thinking")]


def test_refusals_say_what_to_do() -> None:
    for name, (client, body, says) in REFUSED.items():
        code, message = refusal(client, body)
        assert code == 400, name
        assert says in message, name


def test_upstream_errors_in_the_form_of_the_client() -> None:
    busy = json.dumps({"error": {"message": "Slow down.", "type": "x"}}).encode()
    for client in CLIENTS:
        for streamed in (True, False):
            exchange = begin(client, request(client, streamed=streamed))
            assert exchange.request is not None
            exchange.begin(429, [("content-type", "application/json"), ("retry-after", "7"), ("content-length", "9")])
            assert status(exchange) is None
            body = json.loads(exchange.feed(busy) + exchange.close())
            assert exchange.head is not None
            assert (exchange.head.status, dict(exchange.head.headers)["retry-after"]) == (429, "7")
            assert "content-length" not in dict(exchange.head.headers)
            assert body["error"]["message"] == "Slow down."
            assert (body.get("type") == "error") is (client == "anthropic")
            for told in (busy, b"<html>"):
                exchange = begin(client, request(client, streamed=streamed))
                seen = collect(client, answer(exchange, told))
                assert seen.error, (client, streamed, told)
            exchange = begin(client, request(client, streamed=streamed))
            answer(exchange, b"<html>", status=503)
            assert exchange.head is not None
            assert exchange.head.status == 503
        seen = collect(client, answer(begin(client, request(client)), stream(["So."], None, done=False), cause="reset"))
        assert (seen.text, seen.error) == ("So.", "the connection to the provider was lost"), client


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("kind", ["text/event-stream; charset=utf-8", "application/json", ""])
def test_an_unrequested_stream_is_read(client: str, kind: str) -> None:
    """Some servers always stream, and some of them declare another content type."""
    told = stream(["So.\n", CALL])
    exchange = begin(client, request(client, streamed=False))
    exchange.begin(200, [("content-type", kind)] if kind else [])
    sent_first = b"".join(exchange.feed(told[at : at + 9]) for at in range(0, len(told), 9))
    body = exchange.close()
    assert (sent_first, status(exchange), exchange.head and dict(exchange.head.headers)["content-type"]) == (
        b"", 200, "application/json")  # fmt: skip
    expected = answer(begin(client, request(client, streamed=False)), whole(f"So.\n{CALL}"))
    given, same = (json.loads(each) | {"created": 0, "created_at": 0} for each in (body, expected))
    assert given == same


@pytest.mark.parametrize(
    "options",
    [
        *({"mode": "x"}, {"mode": {"gpt": "x"}}, {"mode": 5}, {"api": "x"}, {"on_malformed": "x"}),
        *({"dialects": ["x"]}, {"dialects": ["deepseek_v3"]}, {"dialects": ()}),
    ],
)
def test_invalid_values(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"x|such as 'tilde_fence' first"):
        begin("openai", request("openai"), **options)


def test_a_mode_for_each_model() -> None:
    modes: Any = {"gemma": "text", "qwen3*": "auto", "*": "native"}
    taught = []
    for model in ("google/Gemma-3-270m", "qwen3-8b", "my-qwen3-8b", "gpt-5"):
        body = request("responses", model=model)
        taught.append("tools" not in sent(begin("responses", body, mode=modes)))
    assert taught == [True, False, False, False]
    assert "tools" not in sent(begin("openai", request("openai", model="x"), mode={"gpt": "native"}))  # none fits
    exchange = begin("openai", request("openai", model="gpt-5") | {"functions": [{}]}, mode=modes)
    assert sent(exchange)["functions"] == [{}]  # it is for the upstream to say
    assert refusal("openai", request("openai", model="gemma") | {"functions": [{}]}, mode=modes)[0] == 400
    assert refusal("openai", b"{", mode=modes | {"*": "text"})[0] == 400
    untaught: Any = {"gpt": "native", "*": "auto"}
    begin("openai", request("openai"), mode=untaught, dialects=["deepseek_v3"])
    with pytest.raises(ValueError, match="such as 'tilde_fence' first"):
        begin("openai", request("openai"), mode={"gpt": "native"}, dialects=["deepseek_v3"])


# Models that answer in another dialect than the taught one.


@pytest.mark.parametrize(
    ("client", "used"),
    [
        pytest.param(client, used, marks=[pytest.mark.deep] * ((number + at) % 3 > 0))
        for number, used in enumerate(sorted(DIALECTS))
        for at, client in enumerate(CLIENTS)
    ],
)
def test_results_have_the_form_of_the_dialect_that_the_model_uses(client: str, used: str) -> None:
    """The log has one warning. Other models still get the taught dialect."""
    taught = "hash_marker" if used == "tilde_fence" else "tilde_fence"
    rewrite = Rewrite(dialects=[taught, used], new_id=lambda: "call_text_1")
    dialect = DIALECTS[used]
    made = dialect.write_call("get_weather", {"city": "Zürich"})

    def written(model: str) -> str:
        exchange = rewrite.begin(client, json.dumps(follow_up(client, model=model)).encode())  # type: ignore[arg-type]
        return "".join(str(message["content"]) for message in sent(exchange)["messages"][1:])

    with capture_logs() as logs:
        before = written("m")
        for _ in range(2):
            exchange = rewrite.begin(client, json.dumps(request(client, model="m")).encode())  # type: ignore[arg-type]
            assert collect(client, answer(exchange, stream([made]))).calls
        after = written("m")
    warnings = [each for each in logs if each["event"] == "other_dialect_used"]
    assert [(taught, used)] == [(each["taught"], each["used"]) for each in warnings]
    assert f"dialects=['{used}']" in warnings[0]["advice"]
    assert DIALECTS[taught].write_result("get_weather", "Sunny.") in before
    assert before == written("another")
    assert dialect.write_result("get_weather", "Sunny.") in after
    assert made in after


def test_a_model_that_uses_the_taught_dialect_causes_no_warning() -> None:
    rewrite = Rewrite(dialects=["tilde_fence", "hermes_json"])
    with capture_logs() as logs:
        for made in (CALL, '<tool_call>{"name": "get_weather", "arguments": {"city": "Zürich"}}</tool_call>', CALL):
            answer(rewrite.begin("openai", json.dumps(request("openai")).encode()), stream([made]))
    assert ["other_dialect_used"] == [each["event"] for each in logs]
    exchange = rewrite.begin("openai", json.dumps(follow_up("openai")).encode())
    assert CALL in sent(exchange)["messages"][-2]["content"]
