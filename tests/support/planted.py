"""Invalid keys in the known formats, and functions that search for them."""

from __future__ import annotations

KEYS = {
    "openai": "sk-proj-" + "aB3_d-E9" * 6,
    "openai, old": "sk-" + "Zx9Yw8Vu7T" * 4,
    "anthropic": "sk-ant-api03-" + "Q1w2-E3r4_" * 8,
    "openrouter": "sk-or-v1-" + "0123456789abcdef" * 4,
    "aws": "AKIA" + "Q3EGUIOP7XNB2VSD",
    "aws, of a session": "ASIA" + "Q3EGUIOP7XNB2VSD",
    "google": "AIza" + "Sy9-_bC4dE5fG6hI7jK8lM9nO0pQ1rS2tU3",
    "github": "ghp_" + "a1B2c3D4e5" * 4,
    "github, fine-grained": "github_pat_" + "11A2b3_C4d5" * 7,
    "slack": "xoxb-" + "2345678901-2345678901234-aBcDeFgHiJkL",
    "hugging face": "hf_" + "aBcDeFgHiJkLmNoPqRsT" * 2,
    "hugging face, oauth": "hf_oauth_eyJ" + "aBcD_eF1-" * 5,
    "replicate": "r8_" + "aBcDeFgH1234" * 3 + "x",
    "npm": "npm_" + "a1B2c3D4e5F6" * 3,
    "groq": "gsk_" + "a1B2c3D4e5F6g" * 4,
    "xai": "xai-" + "a1B2c3D4e5F6g" * 6,
    "stripe": "sk_live_" + "51H8xYzAbCdEfGhIj",
    "jwt": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk",
    "bearer": "Bearer mF_9.B5f-4.1JqM/abc+def~ghi==",
}


def found(haystack: bytes) -> list[str]:
    """Return the names of the keys whose secret part is in `haystack`, possibly without its ends."""
    return [name for name, key in KEYS.items() if core(key) in haystack]


def core(key: str) -> bytes:
    """Return sixteen characters from the middle of a key, or the whole secret part of a short key."""
    middle = len(key) // 2
    return key[max(4, middle - 4) :][:12].encode()
