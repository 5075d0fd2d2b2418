"""Ask a real model for the part of the Markdown corpus that is its answers.

    python tests/parsing/make_answers.py http://127.0.0.1:8080 tests/parsing/markdown [GROUP …]

What is asked stands in `answers.toml`. The committed answers come from llama.cpp with Gemma 3 270M (base), on one
processor core; they are kept to the byte, good or bad: what matters is that a model wrote them, and that they hold no
calls.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import Any

import httpx

QUESTIONS = Path(__file__).with_name("answers.toml")
STOP = ["<|im_end|>"]


def answer(url: str, group: dict[str, Any], question: str) -> str:
    """Return what the model answers to a question, after the worked examples of its group."""
    turns = [
        {"role": role, "content": text}
        for shot in group["shots"]
        for role, text in (("user", shot["question"]), ("assistant", shot["answer"]))
    ]
    body = {
        "messages": [*turns, {"role": "user", "content": question}],
        "stop": STOP,
        "temperature": 0,
        "max_tokens": 500,
        "cache_prompt": False,  # llama.cpp: with a warm cache it rounds otherwise, and may answer otherwise
    }
    reply = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=120, trust_env=False).raise_for_status()
    return str(reply.json()["choices"][0]["message"]["content"])


def carry_on(url: str, prompt: str) -> str:
    """Return what the model writes behind `prompt`, with the prompt."""
    body = {
        "prompt": prompt,
        "temperature": 0.8,
        "seed": 1,
        "repeat_penalty": 1.15,
        "max_tokens": 700,
        "cache_prompt": False,
    }
    reply = httpx.post(f"{url}/v1/completions", json=body, timeout=120, trust_env=False).raise_for_status()
    return prompt + str(reply.json()["choices"][0]["text"])


def main(url: str, folder: str, *names: str) -> None:
    """Ask all questions of the named groups, or of all."""
    asked = tomllib.loads(QUESTIONS.read_text(encoding="utf-8"))
    for group in asked["group"]:
        if not names or group["name"] in names:
            for number, question in enumerate(group["questions"], 1):
                text = answer(url, group, question)
                Path(folder, f"answer-{group['name']}-{number}.md").write_bytes(text.encode())
    for group in asked["prose"]:
        if not names or group["name"] in names:
            for number, prompt in enumerate(group["prompts"], 1):
                text = carry_on(url, prompt)
                Path(folder, f"answer-{group['name']}-{number:02}.md").write_bytes(text.encode())


if __name__ == "__main__":
    main(*sys.argv[1:])
