"""The same calls make the same bytes: whatever the timing, and wherever the run stops and is loaded again."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from branchpoint import Checkpoint, clock, codec, ids
from branchpoint.checkpoint import encode_header
from tests.profiles import brief
from tests.property.generated import Plan, generated, plans
from tests.scenario.kit import bytes_of, place_of

seeds = st.integers(0, 2**32)


async def recorded(plan: Plan, kind: str, seed: int, bound: int | None, back: int) -> dict[str, bytes]:
    """Run two turns with their answers, and a branch, and return all that is kept, as bytes.

    Args:
        bound: How many supersteps a call may take. After each call all objects are dropped, and made anew
            from what is stored; None drops nothing.
        back: Which snapshot the branch begins at.
    """
    with (
        tempfile.TemporaryDirectory() as folder,
        ids.injected(ids.SequentialIds()),
        clock.injected(clock.SteppingClock()),
    ):
        place = place_of(kind, Path(folder))
        checkpoint = place.create(generated(plan, seed))

        async def go(checkpoint: Checkpoint, **call: Any) -> Checkpoint:
            await generated(plan, seed).run(checkpoint=checkpoint, max_supersteps=bound, **call)
            while bound is not None and checkpoint.status == "in_progress":
                checkpoint = await place.reload()
                # Another timing in every piece.
                workflow = generated(plan, seed + len(checkpoint.snapshots))
                await workflow.run(checkpoint=checkpoint, max_supersteps=bound)
            return checkpoint if bound is None else await place.reload()

        for turn in ("x", "y"):
            checkpoint = await go(checkpoint, message=turn, input_id=f"in-{turn}", metadata={"turn": turn})
            while asked := [request.request_id for request in checkpoint.pending_requests]:
                some = asked[::2] if len(asked) > 2 else asked
                checkpoint = await go(checkpoint, responses={key: f"to {key}" for key in reversed(some)})
        checkpoint.restart_from(checkpoint.snapshots[back % len(checkpoint.snapshots)].snapshot_id)
        if checkpoint.status == "in_progress":
            await generated(plan, seed).run(checkpoint=checkpoint)
        kept = {str(path.relative_to(folder)): path.read_bytes() for path in Path(folder).rglob("*.*")}
        for snapshot in checkpoint.snapshots:  # and what was remembered on the way leaves no trace
            part, _ = codec.encode_state(snapshot.state, format=checkpoint.format)
            assert part.digest == snapshot.root
        kept["header"] = encode_header(checkpoint.header, format=checkpoint.format)
        return {**kept, **bytes_of(checkpoint)}


def _check(plan: Plan, kind: str, seed: int, other: int, bound: int | None, back: int) -> None:
    async def both() -> None:
        first = await recorded(plan, kind, seed, None, back)
        again = await recorded(plan, kind, other, bound, back)
        assert list(again) == list(first)
        assert again == first

    asyncio.run(both())


@brief(12)
@given(plan=plans(), seed=seeds, other=seeds, bound=st.none() | st.integers(1, 3), back=st.integers(0, 20))
def test_r15_any_timing_and_any_stops_make_the_same_json(
    plan: Plan, seed: int, other: int, bound: int | None, back: int
) -> None:
    _check(plan, "file-json", seed, other, bound, back)


@brief(12)
@given(plan=plans(), seed=seeds, other=seeds, bound=st.none() | st.integers(1, 3), back=st.integers(0, 20))
def test_r15_any_timing_and_any_stops_make_the_same_msgpack(
    plan: Plan, seed: int, other: int, bound: int | None, back: int
) -> None:
    _check(plan, "file-msgpack", seed, other, bound, back)


@brief(12)
@given(plan=plans(), seed=seeds, other=seeds, back=st.integers(0, 20))
def test_r15_any_timing_makes_the_same_snapshots_in_memory(
    plan: Plan, seed: int, other: int, back: int
) -> None:
    """Storage or none, the snapshots are the same too."""

    async def all_three() -> None:
        first = await recorded(plan, "none", seed, None, back)
        assert await recorded(plan, "memory", other, 1, back) == first

    asyncio.run(all_three())
