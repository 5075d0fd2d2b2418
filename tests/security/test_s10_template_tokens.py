"""S10: no chat template token in a tool's result survives where the result is sent as text.

Results for a model with native calls stay unchanged: its provider separates data from template, and text is no call.
This is defence in depth: a server that reads template tokens in any text must be fixed.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamtools import ToolStream, tool
from streamtools.events import Executed, NativeToolCall, ProviderCompleted
from streamtools.parsing.dialects import DIALECTS
from streamtools.parsing.dialects.neutralizing import neutralize, restore
from tests.support.cases import cases, together
from tests.support.stories import Script, texts

FAMILIES = {
    "ChatML": "<|im_start|> <|im_end|> <|im_sep|> <|endoftext|> <|endofprompt|>",
    "Llama 2": "<s> </s> <unk> <pad> [INST] [/INST] <<SYS>> <</SYS>>",
    "Llama 3": "<|begin_of_text|> <|end_of_text|> <|start_header_id|> <|end_header_id|> <|eot_id|> <|python_tag|>",
    "Llama 4": "<|header_start|> <|header_end|> <|eot|> <|python_start|>",
    "Mistral": "[AVAILABLE_TOOLS] [/AVAILABLE_TOOLS] [TOOL_CALLS] [TOOL_RESULTS] [/TOOL_RESULTS] [SYSTEM_PROMPT]",
    "DeepSeek": "<｜begin▁of▁sentence｜> <｜end▁of▁sentence｜> <｜User｜> <｜Assistant｜> <｜tool▁calls▁begin｜>",
    "DeepSeek V3.2": "<｜DSML｜function_calls> </｜DSML｜function_calls> <|DSML|invoke>",
    "Gemma": "<bos> <eos> <start_of_turn> <end_of_turn>",
    "Gemma 4": "<|turn> <turn|> <|channel> <channel|> <|tool_call> <tool_call|> <|tool_response> <tool_response|>",
    "harmony": "<|start|> <|channel|> <|message|> <|call|> <|return|> <|end|>",
    "Phi, GLM": "<|user|> <|assistant|> <|system|> <|observation|> [gMASK] [sMASK] <sop> <eop>",
    "Kimi": "<|im_user|> <|im_middle|> <|tool_calls_section_begin|> [BOS] [EOS] [EOT] [start_header_id]",
    "Cohere": "<BOS_TOKEN> <EOS_TOKEN> <EOP_TOKEN> <|START_OF_TURN_TOKEN|> <|END_OF_TURN_TOKEN|> <|CHATBOT_TOKEN|>",
    "Granite, InternLM": "<|start_of_role|> <|end_of_role|> <|action_start|> <|plugin|>",
    "EXAONE": "[|system|] [|user|] [|assistant|] [|endofturn|]",
    "Seed, Nemotron, MiniMax": "<seed:bos> <seed:eos> <extra_id_0> <SPECIAL_10> ]~!b[ ]~b] [e~[",
}
"""What begins or ends a turn in the templates of models, or what its tools say."""

TOKENS = [token for written in FAMILIES.values() for token in written.split()]

AROUND = ["<", "<|", "|>", "[", "]", "~", "###:", "<｜", "a", " ", "\n", '"']


def test_no_token_survives() -> None:
    """Holds for any text around it, and for a token inside a token. The change is invisible and can be undone."""
    with cases() as case:
        for token in TOKENS:
            around = (token, token * 3, f"<|{token}|>", f"[|{token}|]", f"a{token}b", f"<{token}>", f"|{token}|")
            for dialect in DIALECTS.values():
                with case(token, dialect.id):
                    for text in around:
                        safe = neutralize(text, [dialect])
                        assert token not in safe
                        assert text == safe.replace("\u2060", "")
                        assert text == restore(safe, [dialect])


@given(st.lists(st.sampled_from([*TOKENS, *AROUND]), max_size=12).map("".join))
def test_no_token_survives_among_others(text: str) -> None:
    """Tokens and pieces of them, in any order."""
    safe = neutralize(text, DIALECTS.values())

    assert [] == [token for token in TOKENS if token in safe]
    assert text == restore(safe, DIALECTS.values())


@pytest.mark.parametrize("neutralizes", [True, False])
@pytest.mark.parametrize("enabled", [None, [], ["tilde_fence"]], ids=["default", "none", "named"])
@pytest.mark.parametrize("flag", [None, True])
@pytest.mark.parametrize("native", [False, True], ids=["text", "native"])
async def test_only_the_interface_gets_tokens(
    native: bool, flag: bool | None, enabled: list[str] | None, neutralizes: bool
) -> None:
    """If text may contain calls, the model gets no token, unless the tool opts out. The interface gets the result."""
    page = "\n".join(TOKENS)

    @tool(neutralize=neutralizes)
    def read() -> str:
        return page

    end = ProviderCompleted(finish_reason="stop")
    made: list[Any] = [NativeToolCall("read", {}, id="n")] if native else texts('~~~tool_call\n{"name":"read"}\n~~~')
    named = enabled if native else ["tilde_fence"]
    async with ToolStream(Script([*made, end]), tools=[read], native_tool_calls=flag, dialects=named) as events:
        shown = [event.result async for event in events if isinstance(event, Executed)]
    sent = events.result.messages()[-1]["content"]

    assert [page] == shown
    is_text = named != [] and not (named is None and flag)
    assert ([] if is_text and neutralizes else TOKENS) == [token for token in TOKENS if token in sent]


@together(
    "text",
    ["Array<string|number>", "a < b | c > d", "[1]", "<b>bold</b>", "x |> f <| y", "[a|b]", "<sample>", "list[int]"],
)
def test_other_text_is_unchanged(text: str) -> None:
    """Text that resembles a template token is common in code."""
    assert text == neutralize(text, [])
