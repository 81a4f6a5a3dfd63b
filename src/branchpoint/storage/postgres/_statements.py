"""The SQL statements of one schema.

Each names its tables with their schema and sets nothing for the session, so it does the same on
whichever connection a pooler gives it to. Its name is made of its text: where several programs share
connections, one name never means two statements.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import NamedTuple

from branchpoint.errors import InvalidCallError

__all__ = ["DEFAULT_SCHEMA", "VERSION", "Statement", "Statements", "migration", "quoted"]

DEFAULT_SCHEMA = "branchpoint"
VERSION = 1
"""The newest version of the schema, which `schema_<version>.sql` leads to from the one before."""

_MAX_NAME_BYTES = 63
_HERE = re.compile(r"\bbranchpoint(?=[.;])")

# Of arrays the driver knows those of text by itself. It would ask the server about any other, and set something
# for the session meanwhile: so bytes come in one piece, with the places of the pieces in it.

# A server may be set to acknowledge before its log is on the disk. Whoever commits here is promised more.
_DURABLE = """
    CASE current_setting('synchronous_commit')
    WHEN 'off' THEN set_config('synchronous_commit', 'on', true)
    END
"""
# A lease refuses who does not hold it, until it expires, and its former holder even then.
_UNLEASED = """
    (NOT $1::boolean OR c.lease IS NULL OR c.lease = {held}
     OR ({held} IS NULL AND c.lease_expires <= clock_timestamp()))
"""
_LEASE = """
    c.lease, extract(epoch FROM c.lease_expires - clock_timestamp())::float8 AS expires_in
"""

# A row without a head is a lease, which a first commit makes a checkpoint of.
_TAKE_OVER = """
    ON CONFLICT (checkpoint_id) DO UPDATE
    SET head = excluded.head, status = excluded.status, newest = 1, kept = 1, bytes = excluded.bytes,
        generation = excluded.generation, format = excluded.format, header = excluded.header,
        labels = excluded.labels
    WHERE c.head IS NULL
"""
_ADD = """
added AS (
    INSERT INTO branchpoint.snapshots (checkpoint, n, snapshot_id, manifest)
    SELECT moved.id, moved.newest, $5::text, $6::bytea FROM moved
), shared AS (
    INSERT INTO branchpoint.parts (checkpoint, name, data)
    SELECT moved.id, part.name, substring($14::bytea FROM part.start::int FOR part.size::int)
    FROM moved CROSS JOIN unnest($11::text[], $12::text[], $13::text[]) AS part (name, start, size)
    ON CONFLICT DO NOTHING
)
"""

# Two writers of one head: the second one waits for the row, finds another head in it, and moves nothing.
_COMMIT = f"""
WITH moved AS (
    UPDATE branchpoint.checkpoints AS c
    SET head = $5::text, status = $7::text, newest = newest + 1, kept = kept + 1, bytes = bytes + $8::bigint
    WHERE c.checkpoint_id = $3::text AND c.head = $9::text AND c.generation = $10::bigint
        AND c.format = $2::text AND {_UNLEASED.format(held="$4::text")}
    RETURNING c.id, c.newest
), {_ADD}
SELECT {_DURABLE} FROM moved
"""  # noqa: S608 - made of constants

_MANY = """
WITH given AS (
    SELECT g.checkpoint_id, g.held, g.snapshot_id, g.status, g.bytes::bigint, g.generation::bigint, g.n,
        substring($16::bytea FROM g.start::int FOR g.size::int) AS manifest, {more}
    FROM unnest(
        $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::text[], $11::text[]
    ) WITH ORDINALITY AS g (checkpoint_id, held, snapshot_id, start, size, status, bytes, generation, {names}, n)
)"""
_ADD_MANY = """
added AS (
    INSERT INTO branchpoint.snapshots (checkpoint, n, snapshot_id, manifest)
    SELECT moved.id, moved.newest, g.snapshot_id, g.manifest FROM moved JOIN given g USING (checkpoint_id)
), shared AS (
    INSERT INTO branchpoint.parts (checkpoint, name, data)
    SELECT moved.id, part.name, substring($16::bytea FROM part.start::int FOR part.size::int)
    FROM moved JOIN given g USING (checkpoint_id)
    JOIN unnest($12::text[], $13::text[], $14::text[], $15::text[]) AS part (n, name, start, size)
        ON part.n::bigint = g.n
    ON CONFLICT DO NOTHING
)
"""
# The same for several checkpoints. One that somebody else has locked is left out, so that nobody waits for
# another's checkpoint, and two groups never for each other.
_COMMIT_MANY = f"""
{_MANY.format(names="expected", more="g.expected")}, locked AS MATERIALIZED (
    SELECT c.id FROM branchpoint.checkpoints c JOIN given USING (checkpoint_id) FOR UPDATE OF c SKIP LOCKED
), moved AS (
    UPDATE branchpoint.checkpoints AS c
    SET head = g.snapshot_id, status = g.status, newest = newest + 1, kept = kept + 1, bytes = c.bytes + g.bytes
    FROM locked, given g
    WHERE c.id = locked.id AND c.checkpoint_id = g.checkpoint_id AND c.head = g.expected
        AND c.generation = g.generation AND c.format = $2::text AND {_UNLEASED.format(held="g.held")}
    RETURNING c.id, c.newest, c.checkpoint_id
), {_ADD_MANY}
SELECT checkpoint_id, {_DURABLE} FROM moved
"""  # noqa: S608 - made of constants

# Two first commits: the second one waits for the first one's key, and then does nothing.
_BEGIN = f"""
WITH moved AS (
    INSERT INTO branchpoint.checkpoints AS c
        (checkpoint_id, head, status, newest, kept, bytes, generation, format, header, labels)
    VALUES ($3::text, $5::text, $7::text, 1, 1, $8::bigint, $9::bigint, $2::text, $10::bytea, $15::text[])
    {_TAKE_OVER} AND {_UNLEASED.format(held="$4::text")}
    RETURNING c.id, c.newest
), {_ADD}
SELECT {_DURABLE} FROM moved
"""  # noqa: S608 - made of constants

# Several, where nobody uses leases. They come in the order of their ids, so that two groups never wait for
# each other.
_BEGIN_MANY = f"""
{_MANY.format(names="header", more="decode(g.header, 'base64') AS header")}, moved AS (
    INSERT INTO branchpoint.checkpoints AS c
        (checkpoint_id, head, status, newest, kept, bytes, generation, format, header, labels)
    SELECT g.checkpoint_id, g.snapshot_id, g.status, 1, 1, g.bytes, g.generation, $2::text, g.header, (
        SELECT array_agg(l.label) FROM unnest($17::text[], $18::text[]) AS l (n, label) WHERE l.n::bigint = g.n
    )
    FROM given g
    WHERE NOT $1::boolean
    ORDER BY g.checkpoint_id COLLATE "C"
    {_TAKE_OVER}
    RETURNING c.id, c.newest, c.checkpoint_id
), {_ADD_MANY}
SELECT checkpoint_id, {_DURABLE} FROM moved
"""  # noqa: S608 - made of constants

_LOOK = f"""
SELECT c.head, c.generation, c.format, {_LEASE}, EXISTS (
    SELECT FROM branchpoint.snapshots s WHERE s.checkpoint = c.id AND s.snapshot_id = $2::text
) AS there
FROM branchpoint.checkpoints c WHERE c.checkpoint_id = $1::text
"""  # noqa: S608 - made of constants

# Header, manifests and parts in one statement, which sees one moment. The two CASEs let an index find the
# newest snapshot, and no part, where the whole is over the limit.
_RECORDS = """
WITH found AS (
    SELECT c.*, $2::bigint IS NULL OR c.bytes <= $2::bigint AS whole
    FROM branchpoint.checkpoints c WHERE c.checkpoint_id = $1::text AND c.head IS NOT NULL
)
SELECT NULL::bigint AS n, head AS name, header AS data, format, generation, kept, whole FROM found
UNION ALL
SELECT s.n, s.snapshot_id, s.manifest, NULL, NULL, NULL, NULL
FROM found JOIN branchpoint.snapshots s
    ON s.checkpoint = found.id AND s.n >= CASE WHEN found.whole THEN 0 ELSE found.newest END
UNION ALL
SELECT 0, p.name, p.data, NULL, NULL, NULL, NULL
FROM found JOIN branchpoint.parts p ON p.checkpoint = CASE WHEN found.whole THEN found.id END
"""
_LINEAGE = """
WITH found AS (
    SELECT c.* FROM branchpoint.checkpoints c WHERE c.checkpoint_id = $1::text AND c.head IS NOT NULL
)
SELECT NULL::bigint AS n, head AS name, header AS data, format, generation, kept, true AS whole FROM found
UNION ALL
SELECT s.n, s.snapshot_id, s.manifest, NULL, NULL, NULL, NULL
FROM found JOIN branchpoint.snapshots s ON s.checkpoint = found.id
"""
_PARTS = """
SELECT c.format, p.name, p.data
FROM branchpoint.checkpoints c
LEFT JOIN branchpoint.parts p ON p.checkpoint = c.id AND p.name = ANY ($2::text[])
WHERE c.checkpoint_id = $1::text AND c.head IS NOT NULL
"""
_HEAD = """
SELECT head, generation FROM branchpoint.checkpoints WHERE checkpoint_id = $1::text AND head IS NOT NULL
"""
_LIST = """
SELECT c.checkpoint_id, c.format, c.head, c.generation, c.header, s.manifest
FROM branchpoint.checkpoints c
LEFT JOIN branchpoint.snapshots s ON s.checkpoint = c.id AND s.n = c.newest
WHERE c.head IS NOT NULL AND c.checkpoint_id > $1::text COLLATE "C" AND c.labels @> $2::text[]
    AND ($3::text IS NULL OR c.status = $3::text)
ORDER BY c.checkpoint_id LIMIT $4::bigint
"""

# A prune and a delete take the row first. What they then remove is read by statements of their own, which
# see all that commits did before they got it.
_LOCK = f"""
SELECT c.id, c.head, c.generation, c.format, c.header, {_LEASE}, {_DURABLE} AS durable
FROM branchpoint.checkpoints c WHERE c.checkpoint_id = $1::text FOR UPDATE
"""  # noqa: S608 - made of constants
_ORDER = "SELECT snapshot_id FROM branchpoint.snapshots WHERE checkpoint = $1::bigint ORDER BY n"
_PRUNE = """
WITH dropped AS (
    DELETE FROM branchpoint.snapshots s WHERE s.checkpoint = $1::bigint
        AND NOT EXISTS (SELECT FROM unnest($2::text[]) AS stays (id) WHERE stays.id = s.snapshot_id)
), freed AS (
    DELETE FROM branchpoint.parts p WHERE p.checkpoint = $1::bigint
        AND NOT EXISTS (SELECT FROM unnest($3::text[]) AS stays (name) WHERE stays.name = p.name)
    RETURNING length(p.data) AS size
)
UPDATE branchpoint.checkpoints
SET header = $4::bytea, generation = $5::bigint, kept = cardinality($2::text[]),
    bytes = (SELECT coalesce(sum(length(p.data)), 0) FROM branchpoint.parts p WHERE p.checkpoint = $1::bigint)
        - (SELECT coalesce(sum(size), 0) FROM freed)
WHERE id = $1::bigint
"""
_DELETE = f"""
DELETE FROM branchpoint.checkpoints WHERE checkpoint_id = $1::text RETURNING id, {_DURABLE} AS durable
"""  # noqa: S608 - made of constants
_CLEAR = """
WITH dropped AS (DELETE FROM branchpoint.snapshots WHERE checkpoint = $1::bigint)
DELETE FROM branchpoint.parts WHERE checkpoint = $1::bigint
"""

_TAKE = """
INSERT INTO branchpoint.checkpoints AS c (checkpoint_id, lease, lease_expires)
VALUES ($1::text, $2::text, clock_timestamp() + make_interval(secs => $3::float8))
ON CONFLICT (checkpoint_id) DO UPDATE
SET lease = excluded.lease, lease_expires = clock_timestamp() + make_interval(secs => $3::float8)
WHERE c.lease IS NULL OR c.lease = excluded.lease OR c.lease_expires <= clock_timestamp()
RETURNING true
"""
_RENEW = """
UPDATE branchpoint.checkpoints SET lease_expires = clock_timestamp() + make_interval(secs => $3::float8)
WHERE checkpoint_id = $1::text AND lease = $2::text
RETURNING true
"""
_END = """
UPDATE branchpoint.checkpoints SET lease = NULL, lease_expires = NULL
WHERE checkpoint_id = $1::text AND lease = $2::text
RETURNING id, head
"""
_FORGET = "DELETE FROM branchpoint.checkpoints WHERE id = $1::bigint AND head IS NULL AND lease IS NULL"

_FIND = """
SELECT getdatabaseencoding() AS encoding, EXISTS (
    SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = $1::text AND c.relname = 'branchpoint_version'
) AS made, EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = $1::text) AS there
"""
_VERSION = "SELECT version FROM branchpoint.branchpoint_version"


class Statement(NamedTuple):
    """One statement and the name under which a server keeps it prepared."""

    text: str
    name: str


class Statements:
    """Every statement, for the tables of one schema.

    Raises:
        InvalidCallError: No schema can have this name.
    """

    def __init__(self, schema: str) -> None:
        self.schema = schema
        self._place = quoted(schema)
        self.commit = self._of(_COMMIT)
        self.begin = self._of(_BEGIN)
        self.commit_many = self._of(_COMMIT_MANY)
        self.begin_many = self._of(_BEGIN_MANY)
        self.look = self._of(_LOOK)
        self.records = self._of(_RECORDS)
        self.lineage = self._of(_LINEAGE)
        self.parts = self._of(_PARTS)
        self.head = self._of(_HEAD)
        self.list = self._of(_LIST)
        self.lock = self._of(_LOCK)
        self.order = self._of(_ORDER)
        self.prune = self._of(_PRUNE)
        self.delete = self._of(_DELETE)
        self.clear = self._of(_CLEAR)
        self.take = self._of(_TAKE)
        self.renew = self._of(_RENEW)
        self.end = self._of(_END)
        self.forget = self._of(_FORGET)
        self.find = self._of(_FIND)
        self.version = self._of(_VERSION)

    def _of(self, text: str) -> Statement:
        text = self.placed(text)
        digest = hashlib.blake2b(text.encode(), digest_size=12).hexdigest()
        return Statement(text, f"branchpoint_{digest}")

    def placed(self, text: str) -> str:
        """Return SQL that is written for the default schema, for this one."""
        return _HERE.sub(lambda _: self._place, text)


def migration(version: int) -> str:
    """Return the SQL that leads to a version from the one before."""
    return Path(__file__).with_name(f"schema_{version}.sql").read_text(encoding="utf-8")


def quoted(name: str) -> str:
    """Return the name of a schema as SQL writes it.

    Raises:
        InvalidCallError: No schema can have this name.
    """
    fits = type(name) is str and name.isprintable() and 0 < len(name.encode()) <= _MAX_NAME_BYTES
    if not fits or name.startswith("pg_"):
        raise InvalidCallError(
            f"schema is the name of a PostgreSQL schema: up to {_MAX_NAME_BYTES} bytes of visible text that does "
            f"not begin with pg_, not {ascii(name)[:80]}"
        )
    return '"' + name.replace('"', '""') + '"'
