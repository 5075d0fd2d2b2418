"""One history in the format of each provider."""

from __future__ import annotations

from typing import Any

import pytest

from streamtools.calls import ToolCall
from streamtools.history import (
    Assistant,
    CallResult,
    Message,
    ProviderItem,
    Results,
    System,
    TextPart,
    Thought,
    User,
    calls_as_text,
    read_messages,
    write_messages,
)
from streamtools.history.pairing import pair_results
from streamtools.parsing.dialects import DIALECTS, hash_marker, tilde_fence
from tests.support.cases import cases


def call(id: str, name: str, /, signature: str | None = None, **arguments: Any) -> ToolCall:
    return ToolCall(
        id=id, name=name, arguments=arguments, dialect="native", provider_id=id or None, signature=signature
    )


def answer(id: str, name: str, text: str, *, is_error: bool = False, dialect: str = "native") -> CallResult:
    return CallResult(dialect, name, text, id, is_error=is_error)


WEATHER, TIME = call("w", "weather", city="Oslo"), call("t", "time")
HISTORY: list[Message] = [
    System("Be brief."),
    User("How is it in Oslo?"),
    Assistant("Let me see.", (WEATHER, TIME)),
    Results((answer("t", "time", "no clock", is_error=True), answer("w", "weather", '{"sky":"grey"}'))),
    Assistant("Grey."),
    User("Thanks."),
]
SAID: dict[str, list[dict[str, Any]]] = {
    "openai": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "How is it in Oslo?"},
        {
            "role": "assistant",
            "content": "Let me see.",
            "tool_calls": [
                {"id": "w", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Oslo"}'}},
                {"id": "t", "type": "function", "function": {"name": "time", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "w", "content": '{"sky":"grey"}'},
        {"role": "tool", "tool_call_id": "t", "content": "no clock"},
        {"role": "assistant", "content": "Grey."},
        {"role": "user", "content": "Thanks."},
    ],
    "responses": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "How is it in Oslo?"},
        {"role": "assistant", "content": "Let me see."},
        {"type": "function_call", "call_id": "w", "name": "weather", "arguments": '{"city":"Oslo"}'},
        {"type": "function_call", "call_id": "t", "name": "time", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "w", "output": '{"sky":"grey"}'},
        {"type": "function_call_output", "call_id": "t", "output": "no clock"},
        {"role": "assistant", "content": "Grey."},
        {"role": "user", "content": "Thanks."},
    ],
    "anthropic": [
        {"role": "user", "content": [{"type": "text", "text": "How is it in Oslo?"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "Let me see."},
                {"type": "tool_use", "id": "w", "name": "weather", "input": {"city": "Oslo"}},
                {"type": "tool_use", "id": "t", "name": "time", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "w", "content": '{"sky":"grey"}'},
                {"type": "tool_result", "tool_use_id": "t", "content": "no clock", "is_error": True},
            ],
        },
        {"role": "assistant", "content": [{"type": "text", "text": "Grey."}]},
        {"role": "user", "content": [{"type": "text", "text": "Thanks."}]},
    ],
    "gemini": [
        {"role": "user", "parts": [{"text": "How is it in Oslo?"}]},
        {
            "role": "model",
            "parts": [
                {"text": "Let me see."},
                {"functionCall": {"name": "weather", "args": {"city": "Oslo"}, "id": "w"}},
                {"functionCall": {"name": "time", "args": {}, "id": "t"}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"name": "weather", "response": {"sky": "grey"}, "id": "w"}},
                {"functionResponse": {"name": "time", "response": {"error": "no clock"}, "id": "t"}},
            ],
        },
        {"role": "model", "parts": [{"text": "Grey."}]},
        {"role": "user", "parts": [{"text": "Thanks."}]},
    ],
    "ollama": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "How is it in Oslo?"},
        {
            "role": "assistant",
            "content": "Let me see.",
            "tool_calls": [
                {"id": "w", "function": {"name": "weather", "arguments": {"city": "Oslo"}}},
                {"id": "t", "function": {"name": "time", "arguments": {}}},
            ],
        },
        {"role": "tool", "tool_name": "weather", "tool_call_id": "w", "content": '{"sky":"grey"}'},
        {"role": "tool", "tool_name": "time", "tool_call_id": "t", "content": "no clock"},
        {"role": "assistant", "content": "Grey."},
        {"role": "user", "content": "Thanks."},
    ],
}


@pytest.mark.parametrize(("format", "expected"), SAID.items(), ids=SAID)
def test_native_calls_and_results_in_each_format(format: str, expected: list[dict[str, Any]]) -> None:
    """Results are in call order, with errors if the format has them. The messages can be sent to another provider."""
    assert expected == write_messages(HISTORY, format)
    read = read_messages(expected)
    assert SAID["ollama"][1:] == write_messages([each for each in read if not isinstance(each, System)], "ollama")


# Reasoning.

THOUGHTS = (Thought("First.", "s1"), Thought("", "secret", redacted=True))
THEN = Thought("Then.", "s2")
OF_RESPONSES = (Thought("First.", "s1", "r1"), Thought("", "s2", "r2"), Thought("Last.", "s3", "r3"))


def turn_for(format: str, turn: Assistant) -> Any:
    """Return the messages of one turn for a provider, without results."""
    return write_messages([turn], format, unanswered="leave")


def test_anthropic_gets_its_signed_reasoning() -> None:
    """Blocks precede the part that they led to. Other providers' blocks are omitted."""
    parts = (*THOUGHTS, *OF_RESPONSES, "Hi.", WEATHER, THEN, Thought("unsigned"), TIME, THEN)
    blocks = turn_for("anthropic", Assistant(parts=parts))
    assert [
        {"type": "thinking", "thinking": "First.", "signature": "s1"},
        {"type": "redacted_thinking", "data": "secret"},
        {"type": "text", "text": "Hi."},
        {"type": "tool_use", "id": "w", "name": "weather", "input": {"city": "Oslo"}},
        {"type": "thinking", "thinking": "Then.", "signature": "s2"},
        {"type": "tool_use", "id": "t", "name": "time", "input": {}},
    ] == blocks[0]["content"]


def test_responses_gets_its_encrypted_reasoning() -> None:
    """Items precede the part that they led to. Other providers' items are omitted."""
    first, second, last = OF_RESPONSES
    parts = (first, *THOUGHTS, Thought("", None, "r4"), WEATHER, second, TIME, last)
    items = turn_for("responses", Assistant(parts=parts))
    assert [
        {
            "type": "reasoning",
            "id": "r1",
            "summary": [{"type": "summary_text", "text": "First."}],
            "encrypted_content": "s1",
        },
        ("function_call", "w"),
        {"type": "reasoning", "id": "r2", "summary": [], "encrypted_content": "s2"},
        ("function_call", "t"),
    ] == [item if item["type"] == "reasoning" else (item["type"], item["call_id"]) for item in items]


def test_gemini_gets_its_signatures() -> None:
    """They are on the part that they arrived with: a call, or a text, which may be empty."""
    signed = call("w", "weather", signature="of the call")
    extra = ProviderItem("gemini", {"thoughtSignature": "of the text"})
    text = Assistant(parts=(Thought("", "r", "r1"), TextPart("Hi.", extra), TextPart("And."), signed, TIME))
    assert [
        {"text": "Hi.", "thoughtSignature": "of the text"},
        {"text": "And."},
        {"functionCall": {"name": "weather", "args": {}, "id": "w"}, "thoughtSignature": "of the call"},
        {"functionCall": {"name": "time", "args": {}, "id": "t"}},
    ] == turn_for("gemini", text)[0]["parts"]
    alone = turn_for("gemini", Assistant("", (), (Thought("", "s"),)))
    assert [{"role": "model", "parts": [{"text": "", "thoughtSignature": "s"}]}] == alone


def test_openai_gets_no_reasoning_and_ollama_its_text() -> None:
    """OpenAI's format gets only Google's signature of a call."""
    turn = Assistant("Hi.", (call("w", "weather", signature="s"),), (Thought("First.", "s1"), Thought("Then.")))
    (openai,), (ollama,) = turn_for("openai", turn), turn_for("ollama", turn)
    assert {"role", "content", "tool_calls"} == openai.keys()
    assert {"google": {"thought_signature": "s"}} == openai["tool_calls"][0]["extra_content"]
    assert "First.\nThen." == ollama["thinking"]


# Calls without a result.

OPEN: list[Message] = [User("?"), Assistant("", (WEATHER, TIME)), Results((answer("t", "time", "12:00"),))]


def test_calls_before_other_messages_get_a_result() -> None:
    """Unless `unanswered` says that they must be left."""
    for more in ([User("Well?")], [Assistant("Well.")], [System("Well!")]):
        *_, last = pair_results([*OPEN, *more])
        assert more == [last]
        assert 4 == len([*pair_results([*OPEN, *more])])
        *_, results, _ = pair_results([*OPEN, *more])
        assert isinstance(results, Results)
        assert [("w", True), ("t", False)] == [(each.call_id, each.is_error) for each in results.results]
        *_, left, _ = pair_results([*OPEN, *more], "leave")
        assert Results((answer("t", "time", "12:00"),)) == left


@pytest.mark.parametrize(
    ("history", "complaint"),
    [
        ([*OPEN, *OPEN[2:]], "call 't' has two results"),
        ([OPEN[2]], "the result of call 't' must follow the turn"),
        ([*OPEN[:2], Assistant("Well."), OPEN[2]], "the result of call 't' must follow the turn"),
    ],
)
def test_a_result_without_its_call_is_an_error(history: list[Message], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        write_messages(history, "openai")


# Text dialects.

IN_TEXT = ToolCall(id="h", name="weather", arguments={}, dialect="hash_marker", raw='###:{"toolName":"weather"}')


def test_results_of_calls_in_text_are_one_user_message() -> None:
    """It follows the native results, with one block per call in its dialect."""
    turn = Assistant(f"Hi. {IN_TEXT.raw}", (TIME,), in_text=(IN_TEXT,))
    told = (
        answer("h", "weather", "###:{ <|im_start|>", dialect="hash_marker"),
        CallResult("tilde_fence", "raw", "~~~", "i", neutralize=False),
        answer("j", "other one", "plain", dialect="cohere_json"),
        answer("t", "time", ""),
    )
    text = (
        '###result weather: {"result":"#\u2060##:{ <\u2060|im_start|>"}\n~~~tool_result raw\n~~~\n~~~\nother_one: plain'
    )
    dialects = (hash_marker(), tilde_fence())

    *_, result, user = write_messages([turn, Results(told)], "openai", dialects=dialects)
    assert {"role": "tool", "tool_call_id": "t", "content": ""} == result
    assert {"role": "user", "content": text} == user
    *_, both = write_messages([turn, Results(told), User("So?")], "anthropic", dialects=dialects)
    assert [{"type": "tool_result", "tool_use_id": "t"}, {"type": "text", "text": f"{text}\n\nSo?"}] == both["content"]
    for format, last in {"responses": "content", "ollama": "content", "gemini": "parts"}.items():
        held = write_messages([turn, Results(told)], format, dialects=dialects)[-1][last]
        assert (text if last == "content" else [{"text": text}]) == held


def test_calls_in_text_that_did_not_run_get_a_result() -> None:
    """Otherwise a model would invent one."""
    turn = Assistant(IN_TEXT.raw, in_text=(IN_TEXT,))
    assert [turn] == pair_results([turn])
    expected = '###result weather: {"result":"this call has no result; it may not have run"}'
    _, told, _ = write_messages([turn, Assistant("So.")], "openai", dialects=[hash_marker()])
    assert {"role": "user", "content": expected} == told


def test_a_user_message_can_answer_calls_in_text() -> None:
    """A result in the call's dialect answers one call of its tool. Other text answers none."""
    dialect = tilde_fence()
    ids = {"a": "weather", "b": "weather", "c": "weather_now"}
    pending = [ToolCall(id=id, name=name, arguments={}, dialect=dialect.id) for id, name in ids.items()]
    turn = Assistant("~~~tool_call", in_text=(*pending, ToolCall(id="d", name="time", arguments={}, dialect="other")))
    first, second, now = (dialect.write_result(name, "{}") for name in ids.values())
    done = Results((answer("a", "weather", "1", dialect=dialect.id),))
    cases: list[tuple[list[Message], list[str]]] = [
        ([User(first)], ["weather", "weather_now", "time"]),
        ([User(f"{first}\n{second}\n{now}")], ["time"]),
        (
            [User([{"type": "text", "text": now}, {"type": "image_url", "image_url": {"url": "u"}}])],
            ["weather", "weather", "time"],
        ),
        ([User(now), User(first), User("And?")], ["weather", "time"]),
        ([done, User(first)], ["weather_now", "time"]),
        ([User("weather: 22")], ["weather", "weather", "weather_now", "time"]),
        ([Assistant("So."), User(first)], ["weather", "weather", "weather_now", "time"]),
    ]
    for answers, not_run in cases:
        told = str(write_messages([turn, *answers], "openai", dialects=[dialect]))
        assert len(not_run) == told.count("this call has no result; it may not have run"), answers


def test_results_are_recognized_in_every_dialect() -> None:
    with cases() as case:
        for dialect in DIALECTS.values():
            with case(dialect.id):
                pending = ToolCall(id="a", name="weather", arguments={}, dialect=dialect.id)
                for result in ("mild", '{"celsius":22}', "[1]", "3", "null", ""):
                    written = dialect.write_result("weather", result)
                    call = Assistant("call", in_text=(pending,))
                    messages = write_messages([call, User(written)], "openai", dialects=[dialect])
                    assert {"role": "user", "content": written} == messages[1]


@pytest.mark.parametrize("format", SAID)
def test_a_user_message_is_joined_to_results_in_text(format: str) -> None:
    """Many chat templates refuse two consecutive user messages."""
    turn = Assistant(IN_TEXT.raw, in_text=(IN_TEXT,))
    told = Results((answer("h", "weather", "{}", dialect="hash_marker"),))
    block = "###result weather: {}"
    so = {"type": "text", "text": "So?"}
    joined: list[tuple[Any, Any]] = [
        ("So?", f"{block}\n\nSo?"),
        ("", block),
        ([so], [{"type": "text", "text": block}, so]),
    ]
    for content, expected in joined:
        written = write_messages([turn, told, User(content)], format, dialects=[hash_marker()])
        assert written == write_messages([turn, User(expected)], format, unanswered="leave")


def test_calls_as_text_use_a_dialect_or_plain_words() -> None:
    dialect = tilde_fence()
    (_, _, turn, results, *_) = in_dialect = calls_as_text(HISTORY, dialect)
    assert isinstance(turn, Assistant)
    assert ((), ["weather", "time"]) == (turn.calls, [each.name for each in turn.in_text])
    assert all(each.raw in turn.text for each in turn.in_text)
    assert isinstance(results, Results)
    assert "~~~tool_result time\nno clock\n~~~\n~~~tool_result weather\n" in str(
        write_messages(in_dialect, "openai", dialects=[dialect])[3]["content"]
    )
    plainly = [each["content"] for each in write_messages(calls_as_text(HISTORY), "openai")[2:4]]
    assert [
        'Let me see.\n(called weather with {"city":"Oslo"})\n(called time with {})',
        'time: no clock\nweather: {"sky":"grey"}',
    ] == plainly
    bare, *_ = calls_as_text([Assistant("", (TIME,))])
    assert Assistant("(called time with {})") == bare


# Messages that providers refuse.


def test_anthropic_gets_valid_and_unique_ids() -> None:
    """Results keep the ids of their calls."""
    first, second = call("functions.f:0", "f"), call("functions.f:0", "f")
    history: list[Message] = [
        Assistant("", (first,)),
        Results((answer(first.id, "f", "1"),)),
        Assistant("", (second, call("", "g"))),
        Results((answer(second.id, "f", "2"), answer("", "g", "", is_error=True))),
    ]
    written = [block for message in write_messages(history, "anthropic") for block in message["content"]]
    assert ["functions_f_0", "functions_f_0_2", "call"] == [
        each["id"] for each in written if each["type"] == "tool_use"
    ]
    results = [(each["tool_use_id"], each["content"]) for each in written if each["type"] == "tool_result"]
    assert [("functions_f_0", "1"), ("functions_f_0_2", "2"), ("call", "the call failed")] == results


def test_roles_alternate_for_anthropic_and_gemini() -> None:
    """Blank texts and trailing white space are omitted."""
    history: list[Message] = [User("a"), User(" "), User("b"), Assistant("c"), Assistant(""), Assistant("d \n")]
    assert [
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "c"}, {"type": "text", "text": "d"}]},
    ] == write_messages(history, "anthropic")
    assert [
        {"role": "user", "parts": [{"text": "a"}, {"text": " "}, {"text": "b"}]},
        {"role": "model", "parts": [{"text": "c"}, {"text": "d \n"}]},
    ] == write_messages(history, "gemini")
    assert [] == write_messages([], "anthropic")
    called = turn_for("anthropic", Assistant("Hi. ", (TIME,)))
    assert "Hi. " == called[0]["content"][0]["text"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[1,2]", {"result": [1, 2]}),
        ("3 rows", {"result": "3 rows"}),
        ("", {"result": ""}),
        ("NaN", {"result": "NaN"}),
        ('"\\ud83d"', {"result": '"\\ud83d"'}),
        ('{"a":{"b":null}}', {"a": {"b": None}}),
    ],
)
def test_gemini_gets_each_result_as_an_object(text: str, expected: dict[str, Any]) -> None:
    """Other JSON is wrapped in an object. Invalid JSON stays text."""
    bare = ToolCall(id="made", name="f", arguments={}, dialect="native")
    *_, last = write_messages([Assistant("", (bare,)), Results((answer("made", "f", text),))], "gemini")
    assert [{"functionResponse": {"name": "f", "response": expected}}] == last["parts"]


def test_content_that_json_cannot_express_is_replaced() -> None:
    """A lone surrogate becomes U+FFFD, and an infinite number null, at any depth."""
    odd = call("x", "f", city=["\ud83d"], far=float("inf"))
    turn = Assistant("\ud83d\ude00\ud83d", (odd,))
    expected = {"city": ["\ufffd"], "far": None}
    assert "\U0001f600\ufffd" == turn_for("openai", turn)[0]["content"]
    assert '{"city":["\ufffd"],"far":null}' == turn_for("openai", turn)[0]["tool_calls"][0]["function"]["arguments"]
    assert expected == turn_for("anthropic", turn)[0]["content"][-1]["input"]
    assert expected == turn_for("gemini", turn)[0]["parts"][-1]["functionCall"]["args"]
