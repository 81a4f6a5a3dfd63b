"""A server process: started and waited for until it says that it is ready, stopped, killed with its children."""

from __future__ import annotations

import contextlib
import os
import pwd
import random
import select
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

HOST = "127.0.0.1"
_READY_SECONDS = 60
_STOP_SECONDS = 60


class ServerError(Exception):
    """A server did not start, or did not end when told to."""


# Not the one that tests seed: two processes of tests must not choose alike.
_CHANCE = random.SystemRandom()


def free_port() -> int:
    """A port of the loopback interface that nobody listens on now.

    It is none of those that systems give to clients, so that no client has it when a server is started
    there, or started again.
    """
    while True:
        port = _CHANCE.randrange(20_000, 32_000)
        with socket.socket() as found:
            try:
                found.bind((HOST, port))
            except OSError:
                continue
            return port


def unprivileged() -> int | None:
    """The user to run servers as that refuse to be root; None where this process is not root."""
    return pwd.getpwnam("nobody").pw_uid if os.geteuid() == 0 else None


def reachable_by_all(path: Path) -> bool:
    """Whether any user may enter every folder on the way to this one, and this one itself."""
    return all(folder.stat().st_mode & 0o001 for folder in (path, *path.parents))


class ServerProcess:
    """One server: what it prints goes to a log file, and this process keeps nothing open for it.

    Only processes that were started here are ever signalled, by their id.
    """

    def __init__(
        self,
        command: Sequence[str | os.PathLike[str]],
        *,
        log: Path,
        ready: str,
        user: int | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.command = list(command)
        self.log = log
        self.ready = ready
        self.user = user
        self.environment = {**os.environ, **(environment or {})}
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self.process is not None, "it does not run"
        return self.process.pid

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        """Start it, and return when it has said that it is ready."""
        assert not self.running, "it runs already"
        with self.log.open("ab") as log:
            begin = log.tell()
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.log.parent,
                env=self.environment,
                user=self.user,
                group=None if self.user is None else pwd.getpwuid(self.user).pw_gid,
                extra_groups=None if self.user is None else [],
                start_new_session=True,  # Ctrl-C is for the tests, which then stop their servers in order
            )
        try:
            self._wait_until_ready(begin)
        except BaseException:
            self.kill()
            raise

    def _wait_until_ready(self, begin: int) -> None:
        """Follow the log with `tail`, which waits for the file to grow, so that nobody has to look again and again."""
        assert self.process is not None
        follow = ["tail", "-c", f"+{begin + 1}", "-f", str(self.log)]
        deadline = time.monotonic() + _READY_SECONDS
        with subprocess.Popen(follow, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as tail:
            assert tail.stdout is not None
            try:
                said = b""
                while self.ready.encode() not in said:
                    if select.select([tail.stdout], [], [], 0.2)[0]:
                        said += os.read(tail.stdout.fileno(), 65536)
                    elif self.process.poll() is not None or time.monotonic() > deadline:
                        raise ServerError(f"{self.command[0]} did not start:\n{self._tail_of_log(begin)}")
            finally:
                tail.kill()

    def _tail_of_log(self, begin: int) -> str:
        return self.log.read_bytes()[begin:][-4000:].decode(errors="replace")

    def stop(self, how: int = signal.SIGTERM) -> None:
        """Tell it to end, and wait until it has."""
        if not self.running:
            return
        assert self.process is not None
        self.process.send_signal(how)
        try:
            self.process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ServerError(f"{self.command[0]} did not end when told to") from None

    def kill(self) -> None:
        """Kill it and all its children with SIGKILL, and wait until every one of them is dead."""
        if not self.running:
            return
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)  # so that it starts no child meanwhile
        with contextlib.ExitStack() as held:
            children = [_Held(pid) for pid in children_of(self.pid)]
            for child in children:
                held.callback(child.close)
            self.process.kill()
            for child in children:
                child.kill()
            self.process.wait(_STOP_SECONDS)
            for child in children:
                child.wait()


class _Held:
    """A process that is not our child, held so that its id cannot come to mean another one."""

    def __init__(self, pid: int) -> None:
        try:
            self.fd: int | None = os.pidfd_open(pid)
        except ProcessLookupError:
            self.fd = None

    def kill(self) -> None:
        if self.fd is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.fd, signal.SIGKILL)

    def wait(self) -> None:
        if self.fd is not None and not select.select([self.fd], [], [], _STOP_SECONDS)[0]:
            raise ServerError("a killed child did not die")

    def close(self) -> None:
        if self.fd is not None:
            os.close(self.fd)


def children_of(pid: int) -> list[int]:
    """All descendants of a process, from `/proc`."""
    parents: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                # The name may hold spaces and brackets; the state and the parent follow its last bracket.
                fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
                parents.setdefault(int(fields[1]), []).append(int(entry))
    found, waiting = [], [pid]
    while waiting:
        below = parents.get(waiting.pop(), [])
        found += below
        waiting += below
    return found
