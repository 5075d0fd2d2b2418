"""Defines `DIALECTS`, which maps the id of each dialect to the dialect.

Creating a dialect takes time: the module of its family is imported, and patterns are compiled. So the table contains
only ids and family modules, and creates a dialect on first use. The documentation lists the dialects in the order of
this table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module

from streamtools.parsing.dialects.base import Dialect

_FAMILIES = {
    "hash_and_tilde": "hash_marker tilde_fence",
    "json_with_name": """
        hermes_json cohere_action_json llama3_json granite_list granite20b_function_call internlm2 interns1
        tool_calls_list toolcall_list functools_list cohere_legacy_action hunyuan_a13b_list ernie45_json
        xlam_json longcat_json json_begin_end raw_json json_array hyperclovax_think lm_studio pangu_list pangu2_list
        qwen25_coder_tools rwkv_fence
    """,
    "json_after_name": """
        mistral_list mistral_args deepseek_v3 deepseek_v31 kimi_k2 gigachat3 apertus_list solar_open plamo3
    """,
    "parameter_xml": """
        qwen3_coder_xml llama31_function_tag glm_xml seed_oss_xml hunyuan_xml poolside_xml k_exaone2_xml
        hunyuan4_xml iquest_q1 iquest_coder2 longcat_xml telechat4_xml step_audio2 k2_horizon solar_open2 zaya_xml
        cwm_tool
    """,
    "attribute_xml": """
        kimi_k3_xtml deepseek_dsml minimax_m2_xml minimax_m3_xml anthropic_xml step3_xml minicpm5_xml morph_xml
        atem_xml gigachat35 dots_xml
    """,
    "message_headers": "harmony functionary_v32 glm4_lines inkling",
    "pythonic": """
        pythonic pythonic_llama4 olmo3_pythonic lfm2_pythonic gemma4 functiongemma sarashina_list minicpm4_python
        tool_code granite_lines
    """,
}
"""Maps each family module to the ids of its dialects. The function with the name of an id creates the dialect."""

_FAMILY_OF = {id: family for family, ids in _FAMILIES.items() for id in ids.split()}


class _LazyDialects(Mapping[str, Dialect]):
    """Creates each dialect on first use."""

    def __init__(self) -> None:
        self._created: dict[str, Dialect] = {}

    def __getitem__(self, id: str) -> Dialect:
        if id not in self._created:
            family = import_module(f"streamtools.parsing.dialects.{_FAMILY_OF[id]}")
            self._created.setdefault(id, getattr(family, id)())  # another thread may have created it first
        return self._created[id]

    def __iter__(self) -> Iterator[str]:
        return iter(_FAMILY_OF)

    def __len__(self) -> int:
        return len(_FAMILY_OF)


DIALECTS: Mapping[str, Dialect] = _LazyDialects()
"""Maps each id to its dialect."""

TAUGHT_DIALECTS = ("hash_marker", "tilde_fence")
"""The ids of the package's own dialects, which are made for prompts. No chat template uses them.

With `teach="always"`, a chat enables both, and its prompt teaches the last one.
"""
