"""The command `streamtools gateway`: its options, its configuration file, and its errors."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import httpx
import pytest

from streamtools.apps.cli import main
from streamtools.apps.cli.arguments import parse
from streamtools.apps.cli.servers import FallbackConfig, read_config
from tests.apps.test_cli_bad_input import error_line
from tests.apps.test_serve import serve
from tests.support.command import COMMAND, ENVIRONMENT
from tests.support.gateway import collect, request, stream
from tests.support.loopback import Loopback
from tests.support.provider import serving

CALL = stream(['~~~tool_call\n{"name": "get_weather", "arguments": {"city": "Bern"}}\n~~~'])


def test_the_command_answers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OWN", "own\n")
    seen = []
    with serving(Loopback([CALL])) as upstream:
        config = tmp_path / "gateway.toml"
        config.write_text(f'upstream = "{upstream.url}v1"\nkey_env = "OWN"\n')

        def visit(client: httpx.Client) -> None:
            response = client.post("/v1/messages", json=request("anthropic"))
            seen.append(collect("anthropic", response.content).calls[0][2])

        assert serve(monkeypatch, visit, "--config", str(config), command="gateway") == 0
    assert seen == [{"city": "Bern"}]


@pytest.mark.deep
def test_the_process_prints_its_address_and_ends_after_a_signal() -> None:
    given = ["gateway", "--upstream", "http://127.0.0.1:1/v1", "--port", "0"]
    with subprocess.Popen(
        [*COMMAND, *given], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT
    ) as process:
        assert process.stdout is not None
        url = process.stdout.readline().decode().rpartition(": ")[2].partition(" ")[0]
        assert httpx.get(f"{url}health", trust_env=False).text == "ok\n"
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


def test_options_of_the_command_line_take_precedence(tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    standby = '[[fallbacks]]\nurl = "http://b/v1"\nprefill = "vllm"\nkey_env = "B"\n'
    file.write_text(f'upstream = "http://a/v1"\nmode = "native"\nmax_body = 5\nkeep_alive = 5\n{standby}')
    asked = parse(["gateway", "--config", str(file), "--mode", "auto", "--dialect", "hermes_json"])
    config = read_config(asked)
    assert (config.upstream, config.mode, config.max_body) == ("http://a/v1", "auto", 5)
    assert (config.dialects, config.keep_alive) == (["hermes_json"], 5)
    assert config.fallbacks == [FallbackConfig(url="http://b/v1", prefill="vllm", key_env="B")]
    file.write_text('upstream = "http://a/v1"\n[mode]\ngemma = "text"\n"*" = "native"\n')
    asked = parse(["gateway", "--config", str(file)])
    modes = read_config(asked).mode
    assert isinstance(modes, dict)
    assert list(modes.items()) == [("gemma", "text"), ("*", "native")]


def test_an_invalid_configuration_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("OWN", "k")
    monkeypatch.delenv("THEIRS", raising=False)
    bad = tmp_path / "bad.toml"
    bad.write_text("upstreams = 1\n")
    given = ("--upstream", "http://127.0.0.1:1/v1", "--port", "0")
    for message, *arguments in (
        ("needs an --upstream",),
        ("cannot be read", "--config", str(tmp_path / "none.toml")),
        ("invalid configuration", "--config", str(bad)),
        ("THEIRS is not set", *given, "--client-key-env", "THEIRS"),
        ("could use the gateway's key", *given, "--key-env", "OWN", "--host", "0.0.0.0"),
        ("must be a URL such as", "--upstream", "http://key@a/v1", "--port", "0"),
        ("no dialect 'nonsense'", *given, "--dialect", "nonsense"),
    ):
        assert main(["gateway", *arguments]) == 2
        assert message in error_line(capsys), message
