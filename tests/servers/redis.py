"""A real Redis server: the program `redis-server`, which Debian has in a package of that name."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from tests.servers.process import HOST, ServerProcess, free_port


def redis_missing() -> str | None:
    """Why there is no Redis to be had here; None if there is."""
    return (
        None
        if shutil.which("redis-server")
        else "redis-server is not on the path (`make servers` installs it)"
    )


class RedisServer:
    """A server that writes each command to its log and syncs it before it answers."""

    def __init__(self) -> None:
        program = shutil.which("redis-server")
        assert program is not None
        self.port = free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="branchpoint-redis-"))
        options = {
            "bind": HOST,
            "port": str(self.port),
            "dir": str(self.folder),
            "appendonly": "yes",
            "appendfsync": "always",
            "save": "",
        }
        self.process = ServerProcess(
            [program, *(part for name, value in options.items() for part in (f"--{name}", value))],
            log=self.folder / "log",
            ready="Ready to accept connections",
        )

    def url(self, database: int = 0, *, port: int | None = None) -> str:
        """The address of one of the 16 databases; `port` leads through a proxy."""
        return f"redis://{HOST}:{port or self.port}/{database}"

    def start(self) -> None:
        self.process.start()

    def stop(self) -> None:
        self.process.stop()

    def kill(self) -> None:
        """SIGKILL; after a new start everything acknowledged is there."""
        self.process.kill()

    def remove(self) -> None:
        """Stop it and remove its data."""
        self.stop()
        shutil.rmtree(self.folder)
