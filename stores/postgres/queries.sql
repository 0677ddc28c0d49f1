-- Statements of the Postgres store. {names} are the tables with schema and prefix, {now} the server's time, {live}
-- "not expired", {more} the conditions of one search. A batch is one statement: WITH its writes, then a UNION ALL of
-- its reads, which see the state before the writes. LATERAL (... OFFSET 0), MATERIALIZED and = ANY (ARRAY(...)) hold
-- the planner to the indexes, from one given name or number to the next, whatever it believes about the tables.

-- name: gets
SELECT %(kind)s::int, q.place::bigint, i.no, i.ns, i.key, i.created_at, i.updated_at, i.ttl, i.thread, i.checkpoint,
    i.body, NULL::float8
FROM {names}
CROSS JOIN LATERAL (SELECT * FROM {item} i
    WHERE i.tenant = %(tenant)s AND i.ns = q.ns AND i.key = q.key AND {live} OFFSET 0) i

-- name: names_many
unnest(%(ns)s::bytea[], %(key)s::bytea[]) WITH ORDINALITY q (ns, key, place)

-- name: names_one
(SELECT %(ns)s::bytea, %(key)s::bytea, 1) q (ns, key, place)

-- name: find
SELECT %(kind)s::int, 0::bigint, i.no, i.ns, i.key, i.created_at, i.updated_at, i.ttl, i.thread, i.checkpoint,
    i.body, NULL::float8
FROM (SELECT f.id FROM (SELECT i.id, i.no FROM {item} i
          WHERE i.tenant = %(tenant)s AND i.ns >= %(low)s AND i.ns < %(high)s AND {live} {more} OFFSET 0) f
      ORDER BY f.no DESC LIMIT %(limit)s::bigint OFFSET %(offset)s::bigint) f
CROSS JOIN LATERAL (SELECT * FROM {item} i WHERE i.id = f.id OFFSET 0) i

-- name: match
SELECT %(kind)s::int, 0::bigint, i.no, i.ns, i.key, i.created_at, i.updated_at, i.ttl, i.thread, i.checkpoint,
    i.body, f.score
FROM (SELECT i.id, ts_rank(i.words, to_tsquery('simple', %(words)s), 1)::float8 AS score FROM {item} i
      WHERE i.tenant = %(tenant)s AND i.ns >= %(low)s AND i.ns < %(high)s AND {live} {more}
          AND i.words @@ to_tsquery('simple', %(words)s)
      ORDER BY score DESC, i.no DESC LIMIT %(limit)s::bigint) f
CROSS JOIN LATERAL (SELECT * FROM {item} i WHERE i.id = f.id OFFSET 0) i

-- name: namespaces
SELECT DISTINCT %(kind)s::int, 0::bigint, NULL::bigint, i.ns, NULL::bytea, NULL::bigint, NULL::bigint, NULL::float8,
    NULL::bytea, NULL::bytea, NULL::bytea, NULL::float8
FROM {item} i WHERE i.tenant = %(tenant)s AND i.ns >= %(low)s AND i.ns < %(high)s AND {live}

-- name: near_all
-- Every vector below the prefix by its distance, then items in that order until there are enough.
WITH near AS MATERIALIZED (
    SELECT v.item, v.no, v.embedding {distance} %(vector)s::{vector_type} AS distance FROM {vector} v
    WHERE v.tenant = %(tenant)s AND v.ns >= %(low)s AND v.ns < %(high)s LIMIT %(most)s::bigint + 1)
SELECT i.no, i.ns, i.key, i.created_at, i.updated_at, i.ttl, i.thread, i.checkpoint, i.body, {score}(n.distance)
FROM (SELECT * FROM near WHERE (SELECT count(*) FROM near) <= %(most)s::bigint ORDER BY distance OFFSET 0) n
CROSS JOIN LATERAL (SELECT * FROM {item} i WHERE i.id = n.item AND i.no = n.no AND {live} {more} OFFSET 0) i
UNION ALL
SELECT -1, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
WHERE (SELECT count(*) FROM near) > %(most)s::bigint
LIMIT %(limit)s::bigint

-- name: near_few
-- The items that match, if they are few, with all their vectors.
WITH few AS MATERIALIZED (
    SELECT i.id, i.no FROM {item} i
    WHERE i.tenant = %(tenant)s AND i.ns >= %(low)s AND i.ns < %(high)s AND {live} {more} LIMIT %(most)s::bigint + 1),
near AS MATERIALIZED (
    SELECT v.item, v.embedding {distance} %(vector)s::{vector_type} AS distance
    FROM few CROSS JOIN LATERAL (SELECT * FROM {vector} v WHERE v.item = few.id AND v.no = few.no OFFSET 0) v
    WHERE (SELECT count(*) FROM few) <= %(most)s::bigint)
SELECT i.no, i.ns, i.key, i.created_at, i.updated_at, i.ttl, i.thread, i.checkpoint, i.body, {score}(n.distance)
FROM (SELECT * FROM near ORDER BY distance LIMIT %(limit)s::bigint) n
CROSS JOIN LATERAL (SELECT * FROM {item} i WHERE i.id = n.item OFFSET 0) i
UNION ALL
SELECT -1, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
WHERE (SELECT count(*) FROM few) > %(most)s::bigint

-- name: near
-- Through the approximate index, which is asked for more until there are enough that match.
SELECT i.no, i.ns, i.key, i.created_at, i.updated_at, i.ttl, i.thread, i.checkpoint, i.body,
    {score}(v.embedding {distance} %(vector)s::{vector_type})
FROM {vector} v CROSS JOIN LATERAL (
    SELECT * FROM {item} i WHERE i.id = v.item AND i.no = v.no AND {live} {more} OFFSET 0) i
WHERE v.tenant = %(tenant)s AND v.ns >= %(low)s AND v.ns < %(high)s
ORDER BY v.embedding {distance} %(vector)s::{vector_type} LIMIT %(limit)s::bigint

-- name: iterate
SELECT set_config('hnsw.iterative_scan', 'strict_order', true), set_config('hnsw.max_scan_tuples', '2147483647', true),
    set_config('hnsw.ef_search', %(ef)s, true), set_config('ivfflat.iterative_scan', 'relaxed_order', true),
    set_config('ivfflat.probes', '10', true)

-- name: refused
-- The lock of FOR KEY SHARE on the table is what `lock_erased` waits for: puts that have not seen a new mark.
refused AS MATERIALIZED (
    SELECT 1 FROM {erased} WHERE tenant = %(tenant)s AND mark {people} FOR KEY SHARE)

-- name: allowed
AND NOT EXISTS (SELECT 1 FROM refused)

-- name: was_refused
SELECT %(kind)s::int, 0::bigint, NULL::bigint, NULL::bytea, NULL::bytea, NULL::bigint, NULL::bigint, NULL::float8,
    NULL::bytea, NULL::bytea, NULL::bytea, NULL::float8
WHERE EXISTS (SELECT 1 FROM refused)

-- name: lock_erased
LOCK TABLE {erased} IN EXCLUSIVE MODE

-- name: set_erased
INSERT INTO {erased} (tenant, mark) SELECT %(tenant)s, unnest(%(mark)s::bytea[]) ON CONFLICT DO NOTHING

-- name: unset_erased
DELETE FROM {erased} WHERE tenant = %(tenant)s AND mark = ANY (%(mark)s::bytea[])

-- name: erased
SELECT tenant, mark FROM {erased}

-- name: named
-- Locked in the order of their names, as `puts` does: two batches wait for each other in one place.
SELECT i.id FROM (
    SELECT * FROM unnest(%(name_ns)s::bytea[], %(name_key)s::bytea[]) q (ns, key) ORDER BY ns, key) q
CROSS JOIN LATERAL (
    SELECT i.id FROM {item} i WHERE i.tenant = %(tenant)s AND i.ns = q.ns AND i.key = q.key FOR UPDATE) i

-- name: numbers_many
-- These are given in the order of their names.
i.id = ANY (ARRAY(
    SELECT i.id FROM unnest(%(no)s::bigint[]) q (no)
    CROSS JOIN LATERAL (SELECT i.id FROM {item} i WHERE i.no = q.no FOR UPDATE) i))

-- name: numbers_one
i.no = %(no)s::bigint

-- name: deletes
gone AS (DELETE FROM {item} WHERE id = ANY (ARRAY({named})) {allowed})

-- name: given_many
given AS MATERIALIZED (
    SELECT nextval({item_no_name}) AS no, {now} AS at, q.* FROM unnest(
        %(ns)s::bytea[], %(key)s::bytea[], %(ttl)s::float8[], %(thread)s::bytea[], %(checkpoint)s::bytea[],
        %(tokens)s::text[], %(fields)s::text[], %(words)s::text[], %(body)s::bytea[])
        q (ns, key, ttl, thread, checkpoint, tokens, fields, words, body) WHERE true {allowed})

-- name: given_one
given AS MATERIALIZED (
    SELECT nextval({item_no_name}) AS no, {now} AS at, %(ns)s::bytea AS ns, %(key)s::bytea AS key,
        %(ttl)s::float8 AS ttl, %(thread)s::bytea AS thread, %(checkpoint)s::bytea AS checkpoint,
        %(tokens)s::text AS tokens, %(fields)s::text AS fields, %(words)s::text AS words, %(body)s::bytea AS body
    WHERE true {allowed})

-- name: puts
put AS (
    INSERT INTO {item} AS i (no, tenant, ns, key, created_at, updated_at, ttl, expires_at, thread, checkpoint, tokens,
        fields, words, body)
    SELECT no, %(tenant)s, ns, key, at, at, ttl, at + (ttl * 60000000)::bigint, thread, checkpoint, tokens::bigint[],
        fields, to_tsvector('simple', words), body
    FROM given ORDER BY ns, key
    ON CONFLICT (tenant, ns, key) DO UPDATE SET
        no = excluded.no, updated_at = excluded.updated_at, ttl = excluded.ttl,
        expires_at = CASE WHEN i.ttl IS NULL OR i.expires_at IS NOT NULL THEN excluded.expires_at END,
        created_at = CASE WHEN i.expires_at <= excluded.created_at THEN excluded.created_at ELSE i.created_at END,
        thread = excluded.thread, checkpoint = excluded.checkpoint, tokens = excluded.tokens,
        fields = excluded.fields, words = excluded.words, body = excluded.body
    RETURNING i.id, i.no, i.ns, i.key)

-- name: put_vectors
stale AS (
    DELETE FROM {vector} WHERE ctid = ANY (ARRAY(
        SELECT v.ctid FROM given CROSS JOIN LATERAL (
            SELECT i.id FROM {item} i
            WHERE i.tenant = %(tenant)s AND i.ns = given.ns AND i.key = given.key OFFSET 0) i
        CROSS JOIN LATERAL (SELECT v.ctid FROM {vector} v WHERE v.item = i.id OFFSET 0) v))),
embedded AS (
    INSERT INTO {vector} (item, no, tenant, ns, embedding)
    SELECT put.id, put.no, %(tenant)s, put.ns, q.embedding::{vector_type}
    FROM unnest(%(vector_ns)s::bytea[], %(vector_key)s::bytea[], %(vector)s::text[]) q (ns, key, embedding)
    JOIN put ON put.ns = q.ns AND put.key = q.key)

-- name: touch
UPDATE {item} i SET expires_at = {now} + (i.ttl * 60000000)::bigint
WHERE {numbers} AND i.expires_at IS NOT NULL AND {live}

-- name: pin
UPDATE {item} i SET expires_at = NULL WHERE i.id = ANY (ARRAY({named})) AND i.ttl IS NOT NULL AND {live}

-- name: unpin
UPDATE {item} i SET expires_at = {now} + (i.ttl * 60000000)::bigint
WHERE i.id = ANY (ARRAY({named})) AND i.ttl IS NOT NULL AND i.expires_at IS NULL

-- name: delete_below
-- LATERAL holds the planner to the index, prefix by prefix.
WITH gone AS (
    DELETE FROM {item} i WHERE i.id = ANY (ARRAY(
        SELECT q.id FROM unnest(%(low)s::bytea[], %(high)s::bytea[]) p (low, high) CROSS JOIN LATERAL (
            SELECT i.id FROM {item} i WHERE i.tenant = %(tenant)s AND i.ns >= p.low AND i.ns < p.high OFFSET 0) q))
    RETURNING i.id, i.no, {live} AS live)
SELECT count(*) FILTER (WHERE live), {vectors} FROM gone

-- name: count_vectors
count(*) FILTER (WHERE live AND EXISTS (SELECT 1 FROM {vector} v WHERE v.item = gone.id AND v.no = gone.no))

-- name: sweep
WITH gone AS (
    DELETE FROM {item} i WHERE i.id = ANY (ARRAY(
        SELECT id FROM {item} WHERE expires_at <= {now} ORDER BY expires_at LIMIT %(limit)s::bigint
        FOR UPDATE SKIP LOCKED))
    RETURNING 1)
SELECT count(*) FROM gone

-- name: overdue
SELECT count(*) FROM {item} WHERE expires_at <= {now}

-- name: index
SELECT dims, distance, model, ready, (
    SELECT n.nspname FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'vector')
FROM (SELECT 1) one LEFT JOIN {vector_index} ON true

-- name: lock_index
LOCK TABLE {vector_index} IN EXCLUSIVE MODE

-- name: extension_exists
SELECT 1 FROM pg_available_extensions WHERE name = 'vector'

-- name: create_extension
CREATE EXTENSION IF NOT EXISTS vector

-- name: drop_vectors
DROP TABLE IF EXISTS {vector}

-- name: create_vectors
-- `no` is the version of the item a vector belongs to.
CREATE TABLE {vector} (
    item bigint NOT NULL REFERENCES {item} (id) ON DELETE CASCADE,
    no bigint NOT NULL,
    tenant bytea NOT NULL,
    ns bytea NOT NULL,
    embedding {vector_type}({dims}) NOT NULL)

-- name: create_vector_item
CREATE INDEX ON {vector} (item)

-- name: create_vector_ns
CREATE INDEX ON {vector} (tenant, ns)

-- name: create_vector_ann
CREATE INDEX ON {vector} USING {method} (embedding {operators}) {parameters}

-- name: record_index
INSERT INTO {vector_index} (id, dims, distance, model, ready)
VALUES (1, %(dims)s, %(distance)s, %(model)s, %(ready)s)
ON CONFLICT (id) DO UPDATE SET dims = excluded.dims, distance = excluded.distance, model = excluded.model,
    ready = excluded.ready

-- name: page
SELECT i.no, i.fields, i.body FROM {item} i WHERE i.no > %(after)s AND i.tenant <> '\xff'::bytea AND {live}
ORDER BY i.no LIMIT %(limit)s::bigint

-- name: whole
-- Words as often as they were there: their order is not kept.
SELECT i.no, i.tenant, i.ns, i.key, i.ttl, i.thread, i.checkpoint, array_to_string(i.tokens, ','), i.fields,
    (SELECT string_agg(rtrim(repeat(w.lexeme || ' ', greatest(cardinality(w.positions), 1))), ' ')
     FROM unnest(i.words) w),
    {embedded}, i.body
FROM unnest(%(no)s::bigint[]) q (no) CROSS JOIN LATERAL (SELECT * FROM {item} i WHERE i.no = q.no OFFSET 0) i

-- name: embedded
(SELECT string_agg(v.embedding::text, ';') FROM {vector} v WHERE v.item = i.id AND v.no = i.no)

-- name: lock_items
LOCK TABLE {item} IN SHARE ROW EXCLUSIVE MODE

-- name: still
SELECT i.no FROM unnest(%(no)s::bigint[]) q (no)
CROSS JOIN LATERAL (SELECT i.no FROM {item} i WHERE i.no = q.no FOR UPDATE) i

-- name: targets
SELECT i.no, i.tenant, i.ns, i.key
FROM unnest(%(tenant)s::bytea[], %(ns)s::bytea[], %(key)s::bytea[]) q (tenant, ns, key)
CROSS JOIN LATERAL (
    SELECT * FROM {item} i WHERE i.tenant = q.tenant AND i.ns = q.ns AND i.key = q.key OFFSET 0) i

-- name: drop_numbers
DELETE FROM {item} i WHERE {numbers}

-- name: drop_vectors_of
DELETE FROM {vector} WHERE ctid = ANY (ARRAY(
    SELECT v.ctid FROM unnest(%(no)s::bigint[]) q (no)
    CROSS JOIN LATERAL (SELECT i.id FROM {item} i WHERE i.no = q.no OFFSET 0) i
    CROSS JOIN LATERAL (SELECT v.ctid FROM {vector} v WHERE v.item = i.id OFFSET 0) v))

-- name: exchange
UPDATE {item} i SET ns = q.ns, key = q.key, thread = q.thread, tokens = q.tokens::bigint[], fields = q.fields,
    words = to_tsvector('simple', q.words), body = q.body
FROM unnest(%(no)s::bigint[], %(ns)s::bytea[], %(key)s::bytea[], %(thread)s::bytea[], %(tokens)s::text[],
    %(fields)s::text[], %(words)s::text[], %(body)s::bytea[]) q (no, ns, key, thread, tokens, fields, words, body)
WHERE {numbers_many} AND i.no = q.no

-- name: now
SELECT {now} / 1000

-- name: set_vectors
WITH stale AS ({drop_vectors_of})
INSERT INTO {vector} (item, no, tenant, ns, embedding)
SELECT i.id, i.no, i.tenant, i.ns, q.embedding::{vector_type}
FROM unnest(%(vector_no)s::bigint[], %(vector)s::text[]) q (no, embedding)
CROSS JOIN LATERAL (SELECT * FROM {item} i WHERE i.no = q.no OFFSET 0) i

-- name: survey
SELECT current_setting('server_version_num')::int, to_regclass(%(migration)s) IS NOT NULL,
    %(schema)s::text IS NULL OR to_regnamespace(%(schema)s) IS NOT NULL

-- name: lock_migrations
SELECT pg_advisory_xact_lock(7299345230218163)

-- name: applied
SELECT number, checksum, oldest FROM {store_migration}

-- name: create_schema
CREATE SCHEMA IF NOT EXISTS {schema}

-- name: create_migration
CREATE TABLE IF NOT EXISTS {store_migration} (number integer PRIMARY KEY, name text NOT NULL, checksum text NOT NULL,
    oldest integer NOT NULL, applied_at bigint NOT NULL)

-- name: record_migration
INSERT INTO {store_migration} (number, name, checksum, oldest, applied_at)
VALUES (%(number)s, %(name)s, %(checksum)s, %(oldest)s, {now})
