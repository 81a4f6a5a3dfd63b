"""Writers of several processes take turns: who has just written stands behind who waits."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from branchpoint.storage.sqlite._turns import Turns


@pytest.fixture
def two(tmp_path: Path) -> Iterator[tuple[Turns, Turns]]:
    """Two who exclude each other as two processes do: each has files of its own open."""
    both = Turns(tmp_path / "x.db"), Turns(tmp_path / "x.db")
    yield both
    for one in both:
        one.close()


def wait_until_queued(path: Path) -> None:
    """Return when somebody is next, and waits for the one whose turn it is."""
    descriptor = os.open(path.with_name(path.name + "-next"), os.O_RDWR)
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


def test_c19_who_waits_is_not_overtaken_by_who_had_the_turn(tmp_path: Path, two: tuple[Turns, Turns]) -> None:
    one, other = two
    order: list[str] = []

    def wait() -> None:
        other.take()
        order.append("other")
        other.give_back()

    for _ in range(50):
        one.take()
        waiting = threading.Thread(target=wait)
        waiting.start()
        wait_until_queued(tmp_path / "x.db")
        order.append("one")
        one.give_back()
        one.take()
        order.append("one again")
        one.give_back()
        waiting.join()
    assert order == ["one", "other", "one again"] * 50


def test_turns_are_given_back_and_closed_as_often_as_one_likes(
    tmp_path: Path, two: tuple[Turns, Turns]
) -> None:
    one, other = two
    one.give_back()
    one.close()
    one.take()
    one.close()  # which gives it back
    other.take()
    other.give_back()
    other.give_back()
    assert {path.name: path.stat().st_size for path in tmp_path.iterdir()} == {"x.db-next": 0, "x.db-lock": 0}


def test_a_link_in_the_place_of_a_lock_is_not_followed(tmp_path: Path, two: tuple[Turns, Turns]) -> None:
    (tmp_path / "x.db-lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match=r"x\.db-lock"):
        two[0].take()
    assert not (tmp_path / "elsewhere").exists()
