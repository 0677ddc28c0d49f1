-- Memory that outlives threads. Names are bytes (see stores/_ops/namespaces.py); times are microseconds since 1970.
-- {names} are filled in with the schema and prefix of the store.

CREATE SEQUENCE {item_no};

CREATE TABLE {item} (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    no bigint NOT NULL,                    -- new with every write: newest first is `no` descending
    tenant bytea NOT NULL,
    ns bytea NOT NULL,
    key bytea NOT NULL,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    ttl double precision,                  -- minutes
    expires_at bigint,
    thread bytea,                          -- the run that wrote it
    checkpoint bytea,
    tokens bigint[],                       -- one per scalar in the value; NULL: look inside
    fields text,                           -- the `index=` it was put with; NULL: the store's own
    words tsvector,                        -- already without case and accents
    body bytea NOT NULL,
    UNIQUE (tenant, ns, key)
);

CREATE INDEX {item_number} ON {item} (no);

CREATE INDEX {item_expiry} ON {item} (expires_at) WHERE expires_at IS NOT NULL;

CREATE INDEX {item_words} ON {item} USING gin (words);

-- Who was erased: nothing is put for them.
CREATE TABLE {erased} (
    tenant bytea NOT NULL,
    mark bytea NOT NULL,
    PRIMARY KEY (tenant, mark)
);

CREATE TABLE {vector_index} (
    id integer PRIMARY KEY CHECK (id = 1),
    dims integer NOT NULL,
    distance text NOT NULL,
    model text NOT NULL,
    ready boolean NOT NULL
);
