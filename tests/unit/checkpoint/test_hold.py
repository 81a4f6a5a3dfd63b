from __future__ import annotations

import asyncio
import gc
import threading

import pytest

from branchpoint.checkpoint._hold import Committing, Guard
from branchpoint.errors import CheckpointInUseError
from tests.unit.checkpoint.doubles import new_checkpoint


def test_a_second_taker_is_refused_at_once_and_told_who_holds_it() -> None:
    cp = new_checkpoint(checkpoint_id="run-1")
    with cp.hold("run() of count"):
        assert cp.in_use_by == "run() of count"
        with pytest.raises(CheckpointInUseError, match=r"'run-1' is in use by run\(\) of count"):
            cp.hold("another")
    assert cp.in_use_by is None
    cp.hold("another").release()


def test_it_is_freed_by_every_ending() -> None:
    cp = new_checkpoint()
    with pytest.raises(ZeroDivisionError), cp.hold("one"):
        1 / 0  # noqa: B018
    hold = cp.hold("two")
    hold.release()
    hold.release()
    third = cp.hold("three")
    hold.release()  # an old hold frees nothing of the next one
    assert cp.in_use_by == "three"
    del third
    gc.collect()
    assert cp.in_use_by is None


def test_a_forgotten_hold_may_be_collected_while_its_guard_is_busy() -> None:
    guard = Guard("cp")
    token = guard.take("forgotten")
    with guard._lock:  # where the collector may find it
        guard.give_back(token)
    assert guard.owner is None


def test_of_many_threads_one_gets_it() -> None:
    cp = new_checkpoint()
    start, results = threading.Barrier(8), list[object]()

    def take() -> None:
        start.wait()
        try:
            results.append(cp.hold("a thread"))
        except CheckpointInUseError as error:
            results.append(error)

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(isinstance(found, CheckpointInUseError) for found in results) == 7


def test_one_commit_at_a_time_and_none_after_the_hold_was_given_back() -> None:
    guard = Guard("cp")
    token = guard.take("a run")
    with Committing(guard, token):
        with pytest.raises(CheckpointInUseError, match="in use by a run"):
            Committing(guard, token).begin()
        guard.give_back(token)
        # Its commit is still in flight, so nobody else may begin.
        with pytest.raises(CheckpointInUseError, match="last commit is still in flight"):
            guard.take("another run")
    guard.give_back(guard.take("another run"))
    with pytest.raises(CheckpointInUseError, match="no longer held"):
        Committing(guard, token).begin()


def test_an_old_ticket_ends_nothing() -> None:
    guard = Guard("cp")
    token = guard.take("a run")
    old = guard.begin_commit(token)
    guard.end_commit(old)
    guard.begin_commit(token)
    guard.end_commit(old)
    with pytest.raises(CheckpointInUseError):
        guard.begin_commit(token)


async def test_the_next_run_waits_for_one_that_is_only_cleaning_up() -> None:
    cp = new_checkpoint()
    first = cp.hold("first")
    first.mark_closing()
    second = asyncio.create_task(cp.take_hold("second", grace=60))
    await asyncio.sleep(0)
    assert not second.done()
    first.release()
    hold = await second
    assert cp.in_use_by == "second"
    hold.release()


async def test_it_does_not_wait_for_one_at_work_nor_beyond_the_grace_period() -> None:
    cp = new_checkpoint()
    first = cp.hold("first")
    with pytest.raises(CheckpointInUseError):
        await cp.take_hold("second", grace=60)
    first.mark_closing()
    with pytest.raises(CheckpointInUseError):
        await cp.take_hold("second", grace=0)
    with pytest.raises(CheckpointInUseError):
        await cp.take_hold("second", grace=0.001)
    first.release()
    (await cp.take_hold("second", grace=0)).release()


async def test_a_waiter_is_woken_from_another_thread_and_one_of_several_wins() -> None:
    cp = new_checkpoint()
    first = cp.hold("first")
    first.mark_closing()
    waiting = [asyncio.create_task(cp.take_hold(f"waiter {n}", grace=60)) for n in range(3)]
    await asyncio.sleep(0)
    thread = threading.Thread(target=first.release)
    thread.start()
    done = await asyncio.gather(*waiting, return_exceptions=True)
    thread.join()
    assert sum(isinstance(found, CheckpointInUseError) for found in done) == 2


async def test_a_cancelled_waiter_leaves_nothing_behind() -> None:
    cp = new_checkpoint()
    first = cp.hold("first")
    first.mark_closing()
    waiter = asyncio.create_task(cp.take_hold("second", grace=60))
    await asyncio.sleep(0)
    waiter.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    assert cp._guard._waiting == []
    first.release()
    assert cp.in_use_by is None
