"""The known formats of API keys. The rule `keys` uses them, and recordings use them to remove keys."""

from __future__ import annotations

LONGEST = 256
"""The maximum number of characters after the prefix of a key, for searches that need an upper bound."""

_NAME = "[A-Za-z0-9_-]"
_WORD = "[A-Za-z0-9]"
_CAPITAL = "[A-Z0-9]"

FORMATS: list[tuple[str, int, list[str]]] = [
    (_NAME, 10, ["xox[a-np-z]-", "xapp-"]),  # `xoxo-` is not the prefix of a key
    (_CAPITAL, 16, ["A[KS]IA"]),  # some words also begin like this, so only capitals and digits may follow
    (_NAME, 16, ["sk-", "csk-", "[sr]k_live_", "[sr]k_test_", "glpat-", "tvly-"]),
    (_NAME, 20, ["gh[opsur]_", "github_pat_", "hf_oauth_", "hf_jwt_", "gsk_", "xai-", "pplx-", "nvapi-"]),
    (_NAME, 20, ["fw_", "tgp_v1_", "ya29[.]"]),
    (_NAME, 20, ["whsec_", "shp[acps][ast]_", "dckr_pat_", "sq0[ac][st]p-"]),
    (_NAME, 30, ["AIza", "AQ[.]Ab", "r8_", "pypi-AgE", "ATATT3", "lin_api_", "dop_v1_"]),
    (_WORD, 20, ["hf_"]),  # `-` and `_` are excluded, because of names such as `hf_hub_download`
    (_WORD, 30, ["npm_"]),
]
"""The formats. Each has the class of the characters after a prefix, their minimum number, and the prefixes.

A prefix must be at the beginning of a word.
"""
