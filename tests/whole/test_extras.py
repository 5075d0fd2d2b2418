"""The optional packages: without one, the use that needs it names the extra. The rest works."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.support.cases import cases

USES = {
    "streamtools.outputs.asgi": "streamtools.outputs.asgi needs starlette: web",
    "import streamtools.outputs.asgi": "streamtools.outputs.asgi needs starlette: web",
    "streamtools.gateway.app": "streamtools.gateway.app needs starlette: web",
    "from streamtools.gateway import app": "streamtools.gateway.app needs starlette: web",
    "import streamtools.telemetry": "telemetry needs opentelemetry: otel",
    "streamtools.telemetry": "telemetry needs opentelemetry: otel",
    "from streamtools.tools import PostgresLedger": "PostgresLedger needs psycopg: postgres",
    'streamtools.runs.RedisStore("redis://127.0.0.1")': "the Redis client needs redis: redis",
    'streamtools.tools.RedisLedger("redis://127.0.0.1")': "the Redis client needs redis: redis",
    "streamtools.ParserOptions(repair=True)": "repair=True needs json_repair: repair",
    "streamtools.testing.assert_laws('tilde_fence')": "assert_laws needs hypothesis: test",
    "SIGNED._sign(None)": "BedrockConverse without the key AWS_BEARER_TOKEN_BEDROCK needs botocore: bedrock",
    "import streamtools.apps.cli.servers": "this command needs uvicorn: cli,web",
    "import streamtools.apps.cli.transcript": "this command (except replay --json) needs rich: cli",
}
"""Uses of optional packages: each with the user, the package and the extra in its error."""

PROGRAM = f"""
import json, sys
from streamtools.loading import _EXTRAS
for package in _EXTRAS:
    sys.modules[package] = None  # as if it were not installed
import streamtools
from streamtools.conversation import BedrockConverse
SIGNED = BedrockConverse("m", region="us-east-1")
found = {{}}
for code in {[*USES]}:
    try:
        exec(code)
    except ModuleNotFoundError as error:
        found[code] = error.name, str(error)
print(json.dumps([found, [*_EXTRAS], streamtools.outputs.native().content_type]))
"""


def test_each_use_of_a_missing_package_names_its_extra() -> None:
    """The message is raised when an object is made, not when it is first used. The encoders work without extras."""
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    found, packages, content_type = json.loads(ran.stdout)
    with cases() as case:
        for code, expected in USES.items():
            with case(code):
                needed, _, extra = expected.partition(": ")
                assert [needed.rpartition(" ")[2], f'{needed}: pip install "streamtools[{extra}]"'] == found.get(code)
    assert {*packages} == {name for name, _ in found.values()}
    assert "text/event-stream" == content_type
