"""What a caller writes for a functional workflow is typed: steps keep the types of their functions."""

import asyncio
from typing import assert_type

from branchpoint import Workflow, WorkflowRunResult
from branchpoint.agents import WorkflowAgent
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


@step
def count(ctx: RunContext, text: str) -> int:
    return len(text)


@step(name="plain")
def plainly(n: int) -> float:
    return n / 2


@step(name="with context")
async def asked(ctx: RunContext, n: int) -> str:
    return str(await ctx.request_info(n, str))


@step(replay_key=lambda text: text)
def counted(ctx: RunContext, text: str) -> int:
    return len(text)


@workflow
async def pipeline(url: str, ctx: RunContext) -> str:
    assert_type(await fetch(url, retries=1), bytes)
    assert_type(await rate("text"), int)
    assert_type(await named(1), list[int])
    assert_type(await count("text"), int)
    assert_type(await plainly(1), float)
    assert_type(await asked(n=1), str)
    assert_type(await counted("text"), int)
    ctx.set_state("seen", url)
    return url


@workflow(name="other", description="takes two, in parallel")
async def pair(urls: list[str]) -> int:
    first, second = await asyncio.gather(fetch(urls[0]), fetch(urls[1]))
    assert_type(first, bytes)
    assert_type(second, bytes)
    return len(first) + len(second)


async def calls() -> None:
    assert_type(pair, FunctionalWorkflow)
    assert_type(pair.as_agent(), WorkflowAgent)
    assert_type(pipeline, FunctionalWorkflow)
    plain: Workflow = pipeline
    assert_type(await plain.run("x", checkpoint=pipeline.create_checkpoint()), WorkflowRunResult)
    assert_type(get_run_context(), RunContext | None)
