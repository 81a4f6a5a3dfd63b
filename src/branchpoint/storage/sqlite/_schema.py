"""The tables of a database: made, brought up to date, and checked before anything is done with them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from branchpoint.errors import CorruptCheckpointError, InvalidCallError, UnknownVersionError

__all__ = ["APPLICATION", "SCRIPTS", "bring_up_to_date", "check_tables", "version_of"]

APPLICATION = 0x42504E54  # "BPNT", in the header of the file: the database is ours

SCRIPTS: tuple[str, ...] = tuple(
    Path(__file__).with_name(f"_schema_{version}.sql").read_text(encoding="utf-8") for version in (1,)
)
"""What takes a database from each version to the next one."""


def version_of(db: sqlite3.Connection, where: str, *, newest: int = len(SCRIPTS)) -> int:
    """Return the version of the tables that are there; 0 for an empty database.

    Raises:
        UnknownVersionError: A newer version of the library made them.
        InvalidCallError: The database belongs to another program.
    """
    application, version, count = _as_of_one_moment(db)
    if application == APPLICATION and version > newest:
        raise UnknownVersionError(
            f"{where} has tables of version {version} and this program knows up to {newest}: "
            "upgrade branchpoint to use it"
        )
    if application == APPLICATION and version > 0:
        return int(version)
    if application or version or count:
        raise InvalidCallError(
            f"{where} is a database of another program: give checkpoints a file of their own."
        )
    return 0


def _as_of_one_moment(db: sqlite3.Connection) -> tuple[int, int, int]:
    """Return whose the database is, its version and its number of tables; another program may be making it."""
    begun = not db.in_transaction
    if begun:
        db.execute("BEGIN")
    try:
        (application,) = db.execute("PRAGMA application_id").fetchone()
        (version,) = db.execute("PRAGMA user_version").fetchone()
        (count,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        return application, version, count
    finally:
        if begun and db.in_transaction:
            db.execute("ROLLBACK")


def bring_up_to_date(db: sqlite3.Connection, where: str, *, scripts: Sequence[str] = SCRIPTS) -> None:
    """Run what is missing of the scripts, in one transaction; the connection is in none.

    Raises:
        UnknownVersionError: A newer version of the library made the tables.
        InvalidCallError: The database belongs to another program.
    """
    db.execute("BEGIN IMMEDIATE")
    try:
        # Asked again: another program may have done it in the meantime.
        for script in scripts[version_of(db, where, newest=len(scripts)) :]:
            for statement in _statements(script):
                db.execute(statement)
        # Pragmas take no parameters; both are numbers of ours.
        db.execute(f"PRAGMA application_id = {APPLICATION:d}")
        db.execute(f"PRAGMA user_version = {len(scripts):d}")
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def check_tables(db: sqlite3.Connection, where: str) -> None:
    """Check that the tables are those that the scripts make, and that nothing acts on them by itself.

    Raises:
        CorruptCheckpointError: A table was changed or is missing, or there is a trigger or a view.
    """
    found = _objects(db)
    ours = _expected()
    changed = [name for name, made in ours.items() if found.get(name) != made]
    changed += [name for name, (kind, _) in found.items() if kind in ("trigger", "view")]
    if changed:
        raise CorruptCheckpointError(
            f"{where} has other tables than branchpoint made ({changed[0][:40]!a}): it was edited; restore it "
            "from a backup"
        )


def _objects(db: sqlite3.Connection) -> dict[str, tuple[str, str | None]]:
    return {name: (kind, sql) for name, kind, sql in db.execute("SELECT name, type, sql FROM sqlite_master")}


@cache
def _expected() -> dict[str, tuple[str, str | None]]:
    db = sqlite3.connect(":memory:", isolation_level=None)
    try:
        for script in SCRIPTS:
            for statement in _statements(script):
                db.execute(statement)
        return _objects(db)
    finally:
        db.close()


def _statements(script: str) -> Iterator[str]:
    """Cut a script into its statements; `executescript` would end the transaction around it."""
    begun = ""
    for line in script.splitlines(keepends=True):
        begun += line
        if begun.rstrip().endswith(";") and sqlite3.complete_statement(begun):
            yield begun
            begun = ""
