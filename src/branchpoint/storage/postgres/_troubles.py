"""What goes wrong with a server, told as what to do about it."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

from branchpoint.errors import BranchpointError, InvalidCallError, StorageError, UnknownVersionError, quotable

__all__ = ["driver", "is_lost", "is_other_server", "is_worth_repeating", "told", "unknown_schema"]


def driver() -> Any:
    """Return the module `asyncpg`.

    Raises:
        ImportError: It is not installed.
    """
    try:
        import asyncpg
    except ImportError as error:
        raise ImportError(
            "PostgresCheckpointStorage needs the package asyncpg: pip install 'branchpoint[postgres]'"
        ) from error
    return asyncpg


# The five characters of SQLSTATE, or the two of its class, and what to do.
_ADVICE = {
    "28": "correct user and password in the DSN, or the server's pg_hba.conf",
    "3D000": "create that database, or correct its name in the DSN",
    "57P03": "wait until the server has started",
    "53300": "let the server have more connections, or this storage fewer (`connections=`)",
    "53100": "make room on the server's disk",
    "53200": "give the server more memory",
    "57014": "raise statement_timeout for this role",
    "55P03": "raise lock_timeout for this role",
    "25006": (
        "connect to the primary and not to a standby, or take default_transaction_read_only off this role "
        "and database"
    ),
    "26000": "give the pool statement_cache_size=0: a pooler in transaction mode keeps no prepared statements",
    "42P05": "give the pool statement_cache_size=0: a pooler in transaction mode keeps no prepared statements",
    "08": "check the server and the way to it",
}
# Ends of a session that the server has announced.
_ENDS = frozenset({"57P01", "57P02", "57P05", "25P03", "08000", "08001", "08003", "08004", "08006"})
_AGAIN = frozenset({"40001", "40P01"})
_NOT_PREPARED = frozenset({"26000", "42P05"})


def state_of(error: BaseException) -> str:
    """Return the SQLSTATE of what the server has answered; empty for anything else."""
    state = getattr(error, "sqlstate", None)
    return state if isinstance(state, str) else ""


def is_lost(error: BaseException) -> bool:
    """Say whether the connection was lost, so that nobody knows what the server has done."""
    if isinstance(error, OSError | EOFError):
        return True
    asyncpg = driver()
    if state_of(error):
        return state_of(error) in _ENDS
    return isinstance(error, asyncpg.InterfaceError | asyncpg.InternalClientError) and not isinstance(
        error, ValueError
    )


def is_worth_repeating(error: BaseException) -> bool:
    """Say whether the server gave way to another transaction; under its own defaults it does not."""
    return state_of(error) in _AGAIN


def is_other_server(error: BaseException) -> bool:
    """Say whether a statement was prepared on another server, as a pooler in transaction mode may have it."""
    return state_of(error) in _NOT_PREPARED


def told(error: Exception, doing: str, *, where: str, schema: str) -> BranchpointError:
    """Return what a caller is told of an error of the driver, which is to be its cause."""
    state = state_of(error)
    # Without what the server adds for itself, which may quote values.
    reason = quotable(str(getattr(error, "message", None) or error), 200) or type(error).__name__
    if not state and isinstance(error, ValueError) and not isinstance(error, OSError):
        # The driver quotes what it could not read, which may be a piece of the password.
        named = isinstance(error, driver().ClientConfigurationError) and "URI" not in reason
        return InvalidCallError(
            f"{doing} failed: {reason if named else 'the driver could not read the DSN'}. A DSN looks like "
            "postgresql://user:password@host:5432/database; what is none of letters, digits and - . _ ~ in a "
            "user or password is written as %XX"
        )
    if isinstance(error, asyncio.TimeoutError):
        reason = "it took too long"
    return StorageError(
        f"{doing} failed ({where}): {reason}. {_advice(error, state, schema)}, then try again"
    )


def _advice(error: Exception, state: str, schema: str) -> str:
    if state == "42501":
        return (
            f"Let an administrator call `await storage.setup()` once, then GRANT USAGE ON SCHEMA {schema} and "
            f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} to this role"
        )
    if state in ("42P01", "3F000"):
        return f"The tables of schema {schema} are not there: call `await storage.setup()`"
    if state in ("42P07", "42703", "42804"):
        return f"Schema {schema} holds tables that are not this storage's: name another one (`schema=`)"
    if isinstance(error, ssl.SSLError):
        return "Correct sslmode and sslrootcert in the DSN, or the server's certificate"
    if not state and isinstance(error, OSError):
        return "Start the server, or correct host and port, or the files that the DSN names"
    if not state:
        return "Check the way to the server, and that a pool that was given is open"
    found = _ADVICE.get(state) or _ADVICE.get(state[:2]) or "Mend what the server names"
    return found[0].upper() + found[1:]


def unknown_schema(version: object, known: int, *, where: str, schema: str) -> UnknownVersionError:
    """Return the refusal of a schema that a newer program has made."""
    return UnknownVersionError(
        f"the tables of schema {schema} ({where}) are of version {version} and this program knows up to {known}: "
        "upgrade branchpoint to use them"
    )
