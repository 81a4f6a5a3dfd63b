"""The builder: how a caller writes down a workflow."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self

from branchpoint.errors import DefinitionError, ValidationTypeEnum, WorkflowValidationError
from branchpoint.events import instrumented, instruments
from branchpoint.graph import (
    ABSENT,
    DEFAULT_MAX_ITERATIONS,
    Case,
    Default,
    EdgeCondition,
    EdgeGroup,
    Executor,
    Factory,
    Graph,
    Reducer,
    Selection,
    StateKey,
    SwitchBranch,
    Undelivered,
    definition_copy,
    is_name,
    validate_graph,
)
from branchpoint.workflow._candidates import ExecutorLike, as_executor
from branchpoint.workflow._outputs import IntermediateSelection, OutputSelection, designate

if TYPE_CHECKING:
    from branchpoint.workflow._workflow import Workflow

__all__ = ["WorkflowBuilder"]

_log = logging.getLogger("branchpoint.workflow")


class WorkflowBuilder:
    """Collects executors and the edges between them; `build()` makes a workflow of them.

    Wherever an executor is asked for, you may give an `Executor`, a `Factory`, a function (decorated
    with `@executor` or bare), an agent, or the id of an executor that was already given. Executors
    are told apart by id: the same object may be given any number of times, two objects with one id
    are refused. The order of first mention is the declared order, which decides the order of
    deliveries and of folded writes.

    Every method that adds something returns the builder, so calls can be chained.

    Args:
        max_iterations: How many supersteps a run may take after an input before it is taken not to
            converge. Not part of the signature: a larger bound resumes a run that reached it.
        name: The workflow's name, part of its signature. A checkpoint with storage needs one.
        description: What the workflow is for.
        start_executor: What gets the input.
        output_from: Executors whose yields are outputs, or `"all"` that declare any. When this and
            `intermediate_output_from` are left out, every yield is an output; when one is given, the
            yields of executors in neither are hidden.
        intermediate_output_from: Executors whose yields are intermediate outputs, `"all"` that
            declare any, or `"all_other"` that are not in `output_from`.
        undelivered: What happens to a message whose type no target accepts: `"raise"`
            `UndeliverableMessageError`, or `"drop"` it with a warning event.

    Raises:
        DefinitionError: An argument is of the wrong form.

    Example:
        ```python
        async def upper(text: str, ctx: WorkflowContext[str]) -> None:
            await ctx.send_message(text.upper())


        async def reverse(text: str, ctx: WorkflowContext[Never, str]) -> None:
            await ctx.yield_output(text[::-1])


        workflow = WorkflowBuilder(name="shout", start_executor=upper).add_edge(upper, reverse).build()
        ```
    """

    def __init__(
        self,
        max_iterations: int = DEFAULT_MAX_ITERATIONS,
        name: str | None = None,
        description: str | None = None,
        *,
        start_executor: ExecutorLike,
        output_from: OutputSelection = None,
        intermediate_output_from: IntermediateSelection = None,
        undelivered: Undelivered = "raise",
    ) -> None:
        if name is not None and not is_name(name):
            raise DefinitionError(
                f"The name of a workflow is a text that is not empty, without lone surrogates, got {name!r}."
            )
        if description is not None and type(description) is not str:
            raise DefinitionError(f"The description of a workflow is a text, got {description!r}.")
        self._max_iterations = max_iterations
        self._name = name
        self._description = description
        self._undelivered: Undelivered = undelivered
        self._output_from: OutputSelection = output_from
        self._intermediate_output_from: IntermediateSelection = intermediate_output_from
        self._executors: dict[str, Executor | Factory] = {}
        self._wrapped: list[tuple[object, Executor | Factory]] = []
        self._groups: list[EdgeGroup] = []
        self._state_keys: dict[str, StateKey] = {}
        start = self._resolve(start_executor)
        self._start_id = start.id
        self._add([start])

    def add_edge(
        self, source: ExecutorLike, target: ExecutorLike, condition: EdgeCondition | None = None
    ) -> Self:
        """Send what `source` sends on to `target`, if its type is accepted and `condition` holds.

        Args:
            source: Who sends.
            target: Who receives; may be the source itself.
            condition: A function of the message, plain or async. It must not change the message.
                Its name is part of the signature.

        Raises:
            DefinitionError: An end or the condition is of the wrong form.
            WorkflowValidationError: Another executor already has the id of an end.
        """
        ends = self._resolve_all([source, target])
        return self._add(ends, EdgeGroup.single(ends[0].id, ends[1].id, condition))

    def add_fan_out_edges(self, source: ExecutorLike, targets: Sequence[ExecutorLike]) -> Self:
        """Send what `source` sends on to every one of `targets`, which then work concurrently.

        Raises:
            DefinitionError: There are fewer than two targets, or an end is of the wrong form.
            WorkflowValidationError: Another executor already has the id of an end.
        """
        ends = self._resolve_all([source, *_several(targets, "targets")])
        return self._add(ends, EdgeGroup.fan_out(ends[0].id, [end.id for end in ends[1:]]))

    def add_fan_in_edges(
        self, sources: Sequence[ExecutorLike], target: ExecutorLike, *, keep: bool = False
    ) -> Self:
        """Join: `target` gets one list when every source has sent, in declared order of the sources.

        Args:
            sources: Who sends; each of them must do so before the list is delivered.
            target: Who receives; it needs a handler for a list of what the sources send.
            keep: Whether messages that wait in a half-filled join outlive the turn. By default they
                are dropped when the turn completes, with an `incomplete_join` event, so that
                messages of two turns never meet by accident.

        Raises:
            DefinitionError: There are fewer than two sources, or an end is of the wrong form.
            WorkflowValidationError: Another executor already has the id of an end.
        """
        ends = self._resolve_all([*_several(sources, "sources"), target])
        return self._add(ends, EdgeGroup.fan_in([end.id for end in ends[:-1]], ends[-1].id, keep=keep))

    def add_switch_case_edge_group(self, source: ExecutorLike, cases: Sequence[Case | Default]) -> Self:
        """Send each message to the first case whose condition holds, or else to the default.

        Args:
            source: Who sends.
            cases: `Case(condition, target)` in the order in which they are asked, then one
                `Default(target)`. Several cases may share a target.

        Raises:
            DefinitionError: There is not exactly one default, or it is not the last.
            WorkflowValidationError: Another executor already has the id of an end.
        """
        cases = _several(cases, "cases")
        for case in cases:
            if not isinstance(case, (Case, Default)):
                raise DefinitionError(
                    "A switch takes Case(condition, target) and Default(target), "
                    f"got {type(case).__qualname__}."
                )
            if isinstance(case, Case) and not callable(case.condition):
                raise DefinitionError(
                    f"The condition of a Case must be a function of the message, got {case.condition!r}."
                )
        ends = self._resolve_all([source, *(case.target for case in cases)])
        branches = [
            SwitchBranch(target.id, case.condition if isinstance(case, Case) else None)
            for case, target in zip(cases, ends[1:], strict=True)
        ]
        return self._add(ends, EdgeGroup.switch_case(ends[0].id, branches))

    def add_multi_selection_edge_group(
        self, source: ExecutorLike, targets: Sequence[ExecutorLike], selection_func: Selection
    ) -> Self:
        """Send each message to those of `targets` that `selection_func` picks.

        Args:
            source: Who sends.
            targets: Who may receive.
            selection_func: A function of the message and the target ids, plain or async, that
                returns some of these ids. Its name is part of the signature.

        Raises:
            DefinitionError: There are fewer than two targets, or an argument is of the wrong form.
            WorkflowValidationError: Another executor already has the id of an end.
        """
        ends = self._resolve_all([source, *_several(targets, "targets")])
        target_ids = [end.id for end in ends[1:]]
        return self._add(ends, EdgeGroup.multi_selection(ends[0].id, target_ids, selection_func))

    def add_chain(self, executors: Sequence[ExecutorLike]) -> Self:
        """Join executors in a row, each to the next.

        Raises:
            DefinitionError: There are fewer than two, or one comes twice (`add_edge` makes a loop).
            WorkflowValidationError: Another executor already has the id of one of them.
        """
        links = self._resolve_all(_several(executors, "executors"))
        ids = [link.id for link in links]
        if len(ids) < 2:
            raise DefinitionError(f"A chain needs at least two executors, got {len(ids)}.")
        twice = next((key for key in ids if ids.count(key) > 1), None)
        if twice is not None:
            raise DefinitionError(f"Executor '{twice}' comes twice in one chain; close a loop with add_edge.")
        groups = [EdgeGroup.single(before, after) for before, after in pairwise(ids)]
        return self._add(links, *groups)

    def add_state(
        self,
        key: str,
        type: Any = None,
        *,
        default: Any = ABSENT,
        factory: Callable[[], Any] | None = None,
        reducer: Reducer | None = None,
    ) -> Self:
        """Declare a key of the shared state.

        Args:
            key: The key, as handlers use it.
            type: What its value must be; checked after each superstep.
            default: What handlers read while nothing was written; each gets a copy.
            factory: Makes that value, in place of a default.
            reducer: A pure function of the value so far and one written value. The writes of one
                superstep are folded with it in declared order of the executors. Without it, two
                executors that write the key in one superstep raise `StateConflictError`.

        Raises:
            DefinitionError: The key is declared already, or the declaration contradicts itself.
        """
        if key in self._state_keys:
            raise DefinitionError(f"State key '{key}' is declared already; declare it once.")
        self._state_keys[key] = StateKey(key, type, default, factory, reducer)
        return self

    def build(self) -> Workflow:
        """Check everything and make the workflow.

        Guarantees: the workflow owns private copies of all executors, so changing yours afterwards
        changes nothing, and two workflows of one builder share nothing that can change.

        Raises:
            EdgeDuplicationError: Two edges join the same two executors.
            GraphConnectivityError: An executor cannot be reached from the start.
            TypeCompatibilityError: Nothing a source sends fits what the target of its edge accepts.
            WorkflowValidationError: Outputs, executors or handlers are declared wrongly.
            DefinitionError: A factory made another id or type, or a setting is wrong.
        """
        from branchpoint.workflow._workflow import Workflow

        if not instruments:
            return Workflow(self.build_graph())
        with instrumented("build", {"workflow_name": self._name, "graph_signature_hash": None}) as info:
            graph = self.build_graph()
            info["graph_signature_hash"] = graph.signature_hash
            return Workflow(graph)

    def build_graph(self) -> Graph:
        """Check everything and make the graph alone, as `build` does."""
        definitions: dict[str, Executor] = {}
        factories: dict[str, Factory] = {}
        for key, given in self._executors.items():
            if isinstance(given, Factory):
                factories[key] = given
                definitions[key] = definition_copy(given.create())
            else:
                definitions[key] = definition_copy(given)
        selections = self._output_from, self._intermediate_output_from
        output_ids, intermediate_ids = designate(definitions, *selections)
        graph = Graph(
            name=self._name,
            description=self._description,
            start_id=self._start_id,
            executors=definitions,
            factories=factories,
            groups=tuple(self._groups),
            state_keys=self._state_keys,
            output_ids=output_ids,
            intermediate_ids=intermediate_ids,
            max_iterations=self._max_iterations,
            undelivered=self._undelivered,
        )
        for remark in validate_graph(graph):
            _log.info("workflow %s: %s", self._name or "without a name", remark)
        return graph

    def _resolve_all(self, candidates: Sequence[ExecutorLike]) -> list[Executor | Factory]:
        # Everything is resolved before anything is added, so that a refused call adds nothing.
        return [self._resolve(candidate) for candidate in candidates]

    def _resolve(self, candidate: ExecutorLike) -> Executor | Factory:
        if isinstance(candidate, str):
            known = self._executors.get(candidate)
            if known is None:
                raise DefinitionError(
                    f"There is no executor '{candidate}' in this builder yet; it has "
                    f"{list(self._executors)}. Give the executor itself the first time."
                )
            return known
        if isinstance(candidate, (Executor, Factory)):
            return candidate
        for seen, executor in self._wrapped:
            # A bound method is a new object on every access, and equal to the one before.
            if seen is candidate or (callable(candidate) and callable(seen) and seen == candidate):
                return executor
        executor = as_executor(candidate)
        self._wrapped.append((candidate, executor))
        return executor

    def _add(self, executors: Sequence[Executor | Factory], *groups: EdgeGroup) -> Self:
        fresh: dict[str, Executor | Factory] = {}
        for executor in executors:
            known = self._executors.get(executor.id, fresh.get(executor.id))
            if known is not None and known is not executor:
                raise WorkflowValidationError(
                    f"Two executors have the id '{executor.id}' ({_kind(known)} and {_kind(executor)}): "
                    "give one of them another id, or use one object for both.",
                    ValidationTypeEnum.EXECUTOR_DUPLICATION,
                )
            fresh[executor.id] = executor
        self._executors.update(fresh)
        self._groups.extend(groups)
        return self


def _several(items: Any, what: str) -> list[Any]:
    if isinstance(items, (str, bytes)) or not hasattr(items, "__iter__"):
        raise DefinitionError(f"{what} must be a list, got {type(items).__qualname__}.")
    return list(items)


def _kind(executor: Executor | Factory) -> str:
    return type(executor).__qualname__
