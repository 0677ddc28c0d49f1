-- Threads and everything of them. Ids are bytes (see _core/ids.py); times are milliseconds since 1970.

CREATE TABLE stepvault_thread (
    no INTEGER PRIMARY KEY AUTOINCREMENT,  -- leads every key below
    tenant BLOB NOT NULL,
    thread BLOB NOT NULL,                  -- the id, or its keyed token when sealed
    uid BLOB NOT NULL,                     -- this generation of the thread
    rev BLOB NOT NULL,                     -- replaced by every write
    extents BLOB NOT NULL,                 -- the writer's state (see _core/state.py)
    sealed_id BLOB,
    subjects BLOB,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    ttl INTEGER,                           -- minutes; NULL: as the saver says
    expires_at INTEGER,
    lease_token INTEGER,
    lease_owner BLOB,
    lease_until INTEGER,
    UNIQUE (tenant, thread)
);

CREATE TABLE stepvault_chunk (
    t INTEGER NOT NULL,
    no INTEGER NOT NULL,
    n INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (t, no)
);

CREATE TABLE stepvault_checkpoint (
    t INTEGER NOT NULL,
    ns BLOB NOT NULL,
    id BLOB NOT NULL,
    parent BLOB,
    run BLOB,
    source BLOB,
    step INTEGER,
    created_at INTEGER NOT NULL,
    refs BLOB,                             -- ranges of element pages, as hints for one read
    body BLOB NOT NULL,
    PRIMARY KEY (t, ns, id)
);

CREATE INDEX stepvault_checkpoint_run ON stepvault_checkpoint (run) WHERE run IS NOT NULL;

CREATE TABLE stepvault_write (
    t INTEGER NOT NULL,
    ns BLOB NOT NULL,
    checkpoint BLOB NOT NULL,
    task BLOB NOT NULL,
    k INTEGER NOT NULL,                    -- 0: ordinary channels; below: one special channel
    run BLOB,
    created_at INTEGER NOT NULL,
    refs BLOB,
    body BLOB NOT NULL,
    PRIMARY KEY (t, ns, checkpoint, task, k)
);

CREATE INDEX stepvault_write_run ON stepvault_write (run) WHERE run IS NOT NULL;

-- Metadata scalars by equality; every hit is compared again with the record.
CREATE TABLE stepvault_meta (
    token BLOB NOT NULL,
    t INTEGER NOT NULL,
    ns BLOB NOT NULL,
    checkpoint BLOB NOT NULL,
    PRIMARY KEY (token, t, ns, checkpoint)
) WITHOUT ROWID;

CREATE INDEX stepvault_meta_thread ON stepvault_meta (t, ns, checkpoint);

-- Small records of a thread: interrupts, decisions, effects.
CREATE TABLE stepvault_note (
    t INTEGER NOT NULL,
    key BLOB NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (t, key)
) WITHOUT ROWID;

-- Small records outside threads, ordered by key within a space: indexes, keys, tombstones, requests.
CREATE TABLE stepvault_doc (
    space BLOB NOT NULL,
    key BLOB NOT NULL,
    version BLOB NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (space, key)
) WITHOUT ROWID;
