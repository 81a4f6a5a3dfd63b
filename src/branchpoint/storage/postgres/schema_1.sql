-- Version 1 of the schema, made by `await storage.setup()`, or by hand with
--
--     psql --single-transaction --set ON_ERROR_STOP=1 --file schema_1.sql
--
-- For another schema than `branchpoint`, put its name in front of every dot below.
-- A role that works with checkpoints needs USAGE on the schema, and SELECT, INSERT, UPDATE and DELETE on
-- its tables. Nothing else is needed, neither extensions nor functions.

CREATE SCHEMA IF NOT EXISTS branchpoint;

CREATE TABLE branchpoint.branchpoint_version (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    version integer NOT NULL
);

-- One row for each checkpoint. Everything that a commit compares is in this row, so that its lock decides
-- who comes first: whoever waits for it compares again with what the other one has left there.
-- A row without a head is a lease on a checkpoint that is not stored yet.
CREATE TABLE branchpoint.checkpoints (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    checkpoint_id text COLLATE "C" NOT NULL UNIQUE,
    head text COLLATE "C",
    generation bigint NOT NULL DEFAULT 0,
    -- The number of the newest snapshot, how many there are, and how many bytes their parts have.
    newest bigint NOT NULL DEFAULT 0,
    kept bigint NOT NULL DEFAULT 0,
    bytes bigint NOT NULL DEFAULT 0,
    status text,
    format text,
    header bytea,
    -- The name of the workflow and the pairs of the checkpoint's metadata, each as JSON, to be filtered by.
    labels text[] COLLATE "C",
    lease text COLLATE "C",
    lease_expires timestamptz
) WITH (fillfactor = 70);

-- No foreign keys: they would be checked for every part of every commit, and the row above is locked anyway.
CREATE TABLE branchpoint.snapshots (
    checkpoint bigint NOT NULL,
    n bigint NOT NULL,
    snapshot_id text COLLATE "C" NOT NULL,
    manifest bytea NOT NULL,
    PRIMARY KEY (checkpoint, n),
    UNIQUE (checkpoint, snapshot_id)
);

CREATE TABLE branchpoint.parts (
    checkpoint bigint NOT NULL,
    name text COLLATE "C" NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (checkpoint, name)
);

INSERT INTO branchpoint.branchpoint_version (version) VALUES (1);
