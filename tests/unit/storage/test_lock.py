"""The lock: threads and processes exclude each other, and every ending frees it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from branchpoint.storage._lock import holding


def test_threads_of_one_process_exclude_each_other(runs: Path) -> None:
    inside: list[int] = []
    overlaps: list[int] = []

    def work() -> None:
        for _ in range(50):
            with holding(runs, 1):
                inside.append(1)
                overlaps.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert overlaps == [1] * 300


def test_without_waiting_a_held_lock_says_so_and_readers_share(runs: Path) -> None:
    with (
        holding(runs, 1) as first,
        holding(runs, 1, wait=False) as second,
        holding(runs, 2, wait=False) as other,
    ):
        assert (first, second, other) == (True, False, True)
    with holding(runs, 1, shared=True), holding(runs, 1, shared=True, wait=False) as reader:
        assert reader
        with holding(runs, 1, wait=False) as writer:
            assert not writer
    with holding(runs, 1, wait=False) as again:
        assert again


def test_an_exception_frees_it(runs: Path) -> None:
    with pytest.raises(ZeroDivisionError), holding(runs, 1):
        1 / 0  # noqa: B018
    with holding(runs, 1, wait=False) as free:
        assert free


def test_a_killed_process_frees_it(runs: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from branchpoint.storage._lock import holding\n"
        "with holding(Path(sys.argv[1]), 1): print('held', flush=True); sys.stdin.read()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(runs)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        with holding(runs, 1, wait=False) as taken:
            assert not taken
        os.kill(child.pid, signal.SIGKILL)
    with holding(runs, 1, wait=False) as free:
        assert free


def test_a_child_forked_while_it_is_held_keeps_no_hold(runs: Path) -> None:
    report, reply = os.pipe()
    with holding(runs, 1):
        pid = os.fork()
        if pid == 0:
            held = {
                Path(os.readlink(f"/proc/self/fd/{n}")).name
                for n in os.listdir("/proc/self/fd")
                if _is_open(n)
            }
            os.write(reply, b"holds it" if ".lock-01" in held else b"is free")
            os._exit(0)
        os.waitpid(pid, 0)
        with holding(runs, 1, wait=False) as taken:
            assert not taken  # the child closed its own copy, not the parent's lock
    os.close(reply)
    assert os.read(report, 100) == b"is free"
    os.close(report)
    with holding(runs, 1, wait=False) as free:
        assert free


def _is_open(number: str) -> bool:
    return os.path.lexists(f"/proc/self/fd/{number}")


def test_the_file_is_private_and_stays(runs: Path) -> None:
    with holding(runs, 3):
        pass
    lock = runs / ".lock-03"
    before = lock.stat()
    assert before.st_mode & 0o777 == 0o600
    with holding(runs, 3):
        assert lock.stat().st_ino == before.st_ino


def test_a_lock_that_leads_elsewhere_is_refused(runs: Path, tmp_path: Path) -> None:
    (runs / ".lock-03").symlink_to(tmp_path / "outside")
    with pytest.raises(OSError, match="symbolic"), holding(runs, 3):
        pass
    assert not (tmp_path / "outside").exists()
