-- Statements of the Postgres checkpointer. {names} are the tables with schema and prefix, {now} the server's time.
-- Reads are one statement each, so each sees one snapshot. LATERAL (... OFFSET 0) and MATERIALIZED hold the planner
-- to one order, from the thread row down its indexes, whatever it believes about the sizes of the tables.

-- name: thread
SELECT no, uid, rev, extents FROM {thread} WHERE tenant = %(tenant)s AND thread = %(thread)s

-- name: head
WITH h AS MATERIALIZED (
    SELECT t.no, t.uid, t.rev, t.extents, c.*
    FROM {thread} t LEFT JOIN LATERAL (
        SELECT id, parent, run, source, step, created_at, refs, body FROM {checkpoint} c
        WHERE c.t = t.no AND c.ns = %(ns)s ORDER BY c.id DESC LIMIT 1) c ON true
    WHERE t.tenant = %(tenant)s AND t.thread = %(thread)s),
{one}

-- name: by_id
WITH h AS MATERIALIZED (
    SELECT t.no, t.uid, t.rev, t.extents, coalesce(c.id, %(id)s) AS id, c.parent, c.run, c.source, c.step,
        c.created_at, c.refs, c.body
    FROM {thread} t LEFT JOIN LATERAL (
        SELECT id, parent, run, source, step, created_at, refs, body FROM {checkpoint} c
        WHERE c.t = t.no AND c.ns = %(ns)s AND c.id = %(id)s OFFSET 0) c ON true
    WHERE t.tenant = %(tenant)s AND t.thread = %(thread)s),
{one}

-- name: one
w AS MATERIALIZED (
    SELECT h.id, w.* FROM h CROSS JOIN LATERAL (
        SELECT task, k, run, created_at, refs, body FROM {write} w
        WHERE w.t = h.no AND w.ns = %(ns)s AND w.checkpoint = h.id OFFSET 0) w),
r AS MATERIALIZED (
    SELECT unnest(range_agg(r) - (
        SELECT CASE WHEN h.rev = %(rev)s::bytea THEN %(held)s::int4multirange ELSE '{}' END FROM h)) AS page
    FROM (SELECT unnest(refs) AS r FROM h UNION ALL SELECT unnest(refs) FROM w) x)
SELECT 0, no, step, uid, rev, extents, id, parent, run, source, created_at, refs::text, body FROM h
UNION ALL
SELECT 1, k, NULL, task, NULL, NULL, id, NULL, run, NULL, created_at, refs::text, body FROM w
UNION ALL
SELECT 2, k.no, k.n, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, k.body
FROM r CROSS JOIN LATERAL (
    SELECT no, n, body FROM {chunk} c WHERE c.t = (SELECT no FROM h)
        AND c.no BETWEEN lower(r.page)::bigint * 64 + 1 AND (upper(r.page)::bigint) * 64 OFFSET 0) k

-- name: find_in_namespace
SELECT t.no, t.thread, c.* FROM {thread} t CROSS JOIN LATERAL (
    SELECT ns, id, parent, run, source, step, created_at, refs, body FROM {checkpoint} c
    WHERE c.t = t.no AND c.ns = %(ns)s AND c.id < %(below)s {more} ORDER BY c.id DESC LIMIT %(limit)s) c
WHERE t.tenant = %(tenant)s AND t.thread = %(thread)s

-- name: find_in_thread
SELECT f.no, f.thread, c.* FROM (
    SELECT t.no, t.thread, c.ns, c.id FROM {thread} t CROSS JOIN LATERAL (
        SELECT ns, id FROM {checkpoint} c
        WHERE c.t = t.no AND (c.id, c.ns) < (%(below)s, %(below_ns)s) {more}
        ORDER BY c.id DESC, c.ns DESC LIMIT %(limit)s) c
    WHERE t.tenant = %(tenant)s AND t.thread = %(thread)s) f
CROSS JOIN LATERAL (
    SELECT ns, id, parent, run, source, step, created_at, refs, body FROM {checkpoint} c
    WHERE c.t = f.no AND c.ns = f.ns AND c.id = f.id OFFSET 0) c

-- name: find_everywhere
SELECT f.no, f.thread, c.* FROM (
    SELECT t.no, t.thread, c.ns, c.id FROM {among}
    WHERE t.tenant = %(tenant)s AND (c.id, c.ns, t.thread) < (%(below)s, %(below_ns)s, %(below_thread)s) {more}
    ORDER BY c.id DESC, c.ns DESC, t.thread DESC LIMIT %(limit)s) f
CROSS JOIN LATERAL (
    SELECT ns, id, parent, run, source, step, created_at, refs, body FROM {checkpoint} c
    WHERE c.t = f.no AND c.ns = f.ns AND c.id = f.id OFFSET 0) c

-- `find_everywhere` looks through as little as it can: the checkpoints of a run, or those with the first token. They come
-- in the order of the page, so that what belongs to them need only be looked up until that is full.

-- name: among_all
{thread} t JOIN {checkpoint} c ON c.t = t.no

-- name: among_run
(SELECT t, ns, id, source, step, run FROM {checkpoint} WHERE run = %(run)s ORDER BY id DESC, ns DESC) c
CROSS JOIN LATERAL (SELECT no, tenant, thread FROM {thread} t WHERE t.no = c.t OFFSET 0) t

-- name: among_tokens
(SELECT t, ns, checkpoint AS id FROM {meta} WHERE token = %(token0)s ORDER BY checkpoint DESC, ns DESC) c
CROSS JOIN LATERAL (
    SELECT source, step FROM {checkpoint} k WHERE k.t = c.t AND k.ns = c.ns AND k.id = c.id OFFSET 0) k
CROSS JOIN LATERAL (SELECT no, tenant, thread FROM {thread} t WHERE t.no = c.t OFFSET 0) t

-- name: has_token
AND EXISTS (SELECT 1 FROM {meta} m
    WHERE m.token = %({token})s AND m.t = c.t AND m.ns = c.ns AND m.checkpoint = c.id OFFSET 0)

-- name: page
WITH h AS MATERIALIZED ({find}),
w AS MATERIALIZED (
    SELECT h.no, w.* FROM h CROSS JOIN LATERAL (
        SELECT ns, checkpoint, task, k, run, created_at, refs, body FROM {write} w
        WHERE w.t = h.no AND w.ns = h.ns AND w.checkpoint = h.id OFFSET 0) w),
r AS MATERIALIZED (
    SELECT x.no, unnest(range_agg(r) - (
        SELECT CASE WHEN t.rev = %(rev)s::bytea THEN %(held)s::int4multirange ELSE '{}' END
        FROM {thread} t WHERE t.no = x.no)) AS page
    FROM (SELECT no, unnest(refs) AS r FROM h UNION ALL SELECT no, unnest(refs) FROM w) x GROUP BY x.no)
SELECT 0, no, step, thread, ns, id, parent, run, source, created_at, refs::text, body FROM h
UNION ALL
SELECT 1, no, k, NULL, ns, checkpoint, task, run, NULL, created_at, refs::text, body FROM w
UNION ALL
SELECT 2, r.no, k.n, NULL, NULL, NULL, NULL, NULL, NULL, k.no, NULL, k.body
FROM r CROSS JOIN LATERAL (
    SELECT no, n, body FROM {chunk} c WHERE c.t = r.no
        AND c.no BETWEEN lower(r.page)::bigint * 64 + 1 AND (upper(r.page)::bigint) * 64 OFFSET 0) k
UNION ALL
SELECT 3, t.no, NULL, t.uid, t.rev, t.extents, NULL, NULL, NULL, NULL, NULL, NULL
FROM (SELECT DISTINCT no FROM h) d CROSS JOIN LATERAL (SELECT * FROM {thread} t WHERE t.no = d.no OFFSET 0) t

-- name: skeleton
WITH h AS MATERIALIZED (
    SELECT no, uid, rev, extents FROM {thread} WHERE tenant = %(tenant)s AND thread = %(thread)s)
SELECT 0, no, NULL::bigint, uid, rev, extents, NULL::bytea, NULL::bytea, NULL::bigint, NULL::text, NULL::bytea
FROM h
UNION ALL
SELECT 1, NULL, c.step, c.ns, c.id, c.parent, c.run, c.source, c.created_at, c.refs::text, c.body
FROM h CROSS JOIN LATERAL (SELECT * FROM {checkpoint} c WHERE c.t = h.no OFFSET 0) c
UNION ALL
SELECT 2, w.k, NULL, w.ns, w.checkpoint, w.task, w.run, NULL, w.created_at, w.refs::text, w.body
FROM h CROSS JOIN LATERAL (SELECT * FROM {write} w WHERE w.t = h.no OFFSET 0) w
UNION ALL
SELECT 3, k.no, k.n, NULL, NULL, NULL, NULL, NULL, k.size, NULL, NULL
FROM h CROSS JOIN LATERAL (SELECT no, n, length(body)::bigint AS size FROM {chunk} k WHERE k.t = h.no OFFSET 0) k

-- name: chunks
SELECT no, n, body FROM {chunk} WHERE t = %(no)s AND no = ANY(%(numbers)s::bigint[])

-- name: threads_of_runs
SELECT t.tenant, t.thread FROM (
    SELECT c.t FROM unnest(%(runs)s::bytea[]) x(run)
    CROSS JOIN LATERAL (SELECT t FROM {checkpoint} c WHERE c.run = x.run OFFSET 0) c
    UNION SELECT w.t FROM unnest(%(runs)s::bytea[]) x(run)
    CROSS JOIN LATERAL (SELECT t FROM {write} w WHERE w.run = x.run OFFSET 0) w) r
CROSS JOIN LATERAL (SELECT * FROM {thread} t WHERE t.no = r.t AND t.tenant = %(tenant)s OFFSET 0) t
ORDER BY t.no

-- name: threads
SELECT t.no, t.thread, t.created_at, t.updated_at, t.expires_at, t.subjects, c.id,
    (SELECT count(*) FROM {checkpoint} c WHERE c.t = t.no),
    ((SELECT coalesce(sum(length(body)), 0) FROM {checkpoint} c WHERE c.t = t.no)
        + (SELECT coalesce(sum(length(body)), 0) FROM {chunk} k WHERE k.t = t.no)
        + (SELECT coalesce(sum(length(body)), 0) FROM {write} w WHERE w.t = t.no))::bigint,
    EXISTS (SELECT 1 FROM {write} w WHERE w.t = t.no AND w.ns = '' AND w.k = -3 AND w.checkpoint = c.id
        AND NOT EXISTS (SELECT 1 FROM {write} o WHERE o.t = w.t AND o.ns = w.ns
            AND o.checkpoint = w.checkpoint AND o.task = w.task AND o.k >= 0)),
    t.extents
FROM (SELECT * FROM {thread} WHERE tenant = %(tenant)s AND no < %(below)s ORDER BY no DESC LIMIT %(limit)s) t
LEFT JOIN LATERAL (
    SELECT id FROM {checkpoint} c WHERE c.t = t.no AND c.ns = '' ORDER BY id DESC LIMIT 1) c ON true
ORDER BY t.no DESC

-- name: born
SELECT created_at FROM {thread} WHERE no = %(no)s

-- name: notes
SELECT key, body FROM {note} WHERE t = %(no)s AND key >= %(prefix)s AND key < %(beyond)s ORDER BY key

-- name: notes_at
SELECT x.i, t.no, t.uid, t.rev, t.extents, n.body
FROM unnest(%(threads)s::bytea[], %(keys)s::bytea[]) WITH ORDINALITY x(thread, key, i)
CROSS JOIN LATERAL (SELECT * FROM {thread} t WHERE t.tenant = %(tenant)s AND t.thread = x.thread OFFSET 0) t
LEFT JOIN LATERAL (SELECT body FROM {note} n WHERE n.t = t.no AND n.key = x.key OFFSET 0) n ON true

-- name: threads_at
SELECT x.i, t.no, t.uid, t.rev, t.extents, NULL::bytea
FROM unnest(%(threads)s::bytea[]) WITH ORDINALITY x(thread, i)
CROSS JOIN LATERAL (SELECT * FROM {thread} t WHERE t.tenant = %(tenant)s AND t.thread = x.thread OFFSET 0) t

-- name: standing
-- Whether the server takes no writes, and whether this role may do all that runs need. No quote ends the names.
SELECT pg_is_in_recovery() OR current_setting('default_transaction_read_only') = 'on', (
    SELECT bool_and(has_table_privilege(of_ours, 'SELECT') AND has_table_privilege(of_ours, 'INSERT')
        AND has_table_privilege(of_ours, 'UPDATE') AND has_table_privilege(of_ours, 'DELETE'))
    FROM unnest(ARRAY[$sv_name${thread}$sv_name$, $sv_name${chunk}$sv_name$, $sv_name${checkpoint}$sv_name$,
        $sv_name${write}$sv_name$, $sv_name${meta}$sv_name$, $sv_name${note}$sv_name$, $sv_name${doc}$sv_name$
    ]::regclass[]) of_ours)

-- name: now
SELECT {now}

-- name: tenants
SELECT DISTINCT tenant FROM {thread} ORDER BY tenant

-- Docs

-- name: spaces_between
WITH RECURSIVE s(space) AS (
    SELECT (SELECT space FROM {doc} WHERE space >= %(low)s AND space < %(high)s ORDER BY space LIMIT 1)
    UNION ALL
    SELECT (SELECT d.space FROM {doc} d WHERE d.space > s.space AND d.space < %(high)s ORDER BY d.space LIMIT 1)
    FROM s WHERE s.space IS NOT NULL)
SELECT space FROM s WHERE space IS NOT NULL

-- name: spaces
SELECT DISTINCT space FROM {doc}

-- name: docs
SELECT key, version, body FROM {doc}
WHERE space = %(space)s AND key >= %(prefix)s AND key > %(after)s AND key < %(beyond)s ORDER BY key LIMIT %(limit)s

-- Of the first ones those that were written first: what docs lead to mostly lies in their order.
-- name: oldest_docs
SELECT key, version, body FROM (
    SELECT ctid AS place, key, version, body FROM {doc}
    WHERE space = %(space)s AND key >= %(prefix)s AND key > %(after)s AND key < %(beyond)s ORDER BY key
    LIMIT 5 * %(limit)s) d
ORDER BY place LIMIT %(limit)s

-- name: get_docs
SELECT key, version, body FROM {doc} WHERE space = %(space)s AND key = ANY(%(keys)s::bytea[]) ORDER BY key

-- name: put_doc
INSERT INTO {doc} (space, key, version, body) VALUES (%(space)s, %(key)s, %(version)s, %(body)s)
ON CONFLICT (space, key) DO UPDATE SET version = excluded.version, body = excluded.body RETURNING 1

-- name: add_doc
INSERT INTO {doc} (space, key, version, body) VALUES (%(space)s, %(key)s, %(version)s, %(body)s)
ON CONFLICT DO NOTHING RETURNING 1

-- name: change_doc
UPDATE {doc} SET version = %(version)s, body = %(body)s
WHERE space = %(space)s AND key = %(key)s AND version = %(expected)s RETURNING 1

-- Each or none, locked in the order of keys: whoever changes some of them too waits, and is waited for, in one place.
-- name: change_docs
WITH x AS (
        SELECT * FROM unnest(%(keys)s::bytea[], %(versions)s::bytea[], %(bodies)s::bytea[], %(expected)s::bytea[])
            x(key, version, body, expected)
    ),
    l AS MATERIALIZED (
        SELECT d.key FROM {doc} d JOIN x ON d.key = x.key AND d.version = x.expected
        WHERE d.space = %(space)s AND d.key = ANY(%(keys)s::bytea[]) ORDER BY d.key FOR UPDATE OF d
    )
UPDATE {doc} d SET version = x.version, body = x.body FROM x
WHERE d.space = %(space)s AND d.key = ANY(%(keys)s::bytea[]) AND d.key = x.key AND (SELECT count(*) FROM l) = %(count)s
RETURNING 1

-- name: drop_doc
DELETE FROM {doc} WHERE space = %(space)s AND key = %(key)s

-- name: drop_docs
DELETE FROM {doc} WHERE space = %(space)s AND key = ANY(%(keys)s::bytea[])

-- name: take_doc
DELETE FROM {doc} WHERE space = %(space)s AND key = %(key)s AND version = %(expected)s RETURNING 1

-- Parts of one writing statement: WITH g AS (guard), x1 AS (part), ... SELECT g.no FROM g

-- name: create_thread
INSERT INTO {thread} (tenant, thread, uid, rev, extents, created_at, updated_at)
VALUES (%(tenant)s, %(thread)s, %(uid)s, %(rev)s, %(extents)s, {now}, {now})
ON CONFLICT (tenant, thread) DO NOTHING RETURNING no

-- name: advance_thread
UPDATE {thread} SET rev = %(rev)s, extents = %(extents)s, updated_at = {now}
WHERE no = %(no)s AND rev = %(was)s RETURNING no

-- name: drop_chunks
DELETE FROM {chunk} WHERE t = %(no)s AND no = ANY(%(dropped)s::bigint[]) AND EXISTS (SELECT 1 FROM g)

-- name: add_chunks
INSERT INTO {chunk} (t, no, n, body) SELECT g.no, x.no, x.n, x.body FROM g CROSS JOIN {source} x(no, n, body)
ON CONFLICT (t, no) DO UPDATE SET n = excluded.n, body = excluded.body

-- name: put_checkpoint
INSERT INTO {checkpoint} (t, ns, id, parent, run, source, step, created_at, refs, body)
SELECT g.no, %(ns)s::bytea, %(id)s::bytea, %(parent)s::bytea, %(run)s::bytea, %(source)s::bytea, %(step)s::bigint,
    coalesce(%(created_at)s::bigint, {now}), %(refs)s::int4multirange, %(body)s::bytea FROM g
ON CONFLICT (t, ns, id) DO UPDATE
    SET parent = excluded.parent, run = excluded.run, source = excluded.source, step = excluded.step,
        created_at = excluded.created_at, refs = excluded.refs, body = excluded.body

-- The older tokens of a checkpoint that is replaced. Parts run on one snapshot: none may touch another's rows.
-- name: drop_metas
DELETE FROM {meta} WHERE t = %(no)s AND ns = %(ns)s AND checkpoint = %(id)s AND token <> ALL(%(tokens)s::bytea[])
    AND EXISTS (SELECT 1 FROM g)

-- name: add_metas
INSERT INTO {meta} (token, t, ns, checkpoint)
SELECT x.token, g.no, %(ns)s::bytea, %(id)s::bytea FROM g CROSS JOIN unnest(%(tokens)s::bytea[]) x(token)
ON CONFLICT DO NOTHING

-- name: put_writes
INSERT INTO {write} (t, ns, checkpoint, task, k, run, created_at, refs, body)
SELECT g.no, x.ns, x.checkpoint, x.task, x.k, x.run, coalesce(x.created_at, {now}), x.refs, x.body
FROM g CROSS JOIN {source} x(ns, checkpoint, task, k, run, created_at, refs, body)
ON CONFLICT (t, ns, checkpoint, task, k) DO UPDATE
    SET run = excluded.run, created_at = excluded.created_at, refs = excluded.refs, body = excluded.body
    WHERE excluded.k < 0
RETURNING 1

-- name: replace_writes
INSERT INTO {write} (t, ns, checkpoint, task, k, run, created_at, refs, body)
SELECT g.no, x.ns, x.checkpoint, x.task, x.k, x.run, coalesce(x.created_at, {now}), x.refs, x.body
FROM g CROSS JOIN {source} x(ns, checkpoint, task, k, run, created_at, refs, body)
ON CONFLICT (t, ns, checkpoint, task, k) DO UPDATE
    SET run = excluded.run, created_at = excluded.created_at, refs = excluded.refs, body = excluded.body
RETURNING 1

-- name: put_notes
INSERT INTO {note} (t, key, body) SELECT g.no, x.key, x.body FROM g CROSS JOIN {source} x(key, body)
ON CONFLICT (t, key) DO UPDATE SET body = excluded.body

-- name: drop_notes
DELETE FROM {note} WHERE t = %(no)s AND key = ANY(%(dropped_notes)s::bytea[]) AND EXISTS (SELECT 1 FROM g)

-- name: copy_chunks
INSERT INTO {chunk} (t, no, n, body) SELECT g.no, k.no, k.n, k.body FROM g CROSS JOIN {chunk} k WHERE k.t = %(from)s

-- name: copy_checkpoints
INSERT INTO {checkpoint} (t, ns, id, parent, run, source, step, created_at, refs, body)
SELECT g.no, c.ns, c.id, c.parent, c.run, c.source, c.step, c.created_at, c.refs, c.body
FROM g CROSS JOIN {checkpoint} c WHERE c.t = %(from)s

-- name: copy_writes
INSERT INTO {write} (t, ns, checkpoint, task, k, run, created_at, refs, body)
SELECT g.no, w.ns, w.checkpoint, w.task, w.k, w.run, w.created_at, w.refs, w.body
FROM g CROSS JOIN {write} w WHERE w.t = %(from)s

-- name: copy_metas
INSERT INTO {meta} (token, t, ns, checkpoint)
SELECT m.token, g.no, m.ns, m.checkpoint FROM g CROSS JOIN {meta} m WHERE m.t = %(from)s

-- name: copy_notes
INSERT INTO {note} (t, key, body) SELECT g.no, o.key, o.body FROM g CROSS JOIN {note} o WHERE o.t = %(from)s

-- Removal: the thread row is locked by one statement and its rows are removed by the next. In one statement the
-- rows of a put that the lock had to wait for would not be seen, and stay for ever.

-- name: lock_name
SELECT pg_advisory_xact_lock(%(name)s)

-- name: lock_thread
SELECT no FROM {thread} WHERE tenant = %(tenant)s AND thread = %(thread)s FOR UPDATE

-- name: lock_thread_at
SELECT no FROM {thread} WHERE tenant = %(tenant)s AND thread = %(thread)s AND rev = %(rev)s FOR UPDATE

-- name: delete_thread
WITH h AS (DELETE FROM {thread} WHERE tenant = %(tenant)s AND thread = %(thread)s RETURNING no, uid),
    a AS (DELETE FROM {chunk} WHERE t = (SELECT no FROM h)),
    b AS (DELETE FROM {write} WHERE t = (SELECT no FROM h)),
    m AS (DELETE FROM {meta} WHERE t = (SELECT no FROM h)),
    o AS (DELETE FROM {note} WHERE t = (SELECT no FROM h) RETURNING key, body),
    c AS (DELETE FROM {checkpoint} WHERE t = (SELECT no FROM h) RETURNING 1)
SELECT (SELECT count(*) FROM c), h.uid, o.key, o.body FROM h LEFT JOIN o ON true ORDER BY o.key

-- Several at once. Rows are found by the numbers of their threads as they are given: those the planner looks up in an
-- index, or compares by a hash, where it would go through a list that a query makes for each row of a small table.

-- name: sizes
SELECT x.no, (SELECT count(*) FROM {checkpoint} c WHERE c.t = x.no) FROM unnest(%(numbers)s::bigint[]) x(no)

-- name: lock_threads_at
SELECT t.no FROM {thread} t JOIN unnest(%(numbers)s::bigint[], %(revs)s::bytea[]) x(no, rev)
    ON t.no = x.no AND t.rev = x.rev
WHERE t.no = ANY(%(numbers)s::bigint[]) ORDER BY t.no FOR UPDATE OF t

-- name: delete_threads
WITH h AS (DELETE FROM {thread} t USING unnest(%(numbers)s::bigint[], %(revs)s::bytea[]) x(no, rev)
        WHERE t.no = ANY(%(numbers)s::bigint[]) AND t.no = x.no AND t.rev = x.rev RETURNING t.no, t.uid),
{rows}

-- Both in one transaction, with a look at the threads between the two; nothing if they have more checkpoints.
-- name: lock_threads
SELECT x.i, t.no, t.uid, t.rev, t.extents
FROM unnest(%(threads)s::bytea[]) WITH ORDINALITY x(thread, i) JOIN {thread} t ON t.thread = x.thread
WHERE t.tenant = %(tenant)s AND t.thread = ANY(%(threads)s::bytea[]) ORDER BY t.no FOR UPDATE OF t

-- name: delete_locked
WITH h AS (DELETE FROM {thread} WHERE no = ANY(%(numbers)s::bigint[]) AND (
            SELECT count(*) <= %(limit)s FROM (
                SELECT FROM unnest(%(numbers)s::bigint[]) x(no) CROSS JOIN LATERAL (
                    SELECT FROM {checkpoint} c WHERE c.t = x.no LIMIT %(limit)s + 1) c
                LIMIT %(limit)s + 1) k
        ) RETURNING no, uid),
{rows}

-- name: rows
    a AS (DELETE FROM {chunk} WHERE t = ANY(%(numbers)s::bigint[]) AND t = ANY(ARRAY(SELECT no FROM h))),
    b AS (DELETE FROM {write} WHERE t = ANY(%(numbers)s::bigint[]) AND t = ANY(ARRAY(SELECT no FROM h))),
    m AS (DELETE FROM {meta} WHERE t = ANY(%(numbers)s::bigint[]) AND t = ANY(ARRAY(SELECT no FROM h))),
    o AS (DELETE FROM {note} WHERE t = ANY(%(numbers)s::bigint[]) AND t = ANY(ARRAY(SELECT no FROM h)) RETURNING t, key, body),
    c AS (DELETE FROM {checkpoint} WHERE t = ANY(%(numbers)s::bigint[]) AND t = ANY(ARRAY(SELECT no FROM h)) RETURNING t),
    n AS (SELECT t, count(*) AS count FROM c GROUP BY t)
SELECT h.no, coalesce(n.count, 0), h.uid, o.key, o.body
FROM h LEFT JOIN n ON n.t = h.no LEFT JOIN o ON o.t = h.no ORDER BY h.no, o.key

-- name: remove_checkpoints
WITH x AS (SELECT * FROM unnest(%(namespaces)s::bytea[], %(ids)s::bytea[]) x(ns, id)),
    m AS (DELETE FROM {meta} m USING x
        WHERE m.t = %(no)s AND m.ns = ANY(%(namespaces)s::bytea[]) AND m.checkpoint = ANY(%(ids)s::bytea[])
            AND m.ns = x.ns AND m.checkpoint = x.id)
DELETE FROM {checkpoint} c USING x
WHERE c.t = %(no)s AND c.ns = ANY(%(namespaces)s::bytea[]) AND c.id = ANY(%(ids)s::bytea[]) AND c.ns = x.ns AND c.id = x.id

-- name: remove_writes
DELETE FROM {write} w USING
    unnest(%(namespaces)s::bytea[], %(ids)s::bytea[], %(tasks)s::bytea[], %(ks)s::int[]) x(ns, id, task, k)
WHERE w.t = %(no)s AND w.ns = ANY(%(namespaces)s::bytea[]) AND w.checkpoint = ANY(%(ids)s::bytea[])
    AND w.ns = x.ns AND w.checkpoint = x.id AND w.task = x.task AND w.k = x.k

-- name: remove_chunks
DELETE FROM {chunk} WHERE t = %(no)s AND no = ANY(%(numbers)s::bigint[])

-- name: add_chunks_to
INSERT INTO {chunk} (t, no, n, body)
SELECT %(no)s, x.no, x.n, x.body FROM unnest(%(numbers)s::bigint[], %(counts)s::int[], %(bodies)s::bytea[])
    x(no, n, body)

-- Tables

-- name: lock_migrations
SELECT pg_advisory_xact_lock(8316879031268437)

-- name: survey
SELECT current_setting('server_version_num')::int, to_regclass(%(migration)s) IS NOT NULL,
    %(schema)s::text IS NULL OR to_regnamespace(%(schema)s) IS NOT NULL, to_regclass(%(theirs)s) IS NOT NULL

-- name: applied
SELECT number, checksum, oldest FROM {migration}

-- name: create_schema
CREATE SCHEMA IF NOT EXISTS {schema}

-- name: create_migration
CREATE TABLE IF NOT EXISTS {migration} (number integer PRIMARY KEY, name text NOT NULL, checksum text NOT NULL,
    oldest integer NOT NULL, applied_at bigint NOT NULL)

-- name: record_migration
INSERT INTO {migration} (number, name, checksum, oldest, applied_at)
VALUES (%(number)s, %(name)s, %(checksum)s, %(oldest)s, {now})

-- name: partition
CREATE TABLE {part} PARTITION OF {whole} FOR VALUES WITH (MODULUS {count}, REMAINDER {index})

-- name: only_theirs
SELECT 1 FROM {theirs} WHERE NOT EXISTS (SELECT 1 FROM {thread}) LIMIT 1

-- Every table of ours, the store's too, and whether this role may clean it.
-- name: purge_tables
SELECT format('%%I.%%I', n.nspname, c.relname), pg_has_role(c.relowner, 'USAGE')
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind = 'r' AND c.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = '{thread}'::regclass)
    AND (%(prefix)s::text <> '' AND starts_with(c.relname, %(prefix)s::text)
        OR c.oid IN ('{thread}'::regclass, '{chunk}'::regclass, '{checkpoint}'::regclass, '{write}'::regclass,
            '{meta}'::regclass, '{note}'::regclass, '{doc}'::regclass))
ORDER BY 1
