"""Tests of the laws: each planted fault must break its law. The parser is wrong at one position."""

from __future__ import annotations

import pytest
from hypothesis import Phase

from streamtools.parsing.dialects import TAUGHT_DIALECTS
from tests.parsing.faults import FAULTS, Fault
from tests.parsing.laws import FEW, LAWS, Ids, LawBroken, check
from tests.support.variants import KNOWN

SOME: list[Ids] = [
    TAUGHT_DIALECTS,
    *((each,) for each in (
        "hash_marker", "tilde_fence", "hermes_json", "kimi_k2", "mistral_args", "qwen3_coder_xml", "glm_xml",
        "minimax_m2_xml", "kimi_k3_xtml", "minimax_m3_xml", "lfm2_pythonic", "gemma4",
    )),
]  # fmt: skip
"""Sets of dialects, of each way to write arguments."""

EACH = pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)


def catches(law: str, ids: Ids, examples: int) -> bool:
    """Return whether one of the texts breaks the law."""
    try:
        check(ids, examples, [law], derandomize=True, database=None, phases=[Phase.generate])
    except LawBroken as broken:
        if not isinstance(broken.__cause__, AssertionError | ValueError):
            raise  # the fault is not planted any more where it was
        return True
    return False


def test_every_law_catches_a_fault() -> None:
    assert set(LAWS) == {fault.law for fault in FAULTS.values()}


@EACH
def test_a_planted_fault_is_caught(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the quick tests, for any enabled dialects."""
    sets = [ids for ids in SOME if fault.dialects.intersection(ids)]
    assert sets
    fault.plant(monkeypatch)

    assert [] == [ids for ids in sets if not catches(fault.law, ids, FEW)]


@pytest.mark.deep
@EACH
def test_a_planted_fault_is_caught_in_each_dialect(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    """With this dialect alone, and at most a hundred texts."""
    fault.plant(monkeypatch)

    assert [] == [each for each in KNOWN if each in fault.dialects and not catches(fault.law, (each,), 100)]
