"""What a caller of a functional workflow gets wrong: arguments and results of steps are typed as their functions."""

from branchpoint.functional import FunctionalWorkflow, RunContext, step, workflow


@step
async def fetch(url: str, *, retries: int = 3) -> bytes:
    return url.encode() * retries


@step(name="half")
def half(ctx: RunContext, n: int) -> float:
    return n / 2


@step(key="url")  # E
async def keyed(url: str) -> str:
    return url


@workflow(storage="./runs")  # E
async def stored(url: str) -> str:
    return url


@workflow
async def pipeline(url: str, ctx: RunContext) -> str:
    await fetch(1)  # E
    await fetch(url, 3)  # E
    await fetch(url, tries=3)  # E
    await half("1")  # E
    await half()  # E
    text: str = await fetch(url)  # E
    whole: int = await half(1)  # E
    kept: bytes = fetch(url)  # E
    await ctx.set_state("seen", text)  # E
    ctx.request_info({"whole": whole})  # E
    ctx.no_such_method(kept)  # E
    return url


async def calls(other: FunctionalWorkflow) -> None:
    await pipeline("x")  # E
    pipeline.run("x", checkpoint_storage="./runs")  # E
    other.function = print  # E
