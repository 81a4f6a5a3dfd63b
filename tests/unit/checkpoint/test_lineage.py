from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from branchpoint.checkpoint import check_lineage, children, common_ancestor, is_ancestor, path_to_root
from branchpoint.checkpoint._lineage import gaps_after_prune
from branchpoint.errors import CorruptCheckpointError

Parents = dict[str, str | None]


@st.composite
def lineages(draw: st.DrawFn) -> Parents:
    parents: Parents = {}
    for number in range(draw(st.integers(1, 25))):
        known = [None, *parents]
        parents[f"s{number}"] = draw(st.sampled_from(known))
    return parents


def check(parents: list[tuple[str, str | None]], head: str | None, pruned: Parents | None = None) -> None:
    check_lineage(parents, head=head, pruned=pruned or {}, checkpoint_id="cp")


@given(lineages(), st.data())
def test_the_law_holds_for_every_history_and_survives_every_prune(
    parents: Parents, data: st.DataObject
) -> None:
    head = data.draw(st.sampled_from(list(parents)))
    check(list(parents.items()), head)
    pruned: Parents = {}
    original = dict(parents)
    for _ in range(data.draw(st.integers(1, 3))):
        keep = {found for found in parents if data.draw(st.booleans())} | {head}
        pruned = gaps_after_prune(parents, keep, pruned)
        parents = {found: parent for found, parent in parents.items() if found in keep}
        check(list(parents.items()), head, pruned)
        # Across the gaps, a retained snapshot still has exactly its retained ancestors.
        for found in parents:
            true_path = [name for name in path_to_root(original, found) if name in parents]
            assert list(path_to_root(parents, found, pruned)) == true_path


@given(lineages(), st.data())
def test_one_order_only_parents_first(parents: Parents, data: st.DataObject) -> None:
    entries = data.draw(st.permutations(list(parents.items())))
    seen: set[str] = set()
    lawful = True
    for found, parent in entries:
        lawful = lawful and (parent is None or parent in seen)
        seen.add(found)
    if lawful:
        check(entries, entries[-1][0])
    else:
        with pytest.raises(CorruptCheckpointError, match="cp"):
            check(entries, entries[-1][0])


@given(lineages(), st.data())
def test_ancestors_and_children_agree(parents: Parents, data: st.DataObject) -> None:
    one, other = (data.draw(st.sampled_from(list(parents))) for _ in range(2))
    assert is_ancestor(parents, one, one)
    assert is_ancestor(parents, one, other) == (one in path_to_root(parents, other))
    for child in children(parents, one):
        assert parents[child] == one
    assert sum(len(children(parents, found)) for found in [None, *parents]) == len(parents)
    shared = common_ancestor(parents, one, other)
    if shared is None:
        assert not set(path_to_root(parents, one)) & set(path_to_root(parents, other))
    else:
        assert is_ancestor(parents, shared, one)
        assert is_ancestor(parents, shared, other)
        assert not any(
            is_ancestor(parents, below, one) and is_ancestor(parents, below, other)
            for below in children(parents, shared)
        )


@pytest.mark.parametrize(
    ("entries", "head", "says"),
    [
        ([("a", None), ("a", None)], "a", "two snapshots 'a'"),
        ([("a", "b"), ("b", "a")], "a", "cycle"),
        ([("a", "a")], "a", "cycle"),
        ([("a", None), ("b", "gone")], "b", "parent 'gone' of snapshot 'b' is missing"),
        ([("a", None)], "b", "head 'b' is not one"),
        ([("a", None)], None, "no head"),
        ([], "a", "head 'a' is not one"),
        ([("", None)], "", "no id"),
    ],
)
def test_what_breaks_the_law_is_named(
    entries: list[tuple[str, str | None]], head: str | None, says: str
) -> None:
    with pytest.raises(CorruptCheckpointError, match=says):
        check(entries, head)


def test_a_gap_must_lead_to_a_snapshot_that_is_there() -> None:
    check([("c", "b")], "c", {"b": None})
    check([("a", None), ("c", "b")], "c", {"b": "a"})
    with pytest.raises(CorruptCheckpointError, match="ancestor 'a'"):
        check([("c", "b")], "c", {"b": "a"})
    with pytest.raises(CorruptCheckpointError, match="recorded as pruned"):
        check([("b", None), ("c", "b")], "c", {"b": None})


def test_an_empty_lineage_is_lawful() -> None:
    check([], None)
