-- Version 1. Each file of this name takes a database from the version before it to its own, and is never changed.

-- One of these rows is written over at every commit, so it is short.
CREATE TABLE checkpoints (
    key INTEGER PRIMARY KEY,
    checkpoint_id TEXT NOT NULL UNIQUE,
    workflow_name TEXT NOT NULL,
    format TEXT NOT NULL,                   -- of its header, manifests and parts: json or msgpack
    header INTEGER NOT NULL,                -- the record of its header
    snapshot_id TEXT NOT NULL,              -- its stored head
    generation INTEGER NOT NULL,
    record INTEGER NOT NULL,                -- the manifest of its stored head
    status TEXT NOT NULL,
    snapshots INTEGER NOT NULL,             -- how many there are
    bytes INTEGER NOT NULL,                 -- of all parts together
    ascending INTEGER NOT NULL,             -- whether the ids of its snapshots sort as they were committed
    placed INTEGER NOT NULL,                -- the manifest of the newest commit whose parts have places, or 0
    waiting INTEGER NOT NULL                -- how many parts have no place yet
);

-- All commits of all checkpoints, in the order in which they came: a manifest, and right behind it its new parts.
-- The name of a part that is 16 bytes in urlsafe base64, as all digests are, is kept as those bytes.
-- That of a manifest is ".<records back to the manifest before, or 0>.<number of parts>.<CRC-32>", that of a
-- header ".header.<CRC-32>".
CREATE TABLE records (
    record INTEGER PRIMARY KEY,
    checkpoint INTEGER NOT NULL,
    name NOT NULL,
    data BLOB NOT NULL
);

-- Where parts are, by the beginnings of their names. Many are put here at a time: one would cost a commit as
-- much as all the rest of it. Those of the newest commits are found by looking through them.
CREATE TABLE places (
    checkpoint INTEGER NOT NULL,
    beginning INTEGER NOT NULL,
    record INTEGER NOT NULL,
    PRIMARY KEY (checkpoint, beginning, record)
) WITHOUT ROWID;

-- A lease may be there before its checkpoint is.
CREATE TABLE leases (
    checkpoint_id TEXT PRIMARY KEY,
    token TEXT NOT NULL,
    expires INTEGER NOT NULL,               -- microseconds since 1970 in UTC
    seconds REAL NOT NULL
) WITHOUT ROWID;
