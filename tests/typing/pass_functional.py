"""What a caller writes for a functional workflow is typed: steps keep the types of their functions."""

from typing import assert_type

from branchpoint import Workflow, WorkflowRunResult
from branchpoint.functional import FunctionalWorkflow, RunContext, get_run_context, step, workflow


@step
async def fetch(url: str, *, retries: int = 3) -> bytes:
    return url.encode() * retries


@step
async def rate(ctx: RunContext, text: str) -> int:
    return len(text)


@step(name="other")
async def named(n: int) -> list[int]:
    return [n]


@workflow
async def pipeline(url: str, ctx: RunContext) -> str:
    assert_type(await fetch(url, retries=1), bytes)
    assert_type(await rate("text"), int)
    assert_type(await named(1), list[int])
    ctx.set_state("seen", url)
    return url


async def calls() -> None:
    assert_type(pipeline, FunctionalWorkflow)
    plain: Workflow = pipeline
    assert_type(await plain.run("x", checkpoint=pipeline.create_checkpoint()), WorkflowRunResult)
    assert_type(get_run_context(), RunContext | None)
