-- Memory that outlives threads. Names are bytes (see stores/_ops/namespaces.py); times are microseconds since 1970.

CREATE TABLE stepvault_item (
    no INTEGER PRIMARY KEY AUTOINCREMENT,  -- new with every write: newest first is `no` descending
    tenant BLOB NOT NULL,
    ns BLOB NOT NULL,
    key BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    ttl REAL,                              -- minutes
    expires_at INTEGER,
    thread BLOB,                           -- the run that wrote it
    checkpoint BLOB,
    tokens BLOB,                           -- 8 bytes per scalar in the value; NULL: look inside
    fields TEXT,                           -- the `index=` it was put with; NULL: the store's own
    body BLOB NOT NULL,
    UNIQUE (tenant, ns, key)
);

CREATE INDEX stepvault_item_recent ON stepvault_item (tenant, ns, no, expires_at, updated_at);

CREATE INDEX stepvault_item_expiry ON stepvault_item (expires_at) WHERE expires_at IS NOT NULL;

-- Who was erased: nothing is put for them.
CREATE TABLE stepvault_erased (
    tenant BLOB NOT NULL,
    mark BLOB NOT NULL,
    PRIMARY KEY (tenant, mark)
) WITHOUT ROWID;

-- The float32 vectors of an item, one after the other.
CREATE TABLE stepvault_vector (
    item INTEGER PRIMARY KEY,
    embedding BLOB NOT NULL
);

CREATE TABLE stepvault_vector_index (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    dims INTEGER NOT NULL,
    distance TEXT NOT NULL,
    model TEXT NOT NULL,
    ready INTEGER NOT NULL
);
