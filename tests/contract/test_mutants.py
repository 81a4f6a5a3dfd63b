"""The contract can fail: each mutant is killed by the clause that it names, and the honest storage by none."""

from __future__ import annotations

import pytest

from branchpoint.testing import validate
from branchpoint.testing.mutants import MUTANTS, HonestStorage, Mutant, VaultPlace

# What the honest storage does not claim, and what its place cannot do: it is in the memory of one process.
NOT_CLAIMED = ("listing", "lazy", "processes", "running.a_run_fetches")


def test_the_honest_storage_that_the_mutants_are_made_of_breaks_no_clause() -> None:
    report = validate(VaultPlace)
    assert report.ok, str(report)
    skipped = [one.clause for one in report.outcomes if one.result == "skipped"]
    assert [one for one in skipped if not one.startswith(NOT_CLAIMED)] == []


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_each_mutant_is_killed_by_the_clause_it_names(mutant: Mutant) -> None:
    assert issubclass(mutant.storage, HonestStorage)
    report = validate(lambda: VaultPlace(mutant.storage), only=[mutant.killed_by])
    (outcome,) = report.outcomes
    assert outcome.result == "failed", str(report)
    assert outcome.why
    assert not report.ok
    assert f"FAIL {mutant.killed_by}: " in str(report)


def test_every_way_to_break_a_storage_has_a_mutant_of_its_own() -> None:
    assert len({mutant.storage for mutant in MUTANTS}) == len(MUTANTS)
    assert len({mutant.killed_by for mutant in MUTANTS}) == len(MUTANTS)
