"""What validation refuses, and that it says who and what to do."""

from __future__ import annotations

from typing import Any, Never

import pytest

from branchpoint.errors import (
    DefinitionError,
    EdgeDuplicationError,
    GraphConnectivityError,
    TypeCompatibilityError,
    ValidationTypeEnum,
    WorkflowValidationError,
)
from branchpoint.graph import (
    EdgeGroup,
    Executor,
    Graph,
    StateKey,
    SwitchBranch,
    WorkflowContext,
    handler,
    response_handler,
    validate_graph,
)
from tests.unit.graph.shapes import Count, JoinText, Quiet, Text, graph_of


class Parse(Executor):
    """Takes text, sends a number."""

    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[int]) -> None: ...


class Both(Executor):
    """Takes text, sends text or a number."""

    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[str | int]) -> None: ...


class JoinTwo(Executor):
    """Takes a list of texts, or a list of numbers."""

    @handler
    async def on_texts(self, texts: list[str], ctx: WorkflowContext[Never, str]) -> None: ...

    @handler
    async def on_numbers(self, numbers: list[int], ctx: WorkflowContext[Never, str]) -> None: ...


class JoinMixed(Executor):
    @handler
    async def on_list(self, items: list[str | int], ctx: WorkflowContext[Never, str]) -> None: ...


class JoinAny(Executor):
    @handler
    async def on_list(self, items: list, ctx: WorkflowContext[Never, str]) -> None: ...  # type: ignore[type-arg]


class Sink(Executor):
    """Takes text, sends and yields nothing."""

    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[Never]) -> None: ...


class HalfDeclared(Executor):
    """Declares what one handler sends, and leaves the other open."""

    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[int]) -> None: ...

    @handler
    async def on_number(self, number: int, ctx: WorkflowContext) -> None: ...


class AsksAndSendsNumbers(Executor):
    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[Never]) -> None: ...

    @response_handler
    async def on_answer(self, request: str, answer: bool, ctx: WorkflowContext[int]) -> None: ...


def single(*ends: tuple[str, str]) -> list[EdgeGroup]:
    return [EdgeGroup.single(source, target) for source, target in ends]


def texts(*ids: str) -> list[Executor]:
    return [Text(id=key) for key in ids]


def test_a_lone_executor_is_a_graph() -> None:
    assert validate_graph(graph_of(texts("a"))) == [
        "executors ['a'] have no outgoing edge; what they send ends there"
    ]


def test_loops_are_legal_and_remarked_on() -> None:
    assert validate_graph(graph_of(texts("a"), single(("a", "a")))) == [
        "executor 'a' sends to itself along 'a->a'; it ends when it stops sending"
    ]
    assert validate_graph(graph_of(texts("a", "b"), single(("a", "b"), ("b", "a")))) == []


@pytest.mark.parametrize(
    "groups",
    [
        single(("a", "b"), ("a", "b")),
        [EdgeGroup.single("a", "b", bool), EdgeGroup.single("a", "b", any)],
        [EdgeGroup.fan_out("a", ["b", "b"])],
        [EdgeGroup.fan_out("a", ["b", "c"]), EdgeGroup.single("a", "b")],
        [EdgeGroup.fan_in(["a", "a"], "b")],
    ],
)
def test_two_edges_between_the_same_executors_are_refused(groups: list[EdgeGroup]) -> None:
    with pytest.raises(EdgeDuplicationError, match="two edges from 'a' to 'b'") as caught:
        validate_graph(graph_of(texts("a", "b", "c"), groups))
    assert caught.value.validation_type is ValidationTypeEnum.EDGE_DUPLICATION


def test_there_and_back_are_two_edges() -> None:
    assert validate_graph(
        graph_of(texts("a->b", "c", "a", "b->c"), single(("a->b", "c"), ("c", "a"), ("a", "b->c")))
    )


def test_a_missing_start_is_refused() -> None:
    with pytest.raises(
        GraphConnectivityError, match=r"start executor 'x' is not in the graph; it has \['a'\]"
    ):
        validate_graph(graph_of(texts("a"), start_id="x"))


@pytest.mark.parametrize("ends", [("a", "x"), ("x", "a")])
def test_an_edge_into_nowhere_is_refused(ends: tuple[str, str]) -> None:
    with pytest.raises(
        GraphConnectivityError, match="names an executor 'x' that is not in the graph"
    ) as caught:
        validate_graph(graph_of(texts("a"), single(ends)))
    assert caught.value.validation_type is ValidationTypeEnum.GRAPH_CONNECTIVITY


@pytest.mark.parametrize(
    ("groups", "lost"),
    [
        ([], ["b", "c"]),
        (single(("a", "b")), ["c"]),
        (single(("b", "a"), ("c", "a")), ["b", "c"]),
        (single(("b", "c"), ("c", "b")), ["b", "c"]),
    ],
)
def test_executors_that_nothing_leads_to_are_refused(groups: list[EdgeGroup], lost: list[str]) -> None:
    with pytest.raises(GraphConnectivityError) as caught:
        validate_graph(graph_of(texts("a", "b", "c"), groups))
    assert f"Executors {lost} cannot be reached from the start executor 'a'" in str(caught.value)


def test_what_is_sent_must_fit_what_is_taken() -> None:
    with pytest.raises(TypeCompatibilityError) as caught:
        validate_graph(graph_of([Parse(id="parse"), Text(id="text")], single(("parse", "text"))))
    assert str(caught.value).startswith(
        "Executor 'parse' sends int along edge 'parse->text', but 'text' accepts str:"
    )
    assert caught.value.validation_type is ValidationTypeEnum.TYPE_COMPATIBILITY


@pytest.mark.parametrize(
    "group",
    [
        EdgeGroup.fan_out("a", ["ok", "bad"]),
        EdgeGroup.switch_case("a", [SwitchBranch("ok", bool), SwitchBranch("bad")]),
        EdgeGroup.multi_selection("a", ["ok", "bad"], lambda message, ids: ids),
    ],
)
def test_every_edge_of_a_group_is_checked(group: EdgeGroup) -> None:
    with pytest.raises(TypeCompatibilityError, match="'a' sends str along edge 'a->bad'"):
        validate_graph(graph_of([Text(id="a"), Text(id="ok"), Count(id="bad")], [group]))


def test_one_type_in_common_is_enough() -> None:
    groups = [EdgeGroup.fan_out("both", ["text", "count"])]
    validate_graph(graph_of([Both(id="both"), Text(id="text"), Count(id="count")], groups))


def test_what_response_handlers_send_counts() -> None:
    groups = single(("ask", "count"))
    validate_graph(graph_of([AsksAndSendsNumbers(id="ask"), Count(id="count")], groups))
    with pytest.raises(TypeCompatibilityError):
        validate_graph(graph_of([AsksAndSendsNumbers(id="ask"), Text(id="count")], groups))


def test_a_bare_context_is_not_checked_and_remarked_on() -> None:
    for source in (Quiet(id="a"), HalfDeclared(id="a")):
        remarks = validate_graph(graph_of([source, Text(id="b")], single(("a", "b"))))
        assert remarks[0] == "edge 'a->b' is not checked: 'a' has a handler with a bare WorkflowContext"
    remarks = validate_graph(graph_of([Sink(id="a"), Text(id="b")], single(("a", "b"))))
    assert remarks[0] == "edge 'a->b' is not checked: 'a' declares no type that it sends"


def joined(join: Executor, *sources: Executor) -> Graph:
    ids = [source.id for source in sources]
    groups = [EdgeGroup.fan_out("src", ids), EdgeGroup.fan_in(ids, join.id)]
    return graph_of([Text(id="src"), *sources, join], groups)


@pytest.mark.parametrize(
    ("join", "sources"),
    [
        (JoinText(id="j"), [Text(id="a"), Text(id="b")]),
        (JoinText(id="j"), [Text(id="a"), Both(id="b")]),
        (JoinTwo(id="j"), [Parse(id="a"), Parse(id="b")]),
        (JoinMixed(id="j"), [Text(id="a"), Parse(id="b")]),
        (JoinAny(id="j"), [Text(id="a"), Parse(id="b")]),
        (Quiet(id="j"), [Text(id="a"), Parse(id="b")]),
        (JoinText(id="j"), [Text(id="a"), Quiet(id="b")]),
    ],
)
def test_a_join_takes_a_list_of_what_its_sources_send(join: Executor, sources: list[Executor]) -> None:
    validate_graph(joined(join, *sources))


def test_a_join_without_a_list_is_refused() -> None:
    with pytest.raises(TypeCompatibilityError) as caught:
        validate_graph(joined(Text(id="j"), Text(id="a"), Text(id="b")))
    assert "'a' sends str into the fan-in of 'j'" in str(caught.value)
    assert "give 'j' a handler for list[str]" in str(caught.value)


def test_a_join_of_another_list_is_refused() -> None:
    with pytest.raises(TypeCompatibilityError, match="'b' sends int into the fan-in of 'j'"):
        validate_graph(joined(JoinText(id="j"), Text(id="a"), Parse(id="b")))


def test_a_join_that_only_takes_unmixed_lists_is_refused_for_mixed_sources() -> None:
    with pytest.raises(TypeCompatibilityError) as caught:
        validate_graph(joined(JoinTwo(id="j"), Text(id="a"), Parse(id="b")))
    assert "joins ['a', 'b'] into one list" in str(caught.value)
    assert "give 'j' a handler for list[str | int]" in str(caught.value)


@pytest.mark.parametrize(
    ("outputs", "intermediates", "message"),
    [
        ({"a", "b"}, {"b"}, r"\['b'\] are in output_from and in intermediate_output_from"),
        ({"x"}, set(), "output_from names an executor 'x' that is not in the graph"),
        (set(), {"x"}, "intermediate_output_from names an executor 'x' that is not in the graph"),
        ({"n"}, set(), "output_from names executor 'n', which declares no output"),
        ({"a"}, {"n"}, "intermediate_output_from names executor 'n', which declares no output"),
        (set(), set(), "select no executor"),
    ],
)
def test_outputs_that_cannot_be_are_refused(outputs: set[str], intermediates: set[str], message: str) -> None:
    graph = graph_of(
        [Text(id="a"), Text(id="b"), Quiet(id="n")],
        single(("a", "b"), ("b", "n")),
        output_ids=frozenset(outputs),
        intermediate_ids=frozenset(intermediates),
    )
    with pytest.raises(WorkflowValidationError, match=message) as caught:
        validate_graph(graph)
    assert caught.value.validation_type is ValidationTypeEnum.OUTPUT_VALIDATION


def test_outputs_are_classified() -> None:
    executors = texts("a", "b", "c")
    groups = single(("a", "b"), ("b", "c"))
    open_graph = graph_of(executors, groups)
    assert [open_graph.classify_output(key) for key in "abc"] == ["output", "output", "output"]
    chosen = graph_of(executors, groups, output_ids=frozenset("a"), intermediate_ids=frozenset("b"))
    assert [chosen.classify_output(key) for key in "abc"] == ["output", "intermediate", None]
    assert validate_graph(chosen)


@pytest.mark.parametrize("bound", [0, -1, True, 2.0, "3", None])
def test_a_bound_is_a_whole_number(bound: Any) -> None:
    with pytest.raises(DefinitionError, match="max_iterations must be a whole number of at least 1"):
        validate_graph(graph_of(texts("a"), max_iterations=bound))


def test_settings_are_checked() -> None:
    with pytest.raises(DefinitionError, match="undelivered must be 'raise' or 'drop', got 'ignore'"):
        validate_graph(graph_of(texts("a"), undelivered="ignore"))
    with pytest.raises(DefinitionError, match="'k' is declared as int, but starts as str"):
        validate_graph(graph_of(texts("a"), state_keys={"k": StateKey("k", int, default="")}))


def test_an_executor_under_another_id_is_refused() -> None:
    graph = Graph(start_id="a", executors={"a": Text(id="b")})
    with pytest.raises(WorkflowValidationError, match="'b' is listed in the graph as 'a'"):
        validate_graph(graph)


def test_an_executor_without_handlers_is_refused() -> None:
    class Empty(Executor):
        def __init__(self) -> None:
            super().__init__(id="empty", defer_discovery=True)

    with pytest.raises(WorkflowValidationError, match=r"'empty' .*has no handler") as caught:
        validate_graph(graph_of([Empty()]))
    assert caught.value.validation_type is ValidationTypeEnum.HANDLER_OUTPUT_ANNOTATION
