"""The graph: read-only, routed beforehand, and the source of run-scoped executors."""

from __future__ import annotations

import dataclasses

import pytest

from branchpoint.errors import DefinitionError, ExecutorStateError
from branchpoint.graph import EdgeGroup, Executor, Factory, Graph, WorkflowContext, handler, state
from tests.unit.graph.shapes import Count, JoinText, Text, graph_of


class Tally(Executor):
    seen: list[str] = state(factory=list)

    @handler
    async def on_word(self, word: str, ctx: WorkflowContext[str]) -> None:
        self.seen.append(word)


def diamond() -> Graph:
    executors = [Text(id="src"), Text(id="b"), Text(id="c"), JoinText(id="j")]
    groups = [
        EdgeGroup.single("c", "src"),
        EdgeGroup.fan_out("src", ["b", "c"]),
        EdgeGroup.fan_in(["b", "c"], "j"),
    ]
    return graph_of(executors, groups)


def test_routing_is_in_declared_order() -> None:
    graph = diamond()
    assert [group.id for group in graph.groups_from("c")] == ["single:c->src", "fan_in:b,c->j"]
    assert [group.id for group in graph.groups_from("b")] == ["fan_in:b,c->j"]
    assert graph.groups_from("j") == ()
    assert graph.groups_from("nobody") == ()
    assert graph.group("fan_in:b,c->j") is graph.groups[2]
    assert graph.group("fan_in:c->j") is None
    assert [graph.order(key) for key in ("src", "b", "c", "j")] == [0, 1, 2, 3]
    with pytest.raises(KeyError):
        graph.order("nobody")


def test_a_graph_cannot_be_changed() -> None:
    graph = diamond()
    with pytest.raises(dataclasses.FrozenInstanceError):
        graph.name = "other"  # type: ignore[misc]
    with pytest.raises(TypeError):
        graph.executors["x"] = Text(id="x")  # type: ignore[index]
    with pytest.raises(TypeError):
        graph.state_keys["x"] = None  # type: ignore[index]


def test_a_graph_keeps_its_own_mappings() -> None:
    executors: dict[str, Executor] = {"a": Text(id="a")}
    graph = Graph(start_id="a", executors=executors)
    executors["b"] = Text(id="b")
    assert list(graph.executors) == ["a"]


def test_a_run_gets_its_own_executor() -> None:
    tally = Tally(id="tally")
    graph = graph_of([tally])
    first, second = graph.spawn("tally"), graph.spawn("tally")
    assert isinstance(first, Tally)
    assert isinstance(second, Tally)
    first.seen.append("x")
    assert second.seen == []
    with pytest.raises(ExecutorStateError):
        _ = tally.seen


def test_a_factory_makes_each_runs_executor() -> None:
    made: list[Text] = []

    def make() -> Text:
        made.append(Text(id="a"))
        return made[-1]

    graph = graph_of([make()], factories={"a": Factory(make, id="a")})
    assert isinstance(graph.spawn("a"), Text)
    assert isinstance(graph.spawn("a"), Text)
    assert len(made) == 3


def test_a_factory_that_makes_something_else_is_refused() -> None:
    graph = graph_of([Text(id="a")], factories={"a": Factory(lambda: Count(id="a"), id="a")})
    with pytest.raises(DefinitionError, match=r"made a Count when the workflow was built with a Text"):
        graph.spawn("a")


def test_an_unknown_executor_cannot_be_spawned() -> None:
    with pytest.raises(
        DefinitionError, match=r"no executor 'x' in this workflow; it has \['src', 'b', 'c', 'j'\]"
    ):
        diamond().spawn("x")
