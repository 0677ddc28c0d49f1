-- Wrapped data keys. Times are milliseconds since 1970.

CREATE TABLE stepvault_key (
    owner BLOB NOT NULL,                   -- a thread's uid, a subject's token, or sixteen zeros
    gen INTEGER NOT NULL,
    id BLOB NOT NULL,                      -- what envelopes name
    kek TEXT NOT NULL,                     -- the key-encryption key that wrapped it
    wrapped BLOB,                          -- NULL: shredded
    created_at INTEGER NOT NULL,
    shredded_at INTEGER,
    PRIMARY KEY (owner, gen)
) WITHOUT ROWID;

CREATE INDEX stepvault_key_shredded ON stepvault_key (shredded_at) WHERE shredded_at IS NOT NULL;

-- Whose data an owner's keys seal.
CREATE TABLE stepvault_key_link (
    subject BLOB NOT NULL,
    owner BLOB NOT NULL,
    PRIMARY KEY (subject, owner)
) WITHOUT ROWID;

CREATE INDEX stepvault_key_link_owner ON stepvault_key_link (owner);

-- Key-encryption keys that must wrap nothing new.
CREATE TABLE stepvault_kek_retired (
    kek TEXT PRIMARY KEY,
    retired_at INTEGER NOT NULL
) WITHOUT ROWID;
