"""The dialects that write arguments as literals: as Python does, or the Gemma models."""

from __future__ import annotations

from tests.families.base import BLANKS, DECLARED, ENDS_OF_TURN, SPACES, Either, Family, Marker, Run, Tag

NAME = Run(" \t\r\n()[]{}<>\"'`=,;", 1, 128, others=True)
LISTED = Either(("f", "get_weather", "météo", "a.b-c"))

_LITERALS = (
    "f(", "f()", "f(a=", ")", "=", "'", '"""', "'''", "(1,)", "None", "True", "r'", "f(a='x')", 'f(a="x", count=1)',
    "f('x')", "f(**{", "f(a=x)", "f(a=[1", "\\x4", "f(a=(1, 2))\n", "f()\nf()", ", f()", "f() f",
)  # fmt: skip


def _tagged(opening: str, close: str) -> tuple[str, ...]:
    return (
        opening, f"{opening}[", f"{opening}f(", f"{opening}\n f(", opening[:-2], close, close[:-3], f"\n{close}\n",
        f"{opening}[f(a='x'), f()]{close}", f"{opening}f(){opening}f()", f"{opening}f(a=x){close}", f"[]{close}",
        f"{opening}[f(a='x'){close}", f"{opening}f(a='{close}", f"{opening}f('x'){close}", *_LITERALS,
    )  # fmt: skip


def _gemma(opening: str, close: str, mark: str) -> tuple[str, ...]:
    return (
        opening, f"{opening}call:", f"{opening}call:f{{", f"{opening}\ncall:f{{", opening[:-2], close, close[:-2], mark,
        mark[:-1], f"a:{mark}", f"{mark},count:1}}", f"{opening}call:f{{a:{mark}", f"{opening}call:f{{count:x}}{close}",
        f"{opening}call:f{{}}{opening}call:f", f"{opening}call:f{{a:{mark}x{mark}}}{close}", "call:f{", "}", ":",
        f"{opening}call:f{{a:{mark[0]}", f"{opening}call:f{{}} x", f"{opening}call:f{{words:[{mark}x{mark}",
    )  # fmt: skip


def _gemma_markers(opening: str) -> tuple[Marker, ...]:
    """Return the markers of calls with `opening`, and of calls without a tag. A name may have a namespace.

    By default, only some texts after `opening` make it a marker.
    """
    namespace = (Run(" \t\r\n{}()[]<>\"'`:", 1, 64, others=True), ":")
    name = Run(" \t\r\n{}()[]<>\"'`", 1, 128, others=True)
    return (
        Marker((opening, SPACES, Run(" \t\r\n`", 1, 1, others=True))),
        Marker((opening, SPACES, name, "{")),
        Marker((opening, SPACES, Either(("call", ":", "{")))),
        *(Marker(("call:", *count * namespace, DECLARED, BLANKS, "{"), where="line_start") for count in range(3)),
    )


_NAME_KEY = Either(("'name'", '"name"'))
_QUOTED = tuple(f"{quote}{name}{quote}" for name in DECLARED.words for quote in "'\"")
_BARE = Marker(("[", SPACES, LISTED, "("), where="start")
_LLAMA = (
    _BARE,
    Marker(("<|python_start|>", SPACES, NAME, "(")),
    Marker(("<|python_start|>", SPACES, "[", SPACES, NAME, "(")),
    Marker(("<|python_start|>", SPACES, "{")),
    Marker(("<|python_start|>", SPACES, "[", SPACES, "{")),
)

FAMILY = Family(
    markup={
        "pythonic": (
            "[f(", "[", "[ f(", "[f()]", "[f(a='x'), get_weather(", "[f(), f() x", "[f('x')]", "[f(a='x', a='y')]",
            "[f(count=1e999)]", "[f(count=x)]", "[f(a=)]", "[f(a=(1))]", "[f(a='x') f()]", "[f(a='x\n\n", "[f(a='x'",
            "[get_weather(words=[", "[f(place={'x': '", "[f(", "<|python_start|>[f()]<|python_end|>", *_LITERALS[:12],
        ),
        "pythonic_llama4": (
            *_tagged("<|python_start|>", "<|python_end|>"), "[f()]", "[f(a='x'), f()]\n", "<|python_start|>{",
            '<|python_start|>[{"name":"f"}]<|python_end|>',
        ),
        "olmo3_pythonic": _tagged("<function_calls>", "</function_calls>"),
        "lfm2_pythonic": (
            *_tagged("<|tool_call_start|>", "<|tool_call_end|>"), "[f()]", "[f(a='x'), f()]\n",
            "<|tool_call_start|>{", "<|tool_call_start|>[{", '<|tool_call_start|>[{"name":"f"}]<|tool_call_end|>',
            "<|tool_response_start|>", "<|tool_response_end|>", "<|tool_response_start|>x<|tool_response_end|>",
        ),
        "sarashina_list": (
            "<|tool_calls|>", "<|tool_calls|>[", "<|tool_calls|>[{", "<|tool_calls|> [{'name': 'f'}]", "[{'name': 'f'",
            "[{'name': 'f', 'arguments': {'a': 'x'}}]", ", {'name': 'f'}", "]", "}]", "[", "[{'name': 'nobody'}]", "'",
            "<|", "},", "<|tool_c",
            "<|tool_calls|>[{'name': 'f', 'arguments': {'count': x}}]", "<|tool_calls|>[{'name': 'f'}, x]\n\n",
            "<|tool_calls|>[{'name': 'f', 'arguments': {'a': 1, 'a': 2}}]", '[{"name": "f", "arguments": {}}]', "</s>",
            "<|tool_calls|>[{'arguments': {}, 'name': 'f'}]", "<|tool_calls|>[{'arguments': {}}]", "[{ 'name' :",
        ),
        "minicpm4_python": (
            *_tagged("<|tool_call_start|>", "<|tool_call_end|>"), "<|tool_call_start|>\n```python\nf(", "```",
            "<|tool_call_start|>```f(a='x')\n```\n<|tool_call_end|>", "\n```\n<|tool_call_end|>", "<|thought_start|>",
            "<|thought_end|>", "<|tool_call_start|>\n```python\nf(a='x')\nf()\n```\n<|tool_call_end|>", "<|thought_",
            "<|tool_call_start|>```python\nf(a=x)\n```<|tool_call_end|>", "<|tool_call_start|>```js\nf(", "```python",
            "<|tool_call_start|>```python f('x')\n```",
        ),
        "tool_code": (
            "```tool_code\n", "```tool_code\nf(", "\n```tool_code\nf()\n```", "```tool_code \r\n f(a='x')\n```\n",
            "```tool_code\nf(a=x)\n```\n", "\n```\n", "```tool_code\ng(", "```tool_co", "```tool_code f()", "```", "\n",
            "```tool_code\nf()\nf()\n```\n", "```tool_code\nf('x')\n```\n", "```tool_code\nf(a='", "```tool_output\n",
            *_LITERALS[:16],
        ),
        "granite_lines": (
            "f(", "f()", "f(a=", "f(a='x')\n", "f(a='x', count=1)\nf()\n", "f(x)", "f('x')", "f (",
            "f(a='x') and", "f(a=x)\n", "f(a='x\n\n", "f()\n", "g(a=1)", "météo(a='x')\n", "a.b-c()", "f", "\n", "\n\n",
            "f(a=1, a=2)\n", "f(a=1e999)\n", "f(a=1).b\n\n", "f(a=1", "get_weather(words=[",
            *(20 * ("f(a='x') f\n\n",)),
        ),
        "gemma4": (
            *_gemma("<|tool_call>", "<tool_call|>", '<|"|>'),
            "<|channel>", "<|channel>thought\n", "<|channel>tho", "<channel|>", "<|tool_response>",
        ),
        "functiongemma": (
            *_gemma("<start_function_call>", "<end_function_call>", "<escape>"),
            "<start_function_response>",
        ),
    },
    markers={
        "pythonic": _LLAMA,
        "pythonic_llama4": _LLAMA,
        "olmo3_pythonic": (
            Marker(("<function_calls>", SPACES, NAME, "(")),
            Marker(("<function_calls>", SPACES, "[", SPACES, NAME, "(")),
        ),
        "lfm2_pythonic": (
            *(Marker(("<|tool_call_start|>", SPACES, *each)) for each in (
                ("[", SPACES, NAME, "("), (NAME, "("), ("{",), ("[", SPACES, "{"))
            ),
            _BARE,
            Marker(("<|tool_response_start|>",), kind="result"),
        ),
        "sarashina_list": (
            *(Marker(("<|tool_calls|>", SPACES, *before, "{")) for before in (("[", SPACES), ())),
            *(
                Marker(("[", SPACES, "{", SPACES, _NAME_KEY, SPACES, ":", SPACES, name), where="start")
                for name in _QUOTED
            ),
        ),
        "minicpm4_python": (
            Marker(("<|tool_call_start|>", SPACES, "```", Either(("python", "")), SPACES, NAME, "(")),
            Marker(("<|tool_call_start|>", SPACES, NAME, "(")),
        ),
        "tool_code": tuple(
            Marker(("```tool_code", BLANKS, end, SPACES, LISTED, "("), where="line_start") for end in ("\n", "\r\n")
        ),
        "granite_lines": tuple(
            Marker((LISTED, "(", SPACES, *following), where="start")
            for following in ((")", BLANKS, Either(("\n", "\r\n", *ENDS_OF_TURN))), (NAME, SPACES, "="))
        ),
        "gemma4": _gemma_markers("<|tool_call>"),
        "functiongemma": _gemma_markers("<start_function_call>"),
    },
    tags={
        "gemma4": (
            Tag(("<|channel>", Either(("thought\n", ""))), closings=("<channel|>",)),
            Tag(("thought\n",), closings=("<channel|>",), where="start"),
            Tag(("<channel|>",)), Tag(("<tool_call|>",)), Tag(("<|tool_response>",)),
            Tag(("<turn|>",)),
        ),
        "functiongemma": (
            Tag(("<end_function_call>",)), Tag(("<start_function_response>",)), Tag(("<end_of_turn>",)),
        ),
        "minicpm4_python": (
            Tag(("<|thought_start|>",), closings=("<|thought_end|>",)),
        ),
        "lfm2_pythonic": (
            *(
                Tag(("<|tool_call_start|>", SPACES, *inside, "<|tool_call_end|>"))
                for inside in ((), ("[", SPACES, "]", SPACES))
            ),
        ),
    },
    plain=frozenset(
        {
            "pythonic", "pythonic_llama4", "olmo3_pythonic", "lfm2_pythonic", "gemma4", "functiongemma",
            "minicpm4_python", "tool_code", "granite_lines",
        }
    ),
)  # fmt: skip
