"""Functional workflows: an async function with steps, on the same checkpoints as any workflow."""

from branchpoint.functional._context import RunContext, get_run_context
from branchpoint.functional._step import Step, step
from branchpoint.functional._workflow import FunctionalWorkflow, workflow

__all__ = ["FunctionalWorkflow", "RunContext", "Step", "get_run_context", "step", "workflow"]
