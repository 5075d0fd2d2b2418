"""The results as Markdown: a short table for the README, then all tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from benchmarks.peers.measuring import PROMPT, exponent
from benchmarks.peers.streams import ARGUMENTS, CASES

Run = dict[str, Any]
Row = dict[str, Any]

_FLOOR = "floor: list.append in a method [hermes]"
_GROWTHS = (("prose_10k", "prose_100k"), ("near_40K", "near_400K"), *pairwise(ARGUMENTS))
NOTHING = ""


def markdown(run: Run) -> str:
    """Return the short table, its conditions, and the whole tables."""
    return "\n\n".join(["## Comparison with other parsers", short(run), made_with(run), "# All figures", plain(run)])


def plain(run: Run) -> str:
    """Return the whole tables."""
    parts = [
        ("µs for each delta (median)", _by_case(run, _parsers(run), _microseconds)),
        ("× floor", _by_case(run, _parsers(run), _times_floor)),
        ("Total seconds", _by_case(run, _parsers(run), _seconds)),
        ("Growth of the time with the text (1: linear, 2: quadratic)", _growth(run)),
        ("Faults in the measured streams: text lost / leaked / calls wrong", _by_case(run, _parsers(run), _faults)),
        ("Faults in short streams, cut in every way", _cut(run)),
        ("Promptness", _promptness(run)),
        ("Growing JSON, µs for each delta", _json(run)),
        ("Versions", _versions(run)),
    ]
    return "\n\n".join(f"## {title}\n\n{table}" for title, table in parts)


def short(run: Run) -> str:
    """Return the table for the README: streamtools first, then the peers."""
    heads = ["", "format", "prose, µs/delta", "× floor", "100 calls", "10 KB argument", "1 MB argument", "growth",
             "text lost", "leaked", "calls wrong", "depends on the cut", "faulty with whole tokens"]  # fmt: skip
    lines = []
    for row in sorted(_parsers(run), key=lambda row: row["group"] != "ours"):
        if row["group"] == "floor":
            continue
        cells = [_cell(run, row, case) for case in ("prose_10k", "calls_100", "arg_10K", "arg_1M")]
        prose, calls, small, large = ((_microseconds(run, cell)) for cell in cells)
        cut = run["cut"].get(row["key"], [])
        worst = [max((each["small"][what] for each in cut), default=0) for what in ("lost", "leaked", "wrong")]
        wrong = f"{worst[2]} of {max((each['calls'] for each in cut), default=0)}"
        split = sum(each["results"] > 1 for each in cut)
        whole = sum(bool(each["tokens"]["faulty"]) for each in cut)
        text = [str(figure) for figure in worst[:2]] if row["text"] else ["–", "–"]
        lines.append(
            [
                row["name"],
                row["format"],
                prose,
                _times_floor(run, cells[0], node=row["node"]),
                *(calls, small, large, _last_growth(run, row), *text),
                wrong if worst[2] else "0",
                f"{split} of {len(cut)}" if split else "no",
                f"{whole} of {len(cut)}" if whole else "no",
            ]
        )
    return _table(heads, lines)


def made_with(run: Run) -> str:
    """Return the conditions of the measurement."""
    versions = {_package(row["name"]): row["version"] for row in run["rows"] if row["group"] in ("peer", "json")}
    node = next((row["version"] for row in run["rows"] if row["node"] and row["group"] == "floor"), None)
    versions |= {"Node": node} if node else {}
    versions.pop("json.loads", None)
    beside = ", ".join(f"{name} {version}" for name, version in versions.items())
    missing = "".join(f" Not measured: {name} ({reason})." for name, reason in run["missing"].items())
    return (
        f"`{run['command']}`, {run['date']}; {run['machine']}, {run['python']}; median of up to {run['repeats']} "
        f"repeats, in turns. {beside}.{missing}\n\n{NOTES.format(limit=run['limit'])}"
    )


def _package(name: str) -> str:
    """Return the package in the name of a row."""
    known = ("SGLang", "vLLM", "@ai-sdk-tool/parser", "json.loads")
    return next((each for each in known if each in name), name.split(",")[0])


NOTES = """\
Microseconds for one delta of one to seven characters; DNF: would not end within {limit:g} seconds, by its growth so
far. The floor is a method that keeps the delta; in brackets: on Node, whose streams have a floor of their own. Growth
is the exponent in arguments, between the two longest that ended: 1 is linear, 2 quadratic. The columns on the right
are about up to eight short streams, each cut in over sixty ways. Lost, leaked and wrong are the worst with deltas of at
most thirteen characters: characters of visible text that were not shown, characters of markup that were, calls that are
missing or differ. Then: for how many streams the result depends on the cut, larger deltas included, and how many are
faulty when each special token is one delta, as many servers send it. White space is not counted. A dash: it gives no
text."""


def _parsers(run: Run) -> list[Row]:
    return [row for row in run["rows"] if row["group"] != "json"]


def _cell(run: Run, row: Row, case: str) -> dict[str, Any]:
    cell: dict[str, Any] = run["cells"].get(case, {}).get(row["key"], {})
    return cell | {"case": case} if cell else {}


def _by_case(run: Run, rows: Sequence[Row], show: Callable[[Run, dict[str, Any]], str]) -> str:
    cases = [case for case in CASES if case in run["cells"]]
    lines = [[row["name"], row["format"], *(show(run, _cell(run, row, case)) for case in cases)] for row in rows]
    return _table(["", "format", *cases], lines)


def _microseconds(run: Run, cell: dict[str, Any]) -> str:
    if "seconds" not in cell:
        return "DNF" if "dnf" in cell else NOTHING
    return _rounded(cell["seconds"] / cell["deltas"] * 1e6)


def _times_floor(run: Run, cell: dict[str, Any], *, node: bool = False) -> str:
    floor = run["cells"].get(cell.get("case", ""), {}).get(_FLOOR, {})
    if "seconds" not in cell or "seconds" not in floor:
        return "DNF" if "dnf" in cell else NOTHING
    ratio = (cell["seconds"] / cell["deltas"]) / (floor["seconds"] / floor["deltas"])
    return f"({_rounded(ratio)})" if node else _rounded(ratio)


def _seconds(run: Run, cell: dict[str, Any]) -> str:
    if "seconds" in cell:
        return f"{cell['seconds']:.4f}"
    return f"DNF ({cell['dnf']})" if "dnf" in cell else NOTHING


def _faults(run: Run, cell: dict[str, Any]) -> str:
    if "raised" in cell:
        return "raised"
    verdict = cell.get("verdict")
    return f"{verdict['lost']} / {verdict['leaked']} / {verdict['wrong']}" if verdict else NOTHING


def _growth(run: Run) -> str:
    lines = []
    for row in _parsers(run):
        figures = (exponent(run["cells"], row["key"], *pair) for pair in _GROWTHS)
        lines.append([row["name"], row["format"], *(_exponent(figure) for figure in figures)])
    return _table(["", "format", *(f"{small} → {large}" for small, large in _GROWTHS)], lines)


def _exponent(figure: float | str | None) -> str:
    return f"{figure:.2f}" if isinstance(figure, float) else figure or NOTHING


def _last_growth(run: Run, row: Row) -> str:
    figures = (exponent(run["cells"], row["key"], *pair) for pair in pairwise(ARGUMENTS))
    measured = [figure for figure in figures if isinstance(figure, float)]
    return f"{measured[-1]:.2f}" if measured else NOTHING


def _cut(run: Run) -> str:
    heads = [
        "",
        "format",
        "stream",
        "different results",
        *(f"{kind}: faulty / lost / leaked / wrong" for kind in _PIECES),
    ]
    lines = []
    for row in _parsers(run):
        streams = run["cut"].get(row["key"], [])
        faulty = [
            each for each in streams if each["results"] > 1 or any(each[kind]["faulty"] for kind in _PIECES.values())
        ]
        for each in faulty:
            figures = [_faults_of(each[kind], each["calls"]) for kind in _PIECES.values()]
            lines.append([row["name"], row["format"], each["stream"], str(each["results"]), *figures])
        if len(faulty) < len(streams):
            rest = f"the other {len(streams) - len(faulty)}" if faulty else f"all {len(streams)}"
            lines.append([row["name"], row["format"], rest, "1", *("none" for _ in _PIECES)])
    return _table(heads, lines)


_PIECES = {"whole tokens": "tokens", "small deltas": "small", "large deltas": "large"}


def _faults_of(figures: dict[str, int], calls: int) -> str:
    if not figures["faulty"]:
        return "none"
    raised = f", {figures['raised']} raised" if figures["raised"] else ""
    faulty = f"{figures['faulty']} of {figures['cuttings']}{raised}"
    return f"{faulty} / {figures['lost']} / {figures['leaked']} / {figures['wrong']} of {calls}"


def _promptness(run: Run) -> str:
    heads = [
        "",
        "format",
        "buffered in prose",
        "in near-markers",
        "name reported after",
        "argument reported after",
        "pieces",
    ]
    lines = []
    for row in _parsers(run):
        soon = {case: _cell(run, row, case).get("soon", {}) for case in PROMPT}
        if any(soon.values()):
            held = [_known(soon[case].get("held")) for case in ("prose_10k", "near_40K")]
            told = [_known(soon["arg_1K"].get(name)) for name in ("named", "argued", "steps")]
            lines.append([row["name"], row["format"], *held, *told])
    note = (
        "Buffered: the most characters that were buffered although no marker of that parser begins with them. Reported "
        "after: deltas from the deciding delta to the report, in arg_1K. Pieces: of its arguments. On Node with a "
        "pause of 4 ms after each delta, because its progress waits for a timer."
    )
    return _table(heads, lines) + "\n\n" + note


def _known(figure: object) -> str:
    return "–" if figure is None else str(figure)


def _json(run: Run) -> str:
    cases = [case for case in (*ARGUMENTS, "wide_2000") if case in run["cells"]]
    rows = [row for row in run["rows"] if row["group"] == "json" or row["key"] == "streamtools hermes_json [hermes]"]
    lines = [[row["name"], *(_microseconds(run, _cell(run, row, case)) for case in cases)] for row in rows]
    return _table(["", *cases], lines)


def _versions(run: Run) -> str:
    return _table(["", "version"], [[row["name"], row["version"]] for row in run["rows"]])


def _rounded(figure: float) -> str:
    return f"{figure:,.0f}" if figure >= 20 else f"{figure:.1f}" if figure >= 10 else f"{figure:.2f}"


def _table(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rule = ["---", *("---:" for _ in heads[1:])]
    return "\n".join(f"| {' | '.join(line)} |" for line in [heads, rule, *lines])
