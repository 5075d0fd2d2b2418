"""The table of all dialects: `DIALECTS` maps an id to its dialect.

To make a dialect takes a module and some compiled patterns. So the table lists only ids and family modules, and makes a
dialect when it is requested. The order of the ids is the order of the documentation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module

from streamtools.parsing.dialects.base import Dialect

_FAMILY_OF = {
    "hash_marker": "hash_and_tilde",
    "tilde_fence": "hash_and_tilde",
    "hermes_json": "json_with_name",
    "qwen3_coder_xml": "parameter_xml",
    "harmony": "message_headers",
    "kimi_k3_xtml": "attribute_xml",
    "cohere_action_json": "json_with_name",
    "llama3_json": "json_with_name",
    "llama31_function_tag": "parameter_xml",
    "mistral_list": "json_after_name",
    "mistral_args": "json_after_name",
    "deepseek_v3": "json_after_name",
    "deepseek_v31": "json_after_name",
    "deepseek_dsml": "attribute_xml",
    "glm_xml": "parameter_xml",
    "kimi_k2": "json_after_name",
    "pythonic": "pythonic",
    "pythonic_llama4": "pythonic",
    "olmo3_pythonic": "pythonic",
    "lfm2_pythonic": "pythonic",
    "gemma4": "pythonic",
    "functiongemma": "pythonic",
    "minimax_m2_xml": "attribute_xml",
    "minimax_m3_xml": "attribute_xml",
    "seed_oss_xml": "parameter_xml",
    "anthropic_xml": "attribute_xml",
    "granite_list": "json_with_name",
    "granite20b_function_call": "json_with_name",
    "internlm2": "json_with_name",
    "interns1": "json_with_name",
    "tool_calls_list": "json_with_name",
    "toolcall_list": "json_with_name",
    "functools_list": "json_with_name",
    "functionary_v32": "message_headers",
    "cohere_legacy_action": "json_with_name",
    "hunyuan_a13b_list": "json_with_name",
    "hunyuan_xml": "parameter_xml",
    "step3_xml": "attribute_xml",
    "poolside_xml": "parameter_xml",
    "minicpm5_xml": "attribute_xml",
    "morph_xml": "attribute_xml",
    "k_exaone2_xml": "parameter_xml",
    "gigachat3": "json_after_name",
    "ernie45_json": "json_with_name",
    "xlam_json": "json_with_name",
    "longcat_json": "json_with_name",
    "apertus_list": "json_after_name",
    "inkling": "message_headers",
    "atem_xml": "attribute_xml",
    "json_begin_end": "json_with_name",
    "raw_json": "json_with_name",
    "json_array": "json_with_name",
    "gigachat35": "attribute_xml",
    "dots_xml": "attribute_xml",
    "iquest_q1": "parameter_xml",
    "k2_horizon": "parameter_xml",
    "solar_open": "json_after_name",
    "solar_open2": "parameter_xml",
    "plamo3": "json_after_name",
    "hyperclovax_think": "json_with_name",
    "minicpm4_python": "pythonic",
    "tool_code": "pythonic",
    "granite_lines": "pythonic",
    "cwm_tool": "parameter_xml",
    "lm_studio": "json_with_name",
}
"""The family module of each dialect. A function in it with the name of the id returns the dialect."""


class _LazyDialects(Mapping[str, Dialect]):
    """Makes each dialect once, when it is requested."""

    def __init__(self) -> None:
        self._made: dict[str, Dialect] = {}

    def __getitem__(self, id: str) -> Dialect:
        if id not in self._made:
            family = import_module(f"streamtools.parsing.dialects.{_FAMILY_OF[id]}")
            self._made.setdefault(id, getattr(family, id)())  # another thread may have been faster
        return self._made[id]

    def __iter__(self) -> Iterator[str]:
        return iter(_FAMILY_OF)

    def __len__(self) -> int:
        return len(_FAMILY_OF)


DIALECTS: Mapping[str, Dialect] = _LazyDialects()
"""Every dialect by its id."""

TAUGHT_DIALECTS = ("hash_marker", "tilde_fence")
"""The dialects that a prompt teaches unless the caller chooses. No chat template uses them."""
