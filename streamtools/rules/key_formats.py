"""The known formats of API keys. The rule `keys` and recordings find keys by them."""

from __future__ import annotations

LONGEST = 256
"""The limit of the characters after the prefix of a key, if a search needs a bound."""

_NAME = "[A-Za-z0-9_-]"
_WORD = "[A-Za-z0-9]"
_CAPITAL = "[A-Z0-9]"

FORMATS: list[tuple[str, int, list[str]]] = [
    (_NAME, 10, ["xox[a-np-z]-", "xapp-"]),  # `xoxo-` is not one
    (_CAPITAL, 16, ["A[KS]IA"]),  # also the beginning of words
    (_NAME, 16, ["sk-", "csk-", "[sr]k_live_", "[sr]k_test_", "glpat-", "tvly-"]),
    (_NAME, 20, ["gh[opsur]_", "github_pat_", "hf_oauth_", "hf_jwt_", "gsk_", "xai-", "pplx-", "nvapi-"]),
    (_NAME, 20, ["fw_", "tgp_v1_", "ya29[.]"]),
    (_NAME, 20, ["whsec_", "shp[acps][ast]_", "dckr_pat_", "sq0[ac][st]p-"]),
    (_NAME, 30, ["AIza", "AQ[.]Ab", "r8_", "pypi-AgE", "ATATT3", "lin_api_", "dop_v1_"]),
    (_WORD, 20, ["hf_"]),  # with `-` and `_` it would be a name: `hf_hub_download`, `npm_config_registry`
    (_WORD, 30, ["npm_"]),
]
"""The characters of a key, their least number, and the prefixes. A prefix stands at the beginning of a word."""
