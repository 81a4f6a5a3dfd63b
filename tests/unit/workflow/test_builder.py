"""The builder: what it takes, what it refuses, and that what it builds is private."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any, Never

import pytest

from branchpoint.errors import (
    DefinitionError,
    EdgeDuplicationError,
    GraphConnectivityError,
    ValidationTypeEnum,
    WorkflowValidationError,
)
from branchpoint.graph import (
    Case,
    Default,
    Executor,
    Factory,
    FunctionExecutor,
    Graph,
    WorkflowContext,
    append,
    executor,
    handler,
)
from branchpoint.workflow import WorkflowBuilder, WorkflowViz


class Text(Executor):
    def __init__(self, id: str, words: list[str] | None = None) -> None:
        super().__init__(id=id)
        self.words = words if words is not None else []

    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[str, str]) -> None: ...


class Join(Executor):
    @handler
    async def on_texts(self, texts: list[str], ctx: WorkflowContext[Never, str]) -> None: ...


class Silent(Executor):
    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[str]) -> None: ...


@executor(id="shout")
async def shout(text: str, ctx: WorkflowContext[str, str]) -> None: ...


async def whisper(text: str, ctx: WorkflowContext[str, str]) -> None: ...


def is_long(text: str) -> bool:
    return len(text) > 3


def pick(text: str, ids: list[str]) -> list[str]:
    return ids


def ids(graph: Graph) -> list[str]:
    return [group.id for group in graph.groups]


def test_settings_reach_the_graph() -> None:
    graph = WorkflowBuilder(7, "n", "what for", start_executor=Text("a"), undelivered="drop").build_graph()
    assert (graph.max_iterations, graph.name, graph.description) == (7, "n", "what for")
    assert (graph.start_id, graph.undelivered) == ("a", "drop")
    plain = WorkflowBuilder(start_executor=Text("a")).build_graph()
    assert (plain.max_iterations, plain.name, plain.undelivered) == (100, None, "raise")


def test_every_way_of_connecting() -> None:
    a, b, c, d, j = Text("a"), Text("b"), Text("c"), Text("d"), Join(id="j")
    graph = (
        WorkflowBuilder(start_executor=a)
        .add_edge(a, a, is_long)
        .add_fan_out_edges(a, [b, c])
        .add_fan_in_edges([c, b], j, keep=True)
        .add_switch_case_edge_group(b, [Case(is_long, a), Case(bool, d), Default(d)])
        .add_multi_selection_edge_group(c, [a, d], pick)
        .add_chain([d, b, c])
        .build_graph()
    )
    assert ids(graph) == [
        "single:a->a",
        "fan_out:a->b,c",
        "fan_in:b,c->j",
        "switch_case:b->a,d",
        "multi_selection:c->a,d",
        "single:d->b",
        "single:b->c",
    ]
    assert list(graph.executors) == ["a", "b", "c", "j", "d"]
    assert graph.groups[0].edges[0].condition is is_long
    assert graph.groups[2].source_ids == ("c", "b")
    assert graph.groups[2].keep
    assert [branch.condition_name for branch in graph.groups[3].branches] == ["is_long", "bool", None]
    assert graph.groups[4].selection is pick


def test_ids_stand_for_executors_already_given() -> None:
    graph = (
        WorkflowBuilder(start_executor=Text("a")).add_edge("a", Text("b")).add_edge("b", "a").build_graph()
    )
    assert ids(graph) == ["single:a->b", "single:b->a"]
    with pytest.raises(DefinitionError, match=r"no executor 'b' in this builder yet; it has \['a'\]"):
        WorkflowBuilder(start_executor=Text("a")).add_edge("a", "b")
    with pytest.raises(DefinitionError, match="no executor 'a' in this builder yet"):
        WorkflowBuilder(start_executor="a")


def test_functions_are_executors() -> None:
    graph = (
        WorkflowBuilder(start_executor=shout).add_edge(shout, whisper).add_edge(whisper, shout).build_graph()
    )
    assert list(graph.executors) == ["shout", "whisper"]
    assert all(isinstance(each, FunctionExecutor) for each in graph.executors.values())


def test_a_bound_method_is_one_executor_however_often_it_is_given() -> None:
    class Service:
        async def answer(self, text: str, ctx: WorkflowContext[str, str]) -> None: ...

    service = Service()
    graph = (
        WorkflowBuilder(start_executor=service.answer)
        .add_edge(service.answer, whisper)
        .add_edge(whisper, service.answer)
        .build_graph()
    )
    assert list(graph.executors) == ["answer", "whisper"]


def test_two_functions_of_one_name_are_refused() -> None:
    def other() -> Any:
        async def whisper(text: str, ctx: WorkflowContext[str, str]) -> None: ...

        return whisper

    with pytest.raises(WorkflowValidationError, match="Two executors have the id 'whisper'"):
        WorkflowBuilder(start_executor=whisper).add_edge(whisper, other())


def test_two_executors_with_one_id_are_refused() -> None:
    builder = WorkflowBuilder(start_executor=Text("a"))
    with pytest.raises(WorkflowValidationError, match=r"id 'a' \(Text and Join\)") as caught:
        builder.add_edge("a", Join(id="a"))
    assert caught.value.validation_type is ValidationTypeEnum.EXECUTOR_DUPLICATION
    with pytest.raises(WorkflowValidationError, match="id 'x'"):
        builder.add_fan_out_edges("a", [Text("x"), Text("x")])
    assert ids(builder.build_graph()) == []


def test_a_refused_call_adds_nothing() -> None:
    builder = WorkflowBuilder(start_executor=Text("a"))
    calls: list[Callable[[], Any]] = [
        lambda: builder.add_fan_out_edges("a", [Text("b")]),
        lambda: builder.add_fan_in_edges(["a"], Text("b")),
        lambda: builder.add_chain([Text("b")]),
        lambda: builder.add_edge(Text("b"), Text),
        lambda: builder.add_edge("a", Text("b"), condition="x"),  # type: ignore[arg-type]
        lambda: builder.add_switch_case_edge_group("a", [Default(Text("b"))]),
        lambda: builder.add_multi_selection_edge_group("a", [Text("b"), Text("c")], None),  # type: ignore[arg-type]
    ]
    for refused in calls:
        with pytest.raises(DefinitionError):
            refused()
    graph = builder.build_graph()
    assert list(graph.executors) == ["a"]
    assert graph.groups == ()


@pytest.mark.parametrize(
    ("candidate", "message"),
    [
        (Text, r"not classes: write Text\(id=...\), or Factory\(Text, id=...\)"),
        (3, "a builder takes an Executor, .* got int"),
        (None, "a builder takes an Executor, .* got NoneType"),
        (object(), "got object"),
    ],
)
def test_what_is_no_executor_is_refused(candidate: Any, message: str) -> None:
    with pytest.raises(DefinitionError, match=f"(?i){message}"):
        WorkflowBuilder(start_executor=candidate)


def test_a_workflow_is_not_taken_for_an_agent() -> None:
    class Built:
        def __init__(self) -> None:
            self.graph = WorkflowBuilder(start_executor=Text("a")).build_graph()
            self.name = "inner"

        def run(self) -> None: ...

    with pytest.raises(DefinitionError, match="wrap it, WorkflowExecutor"):
        WorkflowBuilder(start_executor=Built())  # type: ignore[arg-type]


def test_an_agent_is_wrapped_once_under_its_name() -> None:
    class Agent:
        id = "agent-1"
        name = "helper"

        async def run(self, messages: Any) -> None: ...

    agent = Agent()
    workflow = WorkflowBuilder(start_executor=agent).add_edge(agent, agent).build()
    (wrapped,) = workflow.get_executors_list()
    assert (wrapped.id, wrapped.type) == ("helper", "AgentExecutor")


def test_a_partial_is_a_function_that_needs_an_id() -> None:
    partial = functools.partial(whisper)
    with pytest.raises(DefinitionError, match="has no name to serve as id"):
        WorkflowBuilder(start_executor=partial)
    graph = WorkflowBuilder(start_executor=FunctionExecutor(partial, id="quiet")).build_graph()
    assert list(graph.executors) == ["quiet"]
    assert graph.signature["executors"]["quiet"] == {"type": "whisper"}


def test_a_bare_function_may_use_the_types_of_its_scope() -> None:
    class Local:
        pass

    async def take(message: Local, ctx: WorkflowContext[Local]) -> None: ...

    graph = WorkflowBuilder(start_executor=take).add_edge(take, take).build_graph()
    assert graph.executors["take"].input_types == [Local]


def test_a_factory_is_asked_at_build_and_for_each_run() -> None:
    made: list[str] = []

    def make() -> Executor:
        made.append("one")
        return Text("a")

    factory = Factory(make, id="a")
    builder = WorkflowBuilder(start_executor=factory).add_edge(factory, Text("b"))
    assert made == []
    graph = builder.build_graph()
    assert len(made) == 1
    assert isinstance(graph.spawn("a"), Text)
    assert len(made) == 2


def test_a_factory_of_another_id_is_refused() -> None:
    with pytest.raises(DefinitionError, match=r"Factory\(id='a'\) made an executor with id 'b'"):
        WorkflowBuilder(start_executor=Factory(lambda: Text("b"), id="a")).build_graph()


def test_build_makes_private_copies() -> None:
    mine = Text("a", words=["x"])
    builder = WorkflowBuilder(name="n", start_executor=mine)
    first, second = builder.build_graph(), builder.build_graph()
    assert first.executors["a"] is not mine
    assert first.executors["a"] is not second.executors["a"]
    mine.words.append("y")
    mine.id = "other"
    ours = first.executors["a"]
    assert isinstance(ours, Text)
    assert ours.words == ["x"]
    assert ours.id == "a"
    ours.words.append("z")
    theirs = second.executors["a"]
    assert isinstance(theirs, Text)
    assert theirs.words == ["x"]


def test_build_gives_a_workflow_of_its_own_each_time() -> None:
    builder = WorkflowBuilder(name="n", start_executor=Text("a"))
    first, second = builder.build(), builder.build()
    assert first is not second
    assert first.name == second.name == "n"
    assert first.graph is not second.graph
    assert first.graph.executors["a"] is not second.graph.executors["a"]
    assert first.graph_signature_hash == second.graph_signature_hash
    assert WorkflowViz(first).to_mermaid() == WorkflowViz(second).to_mermaid()


def test_the_builder_can_go_on_after_a_build() -> None:
    builder = WorkflowBuilder(name="n", start_executor=Text("a"))
    first = builder.build_graph()
    second = builder.add_edge("a", Text("b")).add_state("k").build_graph()
    assert list(first.executors) == ["a"]
    assert first.groups == ()
    assert first.state_keys == {}
    assert list(second.executors) == ["a", "b"]
    assert list(second.state_keys) == ["k"]


def test_one_executor_may_serve_two_workflows() -> None:
    shared = Text("a")
    one = WorkflowBuilder(start_executor=shared).add_edge(shared, shared).build_graph()
    two = WorkflowBuilder(start_executor=shared).add_edge(shared, Text("b")).build_graph()
    assert one.executors["a"] is not two.executors["a"]


def test_the_same_definition_has_the_same_hash_each_time() -> None:
    def build() -> Graph:
        return WorkflowBuilder(name="n", start_executor=shout).add_edge(shout, whisper, is_long).build_graph()

    assert build().signature_hash == build().signature_hash


def test_validation_runs_at_build() -> None:
    a, b = Text("a"), Text("b")
    with pytest.raises(EdgeDuplicationError):
        WorkflowBuilder(start_executor=a).add_edge(a, b).add_edge(a, b, is_long).build_graph()
    with pytest.raises(GraphConnectivityError):
        WorkflowBuilder(start_executor=a).add_edge(b, a).build_graph()
    with pytest.raises(DefinitionError, match="max_iterations"):
        WorkflowBuilder(max_iterations=0, start_executor=a).build_graph()


def test_a_description_is_a_text() -> None:
    with pytest.raises(DefinitionError, match="description of a workflow is a text, got 5"):
        WorkflowBuilder(description=5, start_executor=Text("a"))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["", 3])
def test_a_name_is_a_text(name: Any) -> None:
    with pytest.raises(DefinitionError, match="name of a workflow is a text"):
        WorkflowBuilder(name=name, start_executor=Text("a"))


def test_a_chain_is_a_row() -> None:
    a, b = Text("a"), Text("b")
    with pytest.raises(DefinitionError, match="at least two executors, got 1"):
        WorkflowBuilder(start_executor=a).add_chain([a])
    with pytest.raises(DefinitionError, match="'a' comes twice in one chain; close a loop with add_edge"):
        WorkflowBuilder(start_executor=a).add_chain([a, b, a])


def test_lists_must_be_lists() -> None:
    builder = WorkflowBuilder(start_executor=Text("a"))
    with pytest.raises(DefinitionError, match="targets must be a list, got Text"):
        builder.add_fan_out_edges("a", Text("b"))  # type: ignore[arg-type]
    with pytest.raises(DefinitionError, match="sources must be a list, got str"):
        builder.add_fan_in_edges("a", Text("b"))
    with pytest.raises(DefinitionError, match=r"A switch takes Case.* got Text"):
        builder.add_switch_case_edge_group("a", [Text("b"), Text("c")])  # type: ignore[list-item]
    with pytest.raises(DefinitionError, match="condition of a Case must be a function"):
        builder.add_switch_case_edge_group("a", [Case(True, "a"), Default("a")])  # type: ignore[arg-type]


def test_a_switch_may_be_given_as_an_iterator() -> None:
    a, b = Text("a"), Text("b")
    builder = WorkflowBuilder(start_executor=a)
    builder.add_switch_case_edge_group(a, iter([Case(is_long, b), Default(a)]))  # type: ignore[arg-type]
    assert ids(builder.build_graph()) == ["switch_case:a->a,b"]


def test_cases_stay_as_they_were_given() -> None:
    a, b = Text("a"), Text("b")
    case = Case(is_long, b)
    WorkflowBuilder(start_executor=a).add_switch_case_edge_group(a, [case, Default(a)])
    assert case.target is b


def test_state_keys_are_declared_once() -> None:
    builder = WorkflowBuilder(start_executor=Text("a"))
    builder.add_state("total", type=int, default=0, reducer=operator.add)
    builder.add_state("words", type=list[str], reducer=append).add_state("free")
    graph = builder.build_graph()
    assert list(graph.state_keys) == ["total", "words", "free"]
    assert graph.state_keys["total"].initial() == 0
    assert graph.state_keys["words"].initial() == []
    with pytest.raises(DefinitionError, match="'total' is declared already"):
        builder.add_state("total")
    builder.add_state("wrong", type=int, default="x")
    with pytest.raises(DefinitionError, match="'wrong' is declared as int"):
        builder.build_graph()


def selected(**selections: Any) -> tuple[Any, Any]:
    a, b, s = Text("a"), Text("b"), Silent(id="s")
    graph = WorkflowBuilder(start_executor=a, **selections).add_chain([a, b, s]).build_graph()
    outputs = None if graph.output_ids is None else sorted(graph.output_ids)
    return outputs, sorted(graph.intermediate_ids)


def test_outputs_are_selected() -> None:
    assert selected() == (None, [])
    assert selected(output_from="all") == (["a", "b"], [])
    assert selected(output_from=["a"]) == (["a"], [])
    assert selected(output_from=[Text("b")]) == (["b"], [])
    assert selected(output_from=["a"], intermediate_output_from="all_other") == (["a"], ["b"])
    assert selected(intermediate_output_from="all_other") == ([], ["a", "b"])
    assert selected(intermediate_output_from="all") == ([], ["a", "b"])
    assert selected(output_from=[], intermediate_output_from=["b"]) == ([], ["b"])


@pytest.mark.parametrize(
    ("selections", "message"),
    [
        ({"output_from": "all_other"}, "output_from must be 'all', or a list"),
        ({"intermediate_output_from": "some"}, "must be 'all' or 'all_other', or a list"),
        ({"output_from": ["a", "a"]}, r"names executors \['a'\] more than once"),
        ({"output_from": ["x"]}, "names an executor 'x' that is not in the graph"),
        ({"output_from": ["s"]}, "names executor 's', which declares no output"),
        ({"output_from": []}, "select no executor"),
        (
            {"output_from": "all", "intermediate_output_from": "all"},
            r"\['a', 'b'\] are in output_from and in",
        ),
        ({"output_from": 3}, "must be a list of executors, got int"),
        ({"output_from": [3]}, "got int"),
    ],
)
def test_wrong_selections_are_refused(selections: Any, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        selected(**selections)


def test_functions_and_factories_can_be_selected() -> None:
    factory = Factory(lambda: Text("made"), id="made")
    graph = (
        WorkflowBuilder(start_executor=whisper, output_from=[whisper], intermediate_output_from=[factory])
        .add_edge(whisper, factory)
        .build_graph()
    )
    assert graph.output_ids == frozenset({"whisper"})
    assert graph.intermediate_ids == frozenset({"made"})


def test_r08_the_builder_knows_no_storage() -> None:
    with pytest.raises(TypeError, match="checkpoint_storage"):
        WorkflowBuilder(start_executor=Text("a"), checkpoint_storage=None)  # type: ignore[call-arg]
