"""The dialects that put a name before JSON, and a few that are JSON after special tokens."""

from __future__ import annotations

from tests.families.base import (
    AFTER_WRAPPER,
    BLANKS,
    DECLARED,
    PROSE,
    SPACES,
    Either,
    Family,
    Marker,
    Run,
    Tag,
    or_wrapped,
)

NAME = Run(' \t\r\n<>{}[]"`', 1, 96, others=True)
WORD_FIRST = Run(' \t\r\n<>{}[]"`' + PROSE, 1, 1, others=True), Run(' \t\r\n<>{}[]"`', 0, 95, others=True)
GAP = Run(" \t\r\n", 0, 4)
LINE_END = Either(("\n", "\r\n"))

_MISTRAL = (
    "[TOOL_CALLS]", "[TOOL_CALLS] ", "[TOOL_CALLS", "[TOOL", "[/TOOL_CALLS]", "[/TOOL_", "\n[TOOL_CALLS]\n",
    "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_RESULTS]x[/TOOL_RESULTS]", "[TOOL_RESULTS",
)  # fmt: skip


def _deepseek(bar: str) -> tuple[str, ...]:
    texts = (
        "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁begin", "<｜tool▁calls▁end｜>", "<｜tool▁calls▁e", "<｜",
        "<｜tool▁call▁begin｜>", "<｜tool▁call▁begin｜>f", "<｜tool▁call▁end｜>", "<｜tool▁call▁en", "<｜tool▁sep｜>",
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>", "<｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n",
        "<｜tool▁calls▁begin｜> <｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{",
        "<｜tool▁call▁begin｜>f<｜tool▁sep｜>{}", "<｜tool▁call▁begin｜>f<｜tool▁sep｜><｜tool▁call▁end｜>",
        "<｜tool▁call▁begin｜>f{}<｜tool▁call▁end｜>", "<｜tool▁call▁begin｜>f<｜tool▁sep｜>null<｜tool▁call▁end｜>",
        "<｜tool▁call▁begin｜>f<｜tool▁sep｜>{}<｜tool▁call▁end｜>", "<｜tool▁calls▁begin｜> <｜tool▁calls▁end｜>",
        "<｜tool▁call▁begin｜>f<｜tool▁sep｜>[1]<｜tool▁call▁end｜>", "\n```<｜tool▁call▁end｜>",
        "<｜tool▁outputs▁begin｜><｜tool▁output▁begin｜>", "<｜tool▁output▁begin｜>x<｜tool▁output▁end｜>",
        "<｜tool▁calls▁begin｜>f<｜tool▁sep｜>{", "<｜tool▁calls▁begin｜>function<｜tool▁sep｜>f\n",
        "<｜tool▁outputs▁end｜>", "<｜end▁of▁sentence｜>",
    )  # fmt: skip
    return tuple(text.replace("｜", bar) for text in texts)


_DEEPSEEK_FAULTS = (
    '<｜tool▁call▁begin｜>f<｜tool▁sep｜>{"a":1,"a":2}<｜tool▁call▁end｜>',
    '<｜tool▁call▁begin｜>f<｜tool▁sep｜>{"a":NaN}<｜tool▁call▁end｜>',
    '<｜tool▁call▁begin｜>f<｜tool▁sep｜>{"a":1e999}<｜tool▁call▁end｜>',
    '<｜tool▁call▁begin｜>f<｜tool▁sep｜>"[1]"<｜tool▁call▁end｜>',
    "<｜tool▁call▁begin｜>f{}<｜tool▁call▁end｜>",
    '<｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n{"a":1,"a":2}<｜tool▁call▁end｜>',
    '<｜tool▁call▁begin｜>function<｜tool▁sep｜>f{"a":"\\ud83d"}<｜tool▁call▁end｜>',
    "<｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n[1]<｜tool▁call▁end｜>",
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{}<｜tool▁call▁end｜>x<｜tool▁calls▁end｜>",
)
"""Malformed calls."""


def _deepseek_markers(bar: str, ahead: tuple[str | Run | Either, ...]) -> tuple[Marker, ...]:
    calls, call = f"<{bar}tool▁calls▁begin{bar}>", f"<{bar}tool▁call▁begin{bar}>"
    begun = Marker((call, *ahead))
    return Marker((calls, GAP, call, *ahead)), Marker((calls, *ahead)), *or_wrapped((calls,), begun)


_DEEPSEEK_TAGS = tuple(
    Tag(parts)
    for bar in "｜|"
    for parts in (
        (f"<{bar}tool▁calls▁end{bar}>",),
        (f"<{bar}tool▁calls▁begin{bar}>", GAP, f"<{bar}tool▁calls▁end{bar}>"),
        (f"<{bar}end▁of▁sentence{bar}>",),
    )
)

_INKLING_ENDS = ("<|end_message|>", "<|content_model_end_sampling|>")
_PLAMO, _PLAMO_ALL, _PLAMO_NAME = (f"<|plamo:begin_tool_{each}:plamo|>" for each in ("request", "requests", "name"))
_PLAMO_ARGS = "<|plamo:end_tool_name:plamo|><|plamo:begin_tool_arguments:plamo|><|plamo:constrain|>json<|plamo:msg|>"
_PLAMO_END = "<|plamo:end_tool_arguments:plamo|><|plamo:end_tool_request:plamo|>"
_SOLAR, _SOLAR_ARGS, _SOLAR_END = (f"<|tool_call:{each}|>" for each in ("begin|>x<|tool_call:name", "args", "end"))
_SOLAR_ENDS = ("<|end|>", "<|calls|>", "<|flush|>")
_SECTION = ("<|tool_call", Either(("s_", "_")), "section_begin|>")
_END_OF_SECTION = ("<|tool_call", Either(("s_", "_")), "section_end|>")

FAMILY = Family(
    markup={
        "mistral_list": (
            *_MISTRAL, "[TOOL_CALLS][", "[TOOL_CALLS] [ {", "[TOOL_CALLS][]", "[TOOL_CALLS]{", '[TOOL_CALLS] {"name"',
            '[TOOL_CALLS][{"name":"f","id":"123456789"},{"name":"f"}]', '[TOOL_CALLS] [{"name":"f"}][/TOOL_CALLS]',
        ),
        "mistral_args": (
            *_MISTRAL, "[TOOL_CALLS]f[ARGS]", "[TOOL_CALLS]f[ARGS]{", "[TOOL_CALLS]f{", "[TOOL_CALLS]f", "[ARGS]",
            "[TOOL_CALLS]f[CALL_ID]123456789[ARGS]{}", "[TOOL_CALLS]f[CALL_ID]", "[CALL_ID]",
            "[TOOL_CALLS] f [ARGS] {}",
            "[TOOL_CALLS]f[ARGS]{}[TOOL_CALLS]f[ARGS]{}", '[TOOL_CALLS]f[ARGS]"{}"', "[TOOL_CALLS]f[AR",
            "[TOOL_CALLS]f[",
        ),
        "deepseek_v3": (*_deepseek("｜"), *_deepseek("|")[:9], *_DEEPSEEK_FAULTS),
        "deepseek_v31": (*_deepseek("｜"), *_deepseek("|")[:9], *_DEEPSEEK_FAULTS),
        "kimi_k2": (
            "<|tool_calls_section_begin|>", "<|tool_call_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call",
            "<|tool_call_section_end|>", "<|tool_call_begin|>", "<|tool_call_begin|>functions.f:0",
            "<|tool_call_argument_begin|>", "<|tool_call_end|>", "<|tool_calls_section_begin|> <|tool_call_begin|>",
            "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}<|tool_call_end|>", "functions.f:0", "<|",
            "<|tool_call_begin|>f<|tool_call_argument_begin|>{}<|tool_call_end|>", "<|tool_calls_section_en",
            "<|tool_call_begin|>call_1<|tool_call_argument_begin|>{}<|tool_call_end|>", "<|tool_call_en",
            "<|tool_call_begin|>f:1<|tool_call_argument_begin|><|tool_call_end|>",
            "<|tool_call_begin|>f:1<|tool_call_ar",
            "<|tool_calls_section_begin|>\n<|tool_calls_section_end|>", "## Return of functions.f:0\n",
        ),
        "plamo3": (
            _PLAMO, _PLAMO_ALL, _PLAMO_ALL + _PLAMO, _PLAMO_NAME, f"{_PLAMO}{_PLAMO_NAME}f", _PLAMO_ARGS, _PLAMO_END,
            f"{_PLAMO_ALL}{_PLAMO}{_PLAMO_NAME}f{_PLAMO_ARGS}{{", "<|plamo:", _PLAMO_END[:20], _PLAMO_ARGS[:30],
            f"{_PLAMO}{_PLAMO_NAME}f{_PLAMO_ARGS}{{}}{_PLAMO_END}", "<|plamo:end_tool_requests:plamo|>",
            f"{_PLAMO}{_PLAMO_NAME}f{_PLAMO_ARGS}{_PLAMO_END}", "<|plamo:begin_think:plamo|>", "<|plamo:tag|>",
            "<|plamo:end_think:plamo|>", f"{_PLAMO}{_PLAMO_NAME}f{_PLAMO_ARGS}[1]{_PLAMO_END}",
            f'{_PLAMO}{_PLAMO_NAME}f{_PLAMO_ARGS}{{"a":1,"a":2}}{_PLAMO_END}',
            f"{_PLAMO_ALL} {_PLAMO}\n{_PLAMO_NAME}f",
            f"{_PLAMO_ALL}{_PLAMO}{_PLAMO_NAME}f{_PLAMO_ARGS}{{}}{_PLAMO_END}x<|plamo:end_tool_requests:plamo|>",
        ),
        "solar_open": (
            _SOLAR, f"{_SOLAR}f", f"{_SOLAR}f{_SOLAR_ARGS}", f"{_SOLAR}f{_SOLAR_ARGS}{{", _SOLAR_END, "<|tool_call:",
            f"{_SOLAR}f{_SOLAR_ARGS}{{}}{_SOLAR_END}", f"{_SOLAR}f{_SOLAR_ARGS}{_SOLAR_END}", "<|think|>", "<|",
            "<|begin|>assistant<|think|>", "<|begin|>assistant<|content|>", "<|begin|>assistant<|tool_calls|>",
            *_SOLAR_ENDS, "<|tool_calls|>", f"{_SOLAR}f{_SOLAR_ARGS}[1]{_SOLAR_END}", "<|tool_call:begin|>",
            f'{_SOLAR}f{_SOLAR_ARGS}{{"a":1,"a":2}}{_SOLAR_END}', "<|tool_response:begin|>x", "<|tool_response:end|>",
            "<|begin|>assis", f"{_SOLAR}f {_SOLAR_ARGS} {{}}x", "<|tool_call:n", "<|begin|>", "<|content|>",
        ),
        "functionary_v32": (
            ">>>", ">>>all\n", "all\n", ">>>f\n{", ">>>f\n", "f\n{", "f\n", ">>>f", ">>", ">>>g\n{}", "al", ">>>al",
            '>>>f\n{"a":1,"a":2}', ">>>f\n{\"a\":1e999}", ">>>f \r\n{}", ">>>get_weather\n{}>>>all\nx", ">>>all\n{}",
            '>>>f\n{"a":}', ">>>f\n{'a':1}\n\n", '>>>f\n{"a"\n\n',
        ),
        "glm4_lines": (
            "f\n{", "f\n", "f", "\nf\n{}", 'f\n{"a":1,"a":2}', "f \r\n{}", "get_weather\n{}\nf\n{}", "g\n{}", "{", "\n",
            'f\n{"a":"x"}\n', 'f\n{"a":}', "f\n{'a':1}\n\n", "<|observation|>", "a\nf\n{", "f\n\n{}", "f {}", "<|us",
        ),
        "gigachat3": (
            "<|message_sep|>", "<|message_sep|>\n\n", "function call", "function call<|role_sep|>", "<|role_sep|>",
            "<|message_sep|>\n\nfunction call<|role_sep|>\n{", "<|function_call|>", "<|function_call|>{", "<|function",
            "function call<|role_sep|>\n{", '<|function_call|>{"name":"f"}', 'function call{"name":"f"}',
            "\nfunction call\n{", 'function call\n{"',
        ),
        "inkling": (
            "<|message_model|>", "<|content_invoke_tool_json|>", "<|end_message|>", "<|content_text|>", "<|message_",
            "<|content_thinking|>", "<|message_model|>f<|content_invoke_tool_json|>{", "<|end_mess", "<|content_",
            "<|message_model|><|content_text|>", "<|message_model|><|content_thinking|>", "<|message_model|>f",
            "<|content_model_end_sampling|>", "<|content_model", "<|message_user|>", "f<|content_invoke_tool_json|>",
            '<|content_invoke_tool_json|>{"name":"f"}<|end_message|>', '<|content_invoke_tool_json|>{"name":"f"}',
        ),
    },
    markers={
        "mistral_list": (Marker(("[TOOL_CALLS]", SPACES, Either(("[", "{")))),),
        "mistral_args": (
            Marker(("[TOOL_CALLS]", GAP, *WORD_FIRST, GAP, Either(("[ARGS]", "[CALL_ID]", "{")))),
            Marker(("[TOOL_RESULTS]",), kind="result"),
        ),
        "deepseek_v3": (
            *(
                marker
                for bar in "｜|"
                for marker in _deepseek_markers(
                    bar,
                    (
                        GAP, f"function<{bar}tool▁sep{bar}>", GAP, NAME, Run(" \t", 0, 4),
                        Either(("\n", "\r\n", "`", "{", f"<{bar}tool▁call▁end{bar}>", f"<{bar}tool▁call▁begin{bar}>")),
                    ),
                )
            ),
            Marker(("<｜tool▁outputs▁begin｜>", GAP, "<｜tool▁output▁begin｜>"), kind="result"),
        ),
        "deepseek_v31": (
            *(
                marker
                for bar in "｜|"
                for following in (
                    (f"<{bar}tool▁sep{bar}>", GAP, Either(("{", '"', "`", f"<{bar}tool▁call▁end{bar}>"))), ("{",)
                )
                for marker in _deepseek_markers(bar, (GAP, NAME, GAP, *following))
            ),
            Marker(("<｜tool▁output▁begin｜>",), kind="result"),
        ),
        "kimi_k2": (
            Marker(_SECTION, wraps=True),
            Marker(("<|tool_call_begin|>", GAP, NAME, GAP, "<|tool_call_argument_begin|>")),
        ),
        "plamo3": (
            Marker((_PLAMO_ALL, GAP, _PLAMO)),
            *or_wrapped((_PLAMO_ALL,), Marker((_PLAMO, GAP, _PLAMO_NAME))),
        ),
        "solar_open": (
            *(Marker((begin + "<|tool_calls|>", *AFTER_WRAPPER), wraps=True) for begin in ("", "<|begin|>assistant")),
            Marker((
                "<|tool_call:begin|>", Run(" \t\r\n<>|", 0, 96, others=True), "<|tool_call:name|>", GAP, NAME, GAP,
                _SOLAR_ARGS,
            )),
            Marker(("<|tool_response:begin|>",), kind="result"),
        ),
        "functionary_v32": (
            Marker((">>>", DECLARED, BLANKS, LINE_END, SPACES, "{")),
            *(Marker((name, BLANKS, LINE_END, SPACES, "{"), where="start") for name in DECLARED.words),
        ),
        "glm4_lines": (
            *(Marker((name, BLANKS, LINE_END, SPACES, "{"), where="line_start") for name in DECLARED.words),
        ),
        "gigachat3": (
            Marker(("<|message_sep|>", SPACES, "function call", Either(("<|role_sep|>", "")), SPACES, "{")),
            Marker(("function call<|role_sep|>", SPACES, "{")),
            Marker(("<|function_call|>", SPACES, "{")),
            Marker(("function call", SPACES, "{", SPACES, '"'), where="line_start"),
        ),
        "inkling": (
            *(
                Marker((*begin, Either(("<|content_invoke_tool_json|>", "<|content_invoke_tool_text|>"))))
                for begin in (("<|message_model|>", GAP, NAME, GAP), ("<|message_model|>", GAP), ())
            ),
            Marker((DECLARED, "<|content_invoke_tool_json|>"), where="start"),
        ),
    },
    tags={
        "mistral_list": (Tag(("[/TOOL_CALLS]",)),),
        "mistral_args": (
            Tag(("[THINK]",), closings=("[/THINK]",)), Tag(("[/TOOL_CALLS]",)),
        ),
        "deepseek_v3": _DEEPSEEK_TAGS,
        "deepseek_v31": _DEEPSEEK_TAGS,
        "kimi_k2": (
            Tag(_END_OF_SECTION), Tag(("<|tool_call_end|>",)), Tag(("<|tool_call_argument_begin|>",)),
        ),
        "plamo3": (
            Tag(("<|plamo:begin_think:plamo|>",), closings=("<|plamo:end_think:plamo|>",)),
            Tag(("<|plamo:end_tool_requests:plamo|>",)),
            Tag(("<|plamo:tag|>",)),
        ),
        "solar_open": (
            *(
                Tag((f"{begin}<|think|>",), closings=("<|end|>",), before=("<|begin|>",))
                for begin in ("", "<|begin|>assistant")
            ),
            *(Tag((begin + "<|content|>",)) for begin in ("", "<|begin|>assistant")),
            *(Tag((end,)) for end in _SOLAR_ENDS),
        ),
        "functionary_v32": (
            Tag((">>>all", LINE_END)), Tag(("all", LINE_END), where="start"),
        ),
        "inkling": (
            Tag(("<|message_model|>", GAP, "<|content_text|>")),
            Tag(("<|content_text|>",)),
            *(
                Tag(
                    (*begin, "<|content_thinking|>"),
                    closings=_INKLING_ENDS,
                    before=("<|message_model|>", "<|content_text|>"),
                )
                for begin in (("<|message_model|>", GAP), ())
            ),
            *(
                Tag(("<|message_model|>", NAME._replace(least=0), GAP, following))
                for following in (Run("< \t\r\n", 1, 1, others=True), Either(_INKLING_ENDS))
            ),
            Tag(("<|message_", Either(("user", "system", "tool")), "|>")),
            Tag(("<|content_", Either(("image", "audio_input", "tool_error", "xml")), "|>")),
            *(Tag((end,)) for end in _INKLING_ENDS),
        ),
    },
    envelopes=frozenset({"mistral_list", "gigachat3", "inkling"}),
    plain=frozenset({"plamo3", "solar_open", "mistral_args", "deepseek_v3", "deepseek_v31", "kimi_k2", "inkling"}),
)  # fmt: skip
