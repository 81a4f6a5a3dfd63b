"""The executor that runs a workflow inside another."""

from __future__ import annotations

from typing import Any

from branchpoint.errors import DefinitionError
from branchpoint.graph import NestingExecutor
from branchpoint.workflow._workflow import Workflow

__all__ = ["WorkflowExecutor"]


class WorkflowExecutor(NestingExecutor):
    """Runs a workflow as one executor of another, its parent.

    A message to it is a call of the child, which takes all the supersteps it needs within one of the
    parent's. What the child is at is part of the parent's snapshots, also between its supersteps, so a
    crash costs one superstep of the child. The object holds nothing of any run: one workflow may stand
    in several executors, parents and runs at once.

    The child keeps its state from call to call, as any executor does. A call that comes while another
    is not over, because that waits for an answer or came in the same superstep, runs apart from it, on a
    state of its own that is gone when it is over.

    Args:
        workflow: The child.
        id: The name of this executor in the parent.
        allow_direct_output: Whether outputs of the child are outputs of the parent. Otherwise they are
            messages to the next executors, sent when the call is over.
        propagate_request: Whether requests of the child always go to the caller. Otherwise one goes to
            the executors behind this one that take a `SubWorkflowRequestMessage`, if there are any.

    Raises:
        DefinitionError: What is given is not a workflow.

    Example:
        ```python
        review = WorkflowExecutor(review_workflow, id="review")
        workflow = WorkflowBuilder(name="publish", start_executor=review).add_edge(review, publish).build()
        ```
    """

    workflow: Workflow

    def __init__(
        self,
        workflow: Workflow,
        id: str,
        allow_direct_output: bool = False,
        propagate_request: bool = False,
        **more: Any,
    ) -> None:
        if not isinstance(workflow, Workflow):
            raise DefinitionError(
                f"WorkflowExecutor(id={id!r}) runs a Workflow, got {type(workflow).__qualname__}: build() one first."
            )
        super().__init__(workflow, id, allow_direct_output, propagate_request, **more)
