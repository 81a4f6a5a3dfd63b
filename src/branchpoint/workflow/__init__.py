"""What the caller holds: workflows, the builder that makes them, and what a run gives back."""

from branchpoint.engine import WorkflowInvocationKwargs
from branchpoint.workflow._builder import WorkflowBuilder
from branchpoint.workflow._nested import WorkflowExecutor
from branchpoint.workflow._result import WorkflowRunResult
from branchpoint.workflow._run import PendingRun, WorkflowRunStream
from branchpoint.workflow._viz import WorkflowViz
from branchpoint.workflow._workflow import Workflow

__all__ = [
    "PendingRun",
    "Workflow",
    "WorkflowBuilder",
    "WorkflowExecutor",
    "WorkflowInvocationKwargs",
    "WorkflowRunResult",
    "WorkflowRunStream",
    "WorkflowViz",
]
