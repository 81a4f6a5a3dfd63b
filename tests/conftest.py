"""What holds for every test: nothing is left behind, and hypothesis runs under a named profile."""

from __future__ import annotations

import asyncio
import functools
import gc
import inspect
import os
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.storages import SERVERS, close_opened, close_opened_now

pytest_plugins = ["tests.servers.fixtures"]

_FD_FOLDER = Path("/proc/self/fd")
# Opened once by the interpreter or the operating system's libraries and kept for good.
_KEPT_FILES = ("/dev/urandom", "/dev/random", "/dev/null")

_QUIET = (HealthCheck.too_slow, HealthCheck.data_too_large)
# `derandomize` makes a red run red again on the next machine; `soak` looks for new examples.
settings.register_profile(
    "ci",
    max_examples=60,
    stateful_step_count=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=_QUIET,
)
settings.register_profile(
    "soak",
    max_examples=3000,
    stateful_step_count=80,
    deadline=None,
    print_blob=True,
    suppress_health_check=_QUIET,
)
# In a soak one property goes on for long; a hang is still a failure in the end.
_SOAK_SECONDS = 4 * 3600
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip soak tests outside of a soak, let all run for long in one, make each async test account for its tasks."""
    soaking = os.environ.get("HYPOTHESIS_PROFILE") == "soak"
    for item in items:
        if soaking:
            item.add_marker(pytest.mark.timeout(_SOAK_SECONDS))
        if item.get_closest_marker("soak") is not None and not soaking:
            item.add_marker(pytest.mark.skip(reason="long; runs under `make soak`"))
        if isinstance(item, pytest.Function):
            # Among the arguments of the test, so that it starts before what a test leaves is looked at.
            item.fixturenames = [*(SERVERS[name][0] for name in _on_servers(item)), *item.fixturenames]
            _account_for_tasks(item)


def pytest_collection_finish() -> None:
    """Put what was imported and collected out of the collector's sight: it stays until the end, and there is much."""
    gc.collect()
    gc.freeze()


def _on_servers(item: pytest.Item) -> list[str]:
    """The backends on servers that a test is run with, by its parameters."""
    given = getattr(getattr(item, "callspec", None), "params", {}).values()
    return [name for name in given if isinstance(name, str) and name in SERVERS]


def _account_for_tasks(item: pytest.Function) -> None:
    # The loop's runner cancels leftover tasks when it closes, so they must be counted inside it.
    inner = getattr(getattr(item.obj, "hypothesis", None), "inner_test", None)
    counts = item.get_closest_marker("leaks") is None
    if inspect.iscoroutinefunction(inner):
        item.obj.hypothesis.inner_test = _closing_all(inner, counts=counts)
    elif inspect.iscoroutinefunction(item.obj):
        item.obj = _closing_all(item.obj, counts=counts)


def _closing_all(test: Callable[..., Awaitable[Any]], *, counts: bool) -> Callable[..., Awaitable[Any]]:
    """Close the storages that a test opened in the test's own loop, and let no task of it be left then."""

    @functools.wraps(test)
    async def counted(*args: Any, **kwargs: Any) -> Any:
        before = asyncio.all_tasks()
        try:
            result = await test(*args, **kwargs)
        finally:
            await close_opened()
        if not counts:
            return result
        left: set[asyncio.Task[Any]] = set()
        for _ in range(10):  # turns of the loop, so that a task which is about to end can end
            left = {task for task in asyncio.all_tasks() - before if not task.done()}
            if not left:
                return result
            await asyncio.sleep(0)
        pytest.fail(f"the test left tasks behind: {sorted(map(repr, left))}")

    return counted


@pytest.fixture(autouse=True)
def nothing_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """After each test, after all its fixtures: no thread and no open file that was not there before."""
    if request.node.get_closest_marker("leaks") is not None:
        yield
        close_opened_now()
        return
    threads, files = set(threading.enumerate()), _open_files()
    yield
    close_opened_now()
    if _new_threads(threads) or _open_files() - files:
        gc.collect()  # an object in a reference cycle closes its file only when collected
        for thread in _new_threads(threads):
            thread.join(1)  # one that is about to end may end
    new_files = _open_files() - files
    assert not new_files, f"the test left files open: {sorted(new_files.elements())}"
    new_threads = _new_threads(threads)
    assert not new_threads, f"the test left threads running: {sorted(map(repr, new_threads))}"


def _new_threads(before: set[threading.Thread]) -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread not in before and thread.is_alive()}


def _open_files() -> Counter[str]:
    """What the process holds open, by name; empty where the system does not say."""
    names: Counter[str] = Counter()
    try:
        numbers = os.listdir(_FD_FOLDER)
    except OSError:
        return names
    for number in numbers:
        try:
            name = os.readlink(_FD_FOLDER / number)
        except OSError:  # the listing's own descriptor is already closed
            continue
        # The number inside "socket:[123]" differs for every socket; only how many there are counts.
        kind = name.partition(":[")[0]
        if kind not in _KEPT_FILES:
            names[kind] += 1
    return names


@pytest.fixture
def backend_folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """This test's folder, in which `opener` finds the server of the backend that the test is run with."""
    for name in _on_servers(request.node):
        (tmp_path / "address").write_text(request.getfixturevalue(SERVERS[name][1]), encoding="utf-8")
    return tmp_path


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """An empty folder for a storage, inside this test's own temporary folder."""
    folder = tmp_path / "runs"
    folder.mkdir()
    return folder


@pytest.fixture
def write_file(tmp_path: Path) -> Callable[[str, str], Path]:
    """Write text under this test's temporary folder, making the folders on the way."""

    def write(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    return write
