"""What a backend has stored, past the backend: for the clauses that look for leftovers and make damage."""

from __future__ import annotations

import base64
import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Protocol

from tests.servers.cosmos import CosmosItems
from tests.storages import address, memory_in

_LOCKS = ".lock-"


class Raw(Protocol):
    """The stored bytes of one place, a name for each thing; nothing while no checkpoint is there.

    Attributes:
        pokes: Whether what is stored can be damaged here.
    """

    pokes: bool

    async def peek(self) -> Mapping[str, bytes]:
        """Everything that is stored."""
        ...

    async def poke(self, name: str, data: bytes | None) -> None:
        """Replace what is stored under a name; None removes it."""
        ...

    async def pass_time(self, seconds: float) -> bool:
        """Let time pass for stored leases; False where the clock of `branchpoint.clock` decides."""
        ...


class RawMemory:
    """What a memory storage keeps; only this process could damage it, and nothing is promised about that."""

    pokes = False

    def __init__(self, folder: Path) -> None:
        self.storage = memory_in(folder)

    async def peek(self) -> Mapping[str, bytes]:
        found: dict[str, bytes] = {}
        for checkpoint_id, kept in self.storage._kept.items():
            found[f"header {checkpoint_id}"] = kept.header
            found |= {f"manifest {checkpoint_id} {name}": data for name, data in kept.manifests.items()}
            found |= {f"part {checkpoint_id} {name}": data for name, data in kept.parts.items()}
        return found | {f"lease {name}": lease.token.encode() for name, lease in self.storage._leases.items()}

    async def poke(self, name: str, data: bytes | None) -> None:
        raise NotImplementedError

    async def pass_time(self, seconds: float) -> bool:
        return False


class RawFolder:
    """The files of a file storage, but for its locks, which stay."""

    pokes = True

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "runs"

    async def peek(self) -> Mapping[str, bytes]:
        return {
            str(path.relative_to(self.folder)): path.read_bytes()
            for path in sorted(self.folder.rglob("*"))
            if path.is_file() and not path.name.startswith(_LOCKS)
        }

    async def poke(self, name: str, data: bytes | None) -> None:
        if data is None:
            (self.folder / name).unlink()
        else:
            (self.folder / name).write_bytes(data)

    async def pass_time(self, seconds: float) -> bool:
        return False


class RawSqlite:
    """The rows of one database."""

    pokes = True
    _ROWS: ClassVar = {
        "header": ("records", "data", "record", "typeof(name) = 'text' AND name LIKE '.header.%'"),
        "manifest": ("records", "data", "record", "typeof(name) = 'text' AND name GLOB '.[0-9]*'"),
        "part": ("records", "data", "record", "typeof(name) = 'blob'"),
        "head": ("checkpoints", "snapshot_id", "checkpoint_id", "1"),
        "place": ("places", "record", "checkpoint || ' ' || beginning || ' ' || record", "1"),
        "lease": ("leases", "token", "checkpoint_id", "1"),
    }
    """By the first word of a name: the table, the column of its bytes, the rest of the name, and which rows."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "runs" / "checkpoints.db"
        self._removed: dict[str, tuple[Any, ...]] = {}

    def _do(self, statement: str, *arguments: Any) -> list[tuple[Any, ...]]:
        if not self.path.exists():
            return []
        db = sqlite3.connect(self.path, isolation_level=None)
        try:
            db.execute("PRAGMA synchronous = OFF")
            return list(db.execute(statement, arguments))
        finally:
            db.close()

    async def peek(self) -> Mapping[str, bytes]:
        found = [
            (f"{kind} {name}", data)
            for kind, (table, column, key, rows) in self._ROWS.items()
            for name, data in self._do(f"SELECT {key}, {column} FROM {table} WHERE {rows}")
        ]
        return {name: data if isinstance(data, bytes) else str(data).encode() for name, data in found}

    async def poke(self, name: str, data: bytes | None) -> None:
        kind, _, rest = name.partition(" ")
        table, column, key, _ = self._ROWS[kind]
        where = f"CAST({key} AS TEXT) = ?"
        if data is None:
            [self._removed[name]] = self._do(f"SELECT * FROM {table} WHERE {where}", rest)
            self._do(f"DELETE FROM {table} WHERE {where}", rest)
            return
        if name in self._removed:
            row = self._removed.pop(name)
            self._do(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", *row)
        # Numbers and texts are put back as what they were; any other bytes are none of these.
        value: Any = data if column == "data" else _plain(data)
        self._do(f"UPDATE {table} SET {column} = ? WHERE {where}", value, rest)

    async def pass_time(self, seconds: float) -> bool:
        return False


def _plain(data: bytes) -> int | str | bytes:
    text = data.decode("ascii", "replace")
    return int(text) if text.isdecimal() else text if text.isalnum() else data


class RawPostgres:
    """The rows of one schema."""

    pokes = True
    _PEEK = (
        "SELECT 'header ' || checkpoint_id AS name, header AS data FROM {0}.checkpoints WHERE head IS NOT NULL",
        "SELECT 'lease ' || checkpoint_id, lease::bytea FROM {0}.checkpoints WHERE lease IS NOT NULL",
        "SELECT 'manifest ' || checkpoint || ' ' || snapshot_id, manifest FROM {0}.snapshots",
        "SELECT 'part ' || checkpoint || ' ' || name, data FROM {0}.parts",
    )
    _ROWS: ClassVar = {
        "header": ("checkpoints", "header", "checkpoint_id"),
        "manifest": ("snapshots", "manifest", "checkpoint || ' ' || snapshot_id"),
        "part": ("parts", "data", "checkpoint || ' ' || name"),
    }
    """By the first word of a name: the table, the column of its bytes, and the rest of the name."""

    def __init__(self, folder: Path) -> None:
        self.dsn, self.schema = address(folder).split()
        self._removed: dict[str, str] = {}

    async def _do(self, statement: str, *arguments: Any) -> list[Any]:
        import asyncpg

        connection = await asyncpg.connect(self.dsn)
        try:
            return list(await connection.fetch(statement.replace("{0}", self.schema), *arguments))
        except asyncpg.UndefinedTableError:
            return []  # nothing was ever stored
        finally:
            await connection.close()

    async def peek(self) -> Mapping[str, bytes]:
        return {row["name"]: row["data"] for row in await self._do(" UNION ALL ".join(self._PEEK))}

    async def poke(self, name: str, data: bytes | None) -> None:
        kind, _, rest = name.partition(" ")
        table, column, key = self._ROWS[kind]
        at = f"{{0}}.{table}"
        if data is None:
            [gone] = await self._do(f"DELETE FROM {at} c WHERE {key} = $1 RETURNING to_jsonb(c)::text", rest)
            self._removed[name] = gone[0]
            return
        if name in self._removed:
            row = f"SELECT * FROM jsonb_populate_record(NULL::{at}, $1::jsonb)"
            await self._do(f"INSERT INTO {at} OVERRIDING SYSTEM VALUE {row}", self._removed.pop(name))
        await self._do(f"UPDATE {at} SET {column} = $2 WHERE {key} = $1", rest, data)

    async def pass_time(self, seconds: float) -> bool:
        earlier = "UPDATE {0}.checkpoints SET lease_expires = lease_expires - make_interval(secs => $1)"
        await self._do(earlier, float(seconds))
        return True


class RawCosmos:
    """The items of one container, past the SDK."""

    pokes = True
    _BYTES = ("header", "manifest")

    def __init__(self, folder: Path) -> None:
        self.items = CosmosItems(*address(folder).split())
        self._seen: dict[tuple[str, str], dict[str, Any]] = {}
        self._sizes: dict[str, int] = {}

    async def peek(self) -> Mapping[str, bytes]:
        found: dict[str, bytes] = {}
        self._seen = {(item["partition"], item["id"]): item for item in self.items.all()}
        for (partition, id), item in self._seen.items():
            place = f"{partition} {id}"
            found |= {f"{name} {place}": _stored(item[name]) for name in self._BYTES if name in item}
            if "lease" in item:
                found[f"lease {place}"] = item["lease"]["token"].encode()
            for name, data in zip(item.get("names", ()), item.get("data", ()), strict=True):
                found[f"part {place} {name}"] = _stored(data)
        return found

    async def poke(self, name: str, data: bytes | None) -> None:
        """Change a thing of the last peek."""
        field, partition, id, *part = name.split(" ")
        item = self._seen[partition, id]
        fresh = None if data is None else {"base64": base64.b64encode(data).decode()}
        if not part:
            item.pop(field, None)
            item |= {} if fresh is None else {field: fresh}
        elif fresh is not None and part[0] in item.get("names", ()):
            item["data"][item["names"].index(part[0])] = fresh
        elif fresh is not None:
            for column, value in (("names", part[0]), ("sizes", self._sizes[name]), ("data", fresh)):
                item.setdefault(column, []).append(value)
        else:
            at = item["names"].index(part[0])
            self._sizes[name] = item["sizes"][at]
            for column in ("names", "sizes", "data"):
                del item[column][at]
        self.items.put(item)

    async def pass_time(self, seconds: float) -> bool:
        for item in self.items.all():
            if "lease" in item:
                item["lease"]["expires"] -= seconds
                self.items.put(item)
        return True


def _stored(data: Any) -> bytes:
    return data.encode() if isinstance(data, str) else base64.b64decode(data["base64"])


RAW: dict[str, Callable[[Path], Raw]] = {
    "memory": RawMemory,
    "file-json": RawFolder,
    "file-msgpack": RawFolder,
    "sqlite-json": RawSqlite,
    "sqlite-msgpack": RawSqlite,
    "postgres-json": RawPostgres,
    "postgres-msgpack": RawPostgres,
    "cosmos-json": RawCosmos,
    "cosmos-msgpack": RawCosmos,
}
"""What each backend has stored in a folder; one that is not here is not looked at past the storage."""

RAW |= {f"encrypted-{name}": raw for name, raw in RAW.items() if name != "memory"}
