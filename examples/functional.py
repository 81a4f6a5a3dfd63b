"""A functional workflow: prices are fetched side by side, a person approves, and the order is placed once.

Run it twice: `python examples/functional.py runs`. The first time it stops at the question; the second
time, in a new process, the answer is given and nothing is fetched again.
"""

from __future__ import annotations

import asyncio
import sys

from branchpoint import CheckpointNotFoundError, FileCheckpointStorage
from branchpoint.functional import RunContext, step, workflow

PRICES = {"tea": 4, "rice": 3, "salt": 1}


@step
async def fetch_price(item: str) -> int:
    """Ask a shop, which takes a while; here it does not."""
    print(f"fetching the price of {item}")
    return PRICES[item]


@step
async def place_order(items: list[str], total: int, ctx: RunContext) -> str:
    """Order, under a key by which the shop can tell a repetition."""
    return f"ordered {', '.join(items)} for {total} under {ctx.idempotency_key[:6]}"


@workflow
async def shopping(items: list[str], ctx: RunContext) -> str:
    """Buy what is not too dear."""
    prices = await asyncio.gather(*(fetch_price(item) for item in items))
    total = sum(prices)
    if total > 5 and not await ctx.request_info({"items": items, "total": total}, bool):
        return "not ordered"
    return await place_order(items, total)


async def main(folder: str) -> None:
    """Begin, or answer what is asked."""
    async with FileCheckpointStorage(folder) as storage:
        try:
            checkpoint = await storage.load("shopping")
        except CheckpointNotFoundError:
            checkpoint = shopping.create_checkpoint("shopping", storage)
            await shopping.run(list(PRICES), checkpoint=checkpoint)
            for request in checkpoint.pending_requests:
                print(f"may this be ordered? {request.data}")
            return
        answers = {request.request_id: True for request in checkpoint.pending_requests}
        result = await shopping.run(checkpoint=checkpoint, **({"responses": answers} if answers else {}))
        print(*result.get_outputs())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
