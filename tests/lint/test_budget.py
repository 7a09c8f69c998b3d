"""A folder that grew or shrank is named with its budget and the way out."""

from __future__ import annotations

import tomllib

import pytest

from multiberts.tests.lint import budget

BUDGETS = {"bert": {"lines": 8200, "commands": 4}, "runs": {"lines": 5400, "commands": 0}}


def test_a_folder_within_its_budget_is_not_named() -> None:
    assert budget.differences(BUDGETS, BUDGETS) == ([], [])


def test_a_folder_that_grew_is_named_and_one_that_shrank_is_to_be_lowered() -> None:
    sizes = {"bert": {"lines": 8400, "commands": 4}, "runs": {"lines": 5200, "commands": 0}}
    [grown], [shrunk] = budget.differences(sizes, BUDGETS)
    assert grown.startswith("bert/ has up to 8,400 lines, its budget is 8,200; make it lighter")
    assert shrunk.startswith("runs/ has up to 5,200 lines") and "make budget" in shrunk
    lowered = tomllib.loads(budget.lowered(sizes, BUDGETS))
    assert lowered == {"bert": BUDGETS["bert"], "runs": sizes["runs"]}


def test_only_a_folder_above_its_budget_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = tomllib.loads(budget.FILE.read_text())
    monkeypatch.setattr(budget, "weights", lambda: sizes)
    sizes["runs"]["lines"] -= budget.STEP
    budget.main([])
    assert capsys.readouterr().out.startswith("runs/ has up to")
    sizes["stats"]["files"] += 1
    with pytest.raises(SystemExit, match=r"^stats/ has"):
        budget.main([])


def test_every_folder_is_weighed() -> None:
    sizes = budget.weights()
    assert all(size["lines"] > 0 and size["files"] > 0 for size in sizes.values())
    assert all(size["lines"] % budget.STEP == 0 for size in sizes.values())
    assert sum(size["commands"] for size in sizes.values()) == len(budget.COMMANDS)
