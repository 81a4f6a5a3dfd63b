"""One server as a storage uses it: statements are executed, lost connections replaced, troubles told."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit

from branchpoint.errors import BranchpointError, InvalidCallError, StorageError, quotable
from branchpoint.storage.postgres._connections import Connections, Given, Link, Loops
from branchpoint.storage.postgres._grouping import Commit, columns
from branchpoint.storage.postgres._statements import VERSION, Statement, Statements, migration
from branchpoint.storage.postgres._troubles import (
    driver,
    is_lost,
    is_other_server,
    is_worth_repeating,
    told,
    unknown_schema,
)

__all__ = ["Asked", "Server"]

_REPEATS = 20
"""How often a statement gives way to other transactions, under defaults that make it give way at all."""

_CONNECT_SECONDS = 30

T = TypeVar("T")


class Asked(Protocol):
    """Executes one statement on the connection that is lent, and returns its rows."""

    def __call__(self, statement: Statement, *arguments: Any) -> Awaitable[list[Any]]: ...


class Server:
    """A PostgreSQL server and one schema in it.

    Args:
        source: A DSN, or a pool of the driver.
        schema: The name of the schema.
        most: How many connections each event loop may have; of no meaning with a pool.

    Raises:
        ImportError: The driver is not installed.
        InvalidCallError: The source is neither, or no schema can have this name.
    """

    def __init__(self, source: Any, *, schema: str, most: int) -> None:
        self._driver = driver()
        self.statements = Statements(schema)
        self._schema = quotable(schema, 80)
        self._steps: Sequence[str] = [migration(version) for version in range(1, VERSION + 1)]
        self._named = True
        self._loops: Loops | None = None
        self._given: Given | None = None
        if isinstance(source, self._driver.Pool):
            self._given, self.where = Given(source), "a given pool"
        else:
            self.where = _place(source)
            # Without the driver's cache: names of its making mean other statements in other programs.
            connect = partial(self._driver.connect, source, statement_cache_size=0, timeout=_CONNECT_SECONDS)
            self._loops = Loops(connect, most)

    async def aclose(self) -> None:
        """End all connections; a pool that was given stays open."""
        if self._loops is not None:
            await self._loops.aclose()

    async def ask(self, doing: str, statement: Statement, *arguments: Any) -> list[Any]:
        """Execute one statement, on its own: what it reads is of one moment, what it writes is all or nothing.

        Raises:
            StorageError: It could not be done.
        """
        return await self._run(doing, lambda asked, _: asked(statement, *arguments))

    async def commit(self, doing: str, commit: Commit) -> bool:
        """Execute the statement of a commit, with those of others that wait, and say whether it has landed.

        When it has not, what is stored says why.

        Raises:
            StorageError: It could not be done; nothing of it is visible, or its reply was lost.
        """
        connections = self._given or await self._here()
        group = connections.begins if commit.begins else connections.commits
        return await group.join(commit, alone=partial(self._alone, doing), together=self._together)

    async def _alone(self, doing: str, commit: Commit) -> bool:
        statement = self.statements.begin if commit.begins else self.statements.commit
        arguments = commit.row()

        async def work(asked: Asked, link: Link) -> bool:
            try:
                return bool(await asked(statement, *arguments))
            except self._driver.UniqueViolationError:
                return False  # this very snapshot is stored

        return await self._run(doing, work)

    async def _together(self, commits: Sequence[Commit]) -> set[str]:
        sql = self.statements
        statement = sql.begin_many if commits[0].begins else sql.commit_many
        rows = await self.ask("committing", statement, *columns(commits))
        return {row["checkpoint_id"] for row in rows}

    async def within(self, doing: str, work: Callable[[Asked], Awaitable[T]]) -> T:
        """Execute several statements in one transaction, each of which sees all that was committed before it.

        Raises:
            StorageError: It could not be done; nothing of it is visible, or its reply was lost.
        """

        async def all_of_it(asked: Asked, link: Link) -> T:
            async with link.connection.transaction(isolation="read_committed"):
                return await work(asked)

        return await self._run(doing, all_of_it)

    async def setup(self) -> None:
        """Make the tables, or lead them to this version.

        Raises:
            StorageError: It could not be done; nothing has changed.
            UnknownVersionError: A newer program made them.
        """
        await self._run("setting up", self._migrate, checked=False)

    async def _run(
        self, doing: str, work: Callable[[Asked, Link], Awaitable[T]], *, checked: bool = True
    ) -> T:
        """Do some work on a connection, and again where that settles what happened.

        Whatever is done here may be done twice: a commit, a prune and a lease name what they expect to find. So
        after a lost connection it is done again on a new one, which either does it or finds it done. Where the
        first try is still under way, the second one waits for its lock.
        """
        lost = False
        repeats = _REPEATS
        while True:
            connections, named = self._given or await self._here(), self._named
            try:
                return await self._attempt(connections, work, named=named, checked=checked)
            except BranchpointError:
                raise  # some of them are a ValueError as well
            except (self._driver.PostgresError, self._driver.InterfaceError) as error:
                trouble: Exception = error
            except (self._driver.InternalClientError, OSError, EOFError, ValueError) as error:
                trouble = error
            if is_lost(trouble) and not lost:
                lost = True
                await connections.renew()
            elif is_other_server(trouble) and named and self._loops is not None:
                self._named = False
            elif is_worth_repeating(trouble) and repeats:
                repeats -= 1
            else:
                connections.checked = False  # whoever mends it may have done so from the ground
                failure = told(trouble, doing, where=self.where, schema=self._schema)
                # A faulty DSN is quoted by the driver, with the password that is in it.
                raise failure from (None if isinstance(failure, InvalidCallError) else trouble)

    async def _attempt(
        self,
        connections: Connections | Given,
        work: Callable[[Asked, Link], Awaitable[T]],
        *,
        named: bool,
        checked: bool,
    ) -> T:
        async with connections.lend() as link:

            async def asked(statement: Statement, *arguments: Any) -> list[Any]:
                return await link.fetch(statement, *arguments, named=named)

            if checked and not connections.checked:
                async with connections.checking:
                    if not connections.checked:
                        await self._check(asked, link)
                        connections.checked = True
            return await work(asked, link)

    async def _here(self) -> Connections:
        assert self._loops is not None
        return await self._loops.here()

    # The schema.

    async def _check(self, asked: Asked, link: Link) -> None:
        """See that the tables are there and of this version; make them where there are none."""
        version = await self._version(asked)
        if version is None:
            await self._migrate(asked, link)
        elif version < len(self._steps):
            raise StorageError(
                f"the tables of schema {self._schema} ({self.where}) are of version {version} and this program "
                f"needs {len(self._steps)}: call `await storage.setup()` once no older program uses them any more"
            )

    async def _version(self, asked: Asked) -> int | None:
        [found] = await asked(self.statements.find, self.statements.schema)
        if found["encoding"] != "UTF8":
            raise StorageError(
                f"the database ({self.where}) is encoded in {found['encoding']}, which cannot hold every text: "
                "create one WITH ENCODING 'UTF8' TEMPLATE template0 and use that"
            )
        if not found["made"]:
            return None
        [row] = await asked(self.statements.version)
        version: int = row["version"]
        if version > len(self._steps):
            raise unknown_schema(version, len(self._steps), where=self.where, schema=self._schema)
        return version

    async def _migrate(self, asked: Asked, link: Link) -> None:
        """Do the steps that are missing, in one transaction and with nobody else doing so."""
        async with link.connection.transaction(isolation="read_committed"):
            # Held until the end of the transaction, so that a pooler may do as it likes afterwards.
            await link.connection.execute(
                f"SELECT pg_advisory_xact_lock({_lock_key(self.statements.schema)})"
            )
            [found] = await asked(self.statements.find, self.statements.schema)
            version = await self._version(asked) or 0
            for script in self._steps[version:]:
                if found["there"]:  # to make it is a right of its own, which is asked for even then
                    script = script.replace("CREATE SCHEMA IF NOT EXISTS branchpoint;", "")
                await link.connection.execute(self.statements.placed(script))


def _lock_key(schema: str) -> int:
    digest = hashlib.blake2b(f"branchpoint {schema}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def _place(dsn: Any) -> str:
    """Return where a DSN leads, without user and password.

    Raises:
        InvalidCallError: It is none.
    """
    if type(dsn) is not str or not dsn.startswith(("postgresql://", "postgres://")):
        raise InvalidCallError(
            "PostgresCheckpointStorage takes a DSN, postgresql://user:password@host:5432/database, or an "
            f"asyncpg.Pool, not {'another text' if isinstance(dsn, str) else type(dsn).__name__}"
        )
    try:
        parts = urlsplit(dsn)
        if "@" in parts.path:  # part of a password, cut off at a slash in it
            return "PostgreSQL"
        port = f":{parts.port}" if parts.port else ""
        return quotable(f"PostgreSQL at {parts.hostname or 'this machine'}{port}{parts.path}", 200)
    except ValueError:
        return "PostgreSQL"
