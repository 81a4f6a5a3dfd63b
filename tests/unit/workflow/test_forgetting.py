"""What a newcomer forgets, and what is said about it."""

from __future__ import annotations

import pytest

from branchpoint import (
    Executor,
    ExecutorStateError,
    InvalidCallError,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    append,
    handler,
    response_handler,
)
from branchpoint.errors import DefinitionError
from branchpoint.graph import state


class Forgetful(Executor):
    """Awaits nothing that it should."""

    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[int, str]) -> None:
        ctx.send_message(len(text))
        ctx.yield_output(text)
        ctx.request_info(text, bool)

    @handler
    async def on_number(self, number: int, ctx: WorkflowContext[int, str]) -> None:
        ctx.yield_output(str(number))

    @response_handler
    async def on_answer(self, text: str, answer: bool, ctx: WorkflowContext[int, str]) -> None: ...


def forgetful() -> Workflow:
    node = Forgetful("node")
    return WorkflowBuilder(name="w", start_executor=node).add_edge(node, node).build()


async def test_what_a_context_does_is_done_at_the_call() -> None:
    workflow = forgetful()
    checkpoint = workflow.create_checkpoint()
    result = await workflow.run("abc", checkpoint=checkpoint)
    assert result.get_outputs() == ["abc", "3"]
    assert len(checkpoint.pending_requests) == 1


def test_a_run_that_was_not_awaited_says_so() -> None:
    running = [forgetful().run("x")]
    with pytest.warns(RuntimeWarning, match="workflow 'w' was never awaited, so nothing ran"):
        running.clear()


async def test_a_run_is_told_from_its_result_and_from_a_stream() -> None:
    running = forgetful().run("x")
    with pytest.raises(AttributeError, match=r"'get_outputs': write `\(await workflow.run"):
        running.get_outputs()  # type: ignore[operator]
    with pytest.raises(InvalidCallError, match="stream=True"):
        async for _ in running:  # type: ignore[attr-defined]
            pass
    running.close()
    with pytest.raises(InvalidCallError, match="get_final_response"):
        await forgetful().run("x", stream=True)  # type: ignore[misc]


def test_a_field_that_declares_nothing_is_refused() -> None:
    with pytest.raises(DefinitionError, match=r"state\(factory=list\)"):
        state(list)
    with pytest.raises(DefinitionError, match="items is state itself"):

        class Wrong(Executor):
            items = state

            @handler
            async def on_text(self, text: str, ctx: WorkflowContext) -> None: ...

        Wrong("wrong")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("lent", "has a reducer, so write what is to be added"),
        ("view", "read-only view, which has no 'append'"),
        ("item", "read-only view, which has no '__setitem__'"),
    ],
)
async def test_a_change_of_shared_state_that_goes_nowhere_says_what_to_do(change: str, says: str) -> None:
    async def node(text: str, ctx: WorkflowContext) -> None:
        ctx.set_state("log", text)
        if change == "lent":
            ctx.get_state("log").append("more")
        elif change == "view":
            ctx.get_state("log", copy=False).append("more")
        else:
            ctx.get_state("log", copy=False)[0] = "other"

    workflow = WorkflowBuilder(start_executor=node).add_state("log", list, reducer=append).build()
    with pytest.raises(ExecutorStateError, match=says):
        await workflow.run("x")


async def test_where_a_condition_raised_is_noted() -> None:
    async def a(text: str, ctx: WorkflowContext[str]) -> None:
        await ctx.send_message(text)

    async def b(text: str) -> None: ...

    def broken(text: str) -> bool:
        raise ZeroDivisionError

    workflow = WorkflowBuilder(start_executor=a).add_edge(a, b, condition=broken).build()
    with pytest.raises(ZeroDivisionError) as caught:
        await workflow.run("x")
    assert "raised by a condition or selection of single:a->b" in caught.value.__notes__
    assert any("executor 'a', superstep 1" in told for told in caught.value.__notes__)


async def test_a_result_shows_what_matters() -> None:
    workflow = forgetful()
    result = await workflow.run("abc", checkpoint=workflow.create_checkpoint())
    assert repr(result).startswith(
        "<WorkflowRunResult idle_with_pending_requests, outputs=['abc', '3'], waits for ["
    )
    assert "None" not in repr(result[0])
