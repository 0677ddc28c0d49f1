-- Threads and everything of them. Ids are bytes (see _core/ids.py); times are milliseconds since 1970.
-- {names} are filled in with the schema and prefix of the saver; {by_hash} is empty, or partitions a table by t.

CREATE TABLE {thread} (
    no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,  -- leads every key below
    tenant bytea NOT NULL,
    thread bytea NOT NULL,                 -- the id, or its keyed token when sealed
    uid bytea NOT NULL,                    -- this generation of the thread
    rev bytea NOT NULL,                    -- replaced by every write
    extents bytea NOT NULL,                -- the writer's state (see _core/state.py)
    sealed_id bytea,
    subjects bytea,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    ttl integer,                           -- minutes; NULL: as the saver says
    expires_at bigint,
    lease_token bigint,
    lease_owner bytea,
    lease_until bigint,
    UNIQUE (tenant, thread)
) WITH (fillfactor = 50);

CREATE TABLE {chunk} (
    t bigint NOT NULL,
    no bigint NOT NULL,
    n integer NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (t, no)
) {by_hash};

CREATE TABLE {checkpoint} (
    t bigint NOT NULL,
    ns bytea NOT NULL,
    id bytea NOT NULL,
    parent bytea,
    run bytea,
    source bytea,
    step bigint,
    created_at bigint NOT NULL,
    refs int4multirange,                   -- element pages, as hints for one read
    body bytea NOT NULL,
    PRIMARY KEY (t, ns, id)
) {by_hash};

CREATE INDEX {checkpoint_run} ON {checkpoint} (run) WHERE run IS NOT NULL;

CREATE TABLE {write} (
    t bigint NOT NULL,
    ns bytea NOT NULL,
    checkpoint bytea NOT NULL,
    task bytea NOT NULL,
    k integer NOT NULL,                    -- 0: ordinary channels; below: one special channel
    run bytea,
    created_at bigint NOT NULL,
    refs int4multirange,
    body bytea NOT NULL,
    PRIMARY KEY (t, ns, checkpoint, task, k)
) {by_hash};

CREATE INDEX {write_run} ON {write} (run) WHERE run IS NOT NULL;

-- Metadata scalars by equality; every hit is compared again with the record.
CREATE TABLE {meta} (
    token bytea NOT NULL,
    t bigint NOT NULL,
    ns bytea NOT NULL,
    checkpoint bytea NOT NULL,
    PRIMARY KEY (token, t, ns, checkpoint)
) {by_hash};

CREATE INDEX {meta_thread} ON {meta} (t, ns, checkpoint);

-- Small records of a thread: interrupts, decisions, effects.
CREATE TABLE {note} (
    t bigint NOT NULL,
    key bytea NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (t, key)
) {by_hash};

-- Small records outside threads, ordered by key within a space: indexes, keys, tombstones, requests.
CREATE TABLE {doc} (
    space bytea NOT NULL,
    key bytea NOT NULL,
    version bytea NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (space, key)
);

-- Bodies come compressed: Postgres would try again in vain.
ALTER TABLE {chunk} ALTER COLUMN body SET STORAGE EXTERNAL;
ALTER TABLE {checkpoint} ALTER COLUMN body SET STORAGE EXTERNAL;
ALTER TABLE {write} ALTER COLUMN body SET STORAGE EXTERNAL;
