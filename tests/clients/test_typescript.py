"""`@streamtools/client`: the packed files, the types, and its behavior with a server."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from streamtools import ParserOptions, outputs
from streamtools.events import CallDelta, Error, Executed, Reasoning, Text, UIEvent
from streamtools.recording import shipped
from streamtools.recording.event_replay import replay
from tests.clients.programs import run_program
from tests.clients.typescript_package import LOADED, PAGE, SOURCE, check_types, pack, unpack
from tests.clients.typescript_scenes import PAID, SCENES
from tests.support.loopback import Loopback
from tests.support.provider import Provider
from tests.support.readme import ROOT, read_blocks
from tests.support.talks import calls, says
from tests.whole.test_server_programs import END, PROGRAMS, TEXT, serving

pytestmark = pytest.mark.sdk


@pytest.fixture(scope="module")
def tarball() -> Path:
    """The tarball for npm."""
    return pack()


@pytest.fixture(scope="module")
def folder(tarball: Path) -> Path:
    """A folder with the installed package."""
    folder = ROOT / ".cache" / "typescript-user"
    folder.mkdir(parents=True, exist_ok=True)
    return unpack(tarball, folder)


def test_the_tarball_has_modules_types_and_sources(tarball: Path) -> None:
    """It also has the README and the licence, and no dependencies."""
    with tarfile.open(tarball) as held:
        names = {member.name.removeprefix("package/") for member in held}
        extracted = held.extractfile("package/package.json")
        assert extracted is not None
        package = json.load(extracted)
    modules = {path.stem for path in (SOURCE / "src").glob("*.ts")}
    built = {f"dist/{module}{end}" for module in modules for end in (".js", ".js.map", ".d.ts", ".d.ts.map")}
    assert {"LICENSE", "README.md", "package.json", *built, *(f"src/{module}.ts" for module in modules)} == names
    assert not {"dependencies", "peerDependencies", "optionalDependencies"} & package.keys()
    assert (ROOT / "LICENSE").read_text() == (SOURCE / "LICENSE").read_text()


def test_the_page_of_serve_has_the_current_build(tarball: Path) -> None:
    """The modules in the Python package equal a new build of the sources."""
    with tarfile.open(tarball) as held:
        for name in LOADED:
            built = held.extractfile(f"package/dist/{name}")
            assert built is not None
            assert built.read() == (PAGE / name).read_bytes(), "python -m tests.clients.typescript_package"
    assert {*LOADED} == {path.name for path in PAGE.iterdir()}


@pytest.mark.parametrize("resolution", ["bundler", "nodenext"])
def test_the_readme_and_the_page_compile(folder: Path, resolution: str) -> None:
    """Each program compiles with the strictest options."""
    pages = (SOURCE / "README.md").read_text() + (ROOT / "docs" / "typescript-client.md").read_text()
    blocks = [each.text for each in read_blocks(pages) if each.language == "ts"]
    assert len(blocks) == 4
    for block in blocks:
        check_types(folder, block, resolution)


async def test_reduced_runs_equal_those_of_python(folder: Path) -> None:
    """Texts and calls of each recording are equal, with any cuts of the body."""
    runs: list[list[UIEvent]] = [
        await replay(path, parser=ParserOptions(call_deltas=True)) for path in shipped().values()
    ]
    bodies = [b"".join(map(outputs.native().encode, run)).decode() for run in runs]
    strange = "\ufeffdata: 1\r\n\r\n: note\r\n\r\ndata:2\ndata: 3\n\rid: 4\r\revent: x\n\ndata: {}\n\n"
    told = await run_program(
        folder,
        *("typescript.mjs", "", "", "reduce"),
        given={"bodies": [strange.removeprefix("\ufeff"), bodies[0][:3000]], "runs": [_plain(run) for run in runs]},
    )
    assert ["1", "2\n3", "{}"] == told["frames"][0]
    assert len(runs) == len(told["turns"])
    assert any(isinstance(each, CallDelta) for run in runs for each in run)
    for run, turn in zip(runs, told["turns"], strict=True):
        for kind, name in ((Text, "text"), (Reasoning, "reasoning")):
            said = "".join(each.text for each in run if isinstance(each, kind))
            assert said == "".join(part["text"] for part in turn["parts"] if part["kind"] == name)
        ends = [(each.call.id, "executed") for each in run if isinstance(each, Executed)]
        ends += [(each.call_id or "", "failed") for each in run if isinstance(each, Error) and each.call_id]
        calls = {part["id"]: part["state"] for part in turn["parts"] if part["kind"] == "call"}
        assert dict(ends).items() <= calls.items()
        drafts = {each.call_id for each in run if isinstance(each, CallDelta)}
        for part in turn["parts"]:
            if part["kind"] == "call" and part["call"] is not None and part["id"] in drafts:
                assert part["call"]["arguments"] == json.loads(part["written"])
        assert run[-1].type == "done"
        assert turn["state"] == json.loads(run[-1].to_json())["reason"]


def _plain(run: list[UIEvent]) -> list[Any]:
    return [json.loads(event.to_json()) for event in run]


PROLOGUE = """
const shown = [];
globalThis.location = new URL(process.argv[3]);
globalThis.document = { body: { append: (text) => shown.push(text) } };
"""


async def test_the_program_with_two_conversations(folder: Path) -> None:
    """The second answer ends while the first is written, which is then stopped."""
    page = (ROOT / "docs" / "conversations-over-a-websocket.md").read_text()
    (block,) = [each for each in read_blocks(page) if each.language == "ts"]
    check_types(folder, block.text, "bundler")
    heading, _, rest = block.text.partition("\n")
    program = [heading, 'import { tell } from "./telling.mjs";', PROLOGUE, rest, 'tell("end", shown);']
    (folder / "two.mjs").write_text("\n".join(program))
    model = Provider(Loopback([TEXT], hold=True), Loopback([TEXT, END]))
    async with serving("conversations", model=model) as (server, _):
        assert ["It is warm.", " (cancelled)"] == await run_program(folder, "two.mjs", "", server.url)


@pytest.mark.parametrize("how", ["http", "socket", "conversation"])
@pytest.mark.parametrize("scene", SCENES)
async def test_a_scene(folder: Path, how: str, scene: str) -> None:
    """The scenes run in Node, with server-sent events, with a websocket, and in one of its conversations."""
    answers, check = SCENES[scene]
    async with serving("client", *answers(), user="ann") as (server, _):
        check(await run_program(folder, "typescript.mjs", how, server.url, scene), how)


@pytest.mark.parametrize("how", ["socket", "conversation"])
async def test_a_decision_about_a_run_that_has_ended(folder: Path, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer has the new events, also after a lost connection. A wrong decision is refused."""
    program = PROGRAMS["client"]
    for old, new in (
        ("Runs(shut", "Runs(resume=lambda run: ask([], run), ledger=MemoryLedger(), shut"),
        ("def ask(asked: dict[str, Any]) -> Chat:", "def ask(asked: Any, run: Run | None = None) -> Chat:"),
        ('read_messages(asked["messages"], client=True)', 'run.history if run else read_messages(asked["messages"])'),
        ('approvals=ApprovalOptions(ask="now")', "resume=run"),
        ("import parse_decision", "import MemoryLedger, parse_decision"),
    ):
        assert 1 == program.count(old), old
        program = program.replace(old, new)
    monkeypatch.setitem(PROGRAMS, "client", program)
    async with serving("client", calls(("pay", PAID), text="I pay."), says("Pa", "id."), user="ann") as (server, _):
        end = await run_program(folder, "typescript.mjs", how, server.url, "later")
    assert ("waiting", "SocketError: wrong_digest", None) == (end["waiting"], end["wrong"], end["failure"])
    assert ["paid 50 to Ann", "Paid."] == [part.get("result") or part["text"] for part in end["turn"]["parts"]]
    assert ("finished", 1) == (end["turn"]["state"], len(end["asked"]))
