"""The formats of keys that are known, by which they are found in what a model writes and in what is recorded."""

from __future__ import annotations

LONGEST = 256
"""Characters of a key behind what it begins with, where what is looked for has a bound."""

_NAME = "[A-Za-z0-9_-]"
_WORD = "[A-Za-z0-9]"
_CAPITAL = "[A-Z0-9]"

FORMATS: list[tuple[str, int, list[str]]] = [
    (_NAME, 10, ["xox[a-np-z]-", "xapp-"]),  # those of hugs and kisses are none
    (_CAPITAL, 16, ["A[KS]IA"]),  # the beginning of words, too
    (_NAME, 16, ["sk-", "csk-", "[sr]k_live_", "[sr]k_test_", "glpat-", "tvly-"]),
    (_NAME, 20, ["gh[opsur]_", "github_pat_", "hf_oauth_", "hf_jwt_", "gsk_", "xai-", "pplx-", "nvapi-"]),
    (_NAME, 20, ["fw_", "tgp_v1_", "ya29[.]"]),
    (_NAME, 20, ["whsec_", "shp[acps][ast]_", "dckr_pat_", "sq0[ac][st]p-"]),
    (_NAME, 30, ["AIza", "AQ[.]Ab", "r8_", "pypi-AgE", "ATATT3", "lin_api_", "dop_v1_"]),
    (_WORD, 20, ["hf_"]),  # with `-` and `_` in it, it is a name: `hf_hub_download`, `npm_config_registry`
    (_WORD, 30, ["npm_"]),
]
"""Which characters belong to a key, how many of them make it one, and how it begins, no later than a word does."""
