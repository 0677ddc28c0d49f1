-- Statements of the SQLite checkpointer. Positional parameters, in order of appearance or by number.

-- name: thread
SELECT no, uid, rev, extents FROM stepvault_thread WHERE tenant = ?1 AND thread = ?2

-- name: thread_at
SELECT no FROM stepvault_thread WHERE tenant = ?1 AND thread = ?2 AND rev = ?3

-- A checkpoint with its thread, then its writes (behind a NULL).
-- name: head
SELECT t.no, t.uid, t.rev, t.extents, c.ns, c.id, c.parent, c.run, c.source, c.step, c.created_at, c.refs, c.body
FROM stepvault_thread t LEFT JOIN stepvault_checkpoint c ON c.t = t.no AND c.ns = ?3
    AND c.id = (SELECT id FROM stepvault_checkpoint WHERE t = t.no AND ns = ?3 ORDER BY id DESC LIMIT 1)
WHERE t.tenant = ?1 AND t.thread = ?2
UNION ALL
SELECT NULL, ns, checkpoint, task, k, run, created_at, refs, body, NULL, NULL, NULL, NULL FROM stepvault_write
WHERE t = (SELECT no FROM stepvault_thread WHERE tenant = ?1 AND thread = ?2) AND ns = ?3
    AND checkpoint = (
        SELECT id FROM stepvault_checkpoint
        WHERE t = (SELECT no FROM stepvault_thread WHERE tenant = ?1 AND thread = ?2) AND ns = ?3
        ORDER BY id DESC LIMIT 1)

-- name: checkpoint
SELECT t.no, t.uid, t.rev, t.extents, c.ns, c.id, c.parent, c.run, c.source, c.step, c.created_at, c.refs, c.body
FROM stepvault_thread t LEFT JOIN stepvault_checkpoint c ON c.t = t.no AND c.ns = ?3 AND c.id = ?4
WHERE t.tenant = ?1 AND t.thread = ?2
UNION ALL
SELECT NULL, ns, checkpoint, task, k, run, created_at, refs, body, NULL, NULL, NULL, NULL FROM stepvault_write
WHERE t = (SELECT no FROM stepvault_thread WHERE tenant = ?1 AND thread = ?2) AND ns = ?3 AND checkpoint = ?4

-- name: writes
SELECT ns, checkpoint, task, k, run, created_at, refs, body FROM stepvault_write
WHERE t = ?1 AND ns = ?2 AND checkpoint = ?3

-- name: chunks
SELECT no, n, body FROM stepvault_chunk WHERE t = ?1 AND no BETWEEN ?2 AND ?3

-- name: create_thread
INSERT INTO stepvault_thread (tenant, thread, uid, rev, extents, created_at, updated_at)
VALUES (?1, ?2, ?3, ?4, ?5, {now}, {now})
ON CONFLICT (tenant, thread) DO NOTHING RETURNING no

-- name: advance_thread
UPDATE stepvault_thread SET rev = ?3, extents = ?4, updated_at = {now} WHERE no = ?1 AND rev = ?2

-- name: add_chunk
INSERT OR REPLACE INTO stepvault_chunk (t, no, n, body)
VALUES (coalesce(?1, (SELECT no FROM stepvault_thread WHERE tenant = ?2 AND thread = ?3)), ?4, ?5, ?6)

-- name: drop_page
DELETE FROM stepvault_chunk WHERE t = ?1 AND no BETWEEN ?2 AND ?3

-- name: put_checkpoint
INSERT OR REPLACE INTO stepvault_checkpoint (t, ns, id, parent, run, source, step, created_at, refs, body)
VALUES (coalesce(?1, (SELECT no FROM stepvault_thread WHERE tenant = ?2 AND thread = ?3)),
    ?4, ?5, ?6, ?7, ?8, ?9, coalesce(?10, {now}), ?11, ?12)

-- name: drop_meta
DELETE FROM stepvault_meta WHERE t = ?1 AND ns = ?2 AND checkpoint = ?3

-- name: add_meta
INSERT OR IGNORE INTO stepvault_meta (token, t, ns, checkpoint)
VALUES (?4, coalesce(?1, (SELECT no FROM stepvault_thread WHERE tenant = ?2 AND thread = ?3)), ?5, ?6)

-- name: put_write
INSERT INTO stepvault_write (t, ns, checkpoint, task, k, run, created_at, refs, body)
VALUES (coalesce(?1, (SELECT no FROM stepvault_thread WHERE tenant = ?2 AND thread = ?3)),
    ?4, ?5, ?6, ?7, ?8, coalesce(?9, {now}), ?10, ?11)
ON CONFLICT (t, ns, checkpoint, task, k) DO UPDATE
    SET run = excluded.run, created_at = excluded.created_at, refs = excluded.refs, body = excluded.body
    WHERE excluded.k < 0

-- name: replace_write
INSERT OR REPLACE INTO stepvault_write (t, ns, checkpoint, task, k, run, created_at, refs, body)
VALUES (coalesce(?1, (SELECT no FROM stepvault_thread WHERE tenant = ?2 AND thread = ?3)),
    ?4, ?5, ?6, ?7, ?8, coalesce(?9, {now}), ?10, ?11)

-- name: put_note
INSERT OR REPLACE INTO stepvault_note (t, key, body)
VALUES (coalesce(?1, (SELECT no FROM stepvault_thread WHERE tenant = ?2 AND thread = ?3)), ?4, ?5)

-- name: drop_note
DELETE FROM stepvault_note WHERE t = ?1 AND key = ?2

-- name: born
SELECT created_at FROM stepvault_thread WHERE no = ?1

-- name: notes
SELECT key, body FROM stepvault_note WHERE t = ?1 AND key >= ?2 AND key < ?3 ORDER BY key

-- name: note_at
SELECT t.no, t.uid, t.rev, t.extents, n.body
FROM stepvault_thread t LEFT JOIN stepvault_note n ON n.t = t.no AND n.key = ?3 WHERE t.tenant = ?1 AND t.thread = ?2

-- name: threads_at
SELECT thread, no, uid, rev, extents FROM stepvault_thread WHERE tenant = ? AND thread IN ({threads})

-- name: copy_notes
INSERT INTO stepvault_note (t, key, body)
SELECT (SELECT no FROM stepvault_thread WHERE tenant = ?2 AND thread = ?3), key, body
FROM stepvault_note WHERE t = ?1

-- name: delete_notes
DELETE FROM stepvault_note WHERE t = (SELECT no FROM stepvault_thread WHERE tenant = ?1 AND thread = ?2)

-- name: docs
-- One lower bound: given two, SQLite seeks to the first and walks to the second.
SELECT key, version, body FROM stepvault_doc WHERE space = ?1 AND key >= ?2 AND key < ?3 ORDER BY key LIMIT ?4

-- name: doc
SELECT key, version, body FROM stepvault_doc WHERE space = ?1 AND key = ?2

-- name: put_doc
INSERT OR REPLACE INTO stepvault_doc (space, key, version, body) VALUES (?1, ?2, ?3, ?4)

-- name: add_doc
INSERT INTO stepvault_doc (space, key, version, body) VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING RETURNING 1

-- name: change_doc
UPDATE stepvault_doc SET version = ?3, body = ?4 WHERE space = ?1 AND key = ?2 AND version = ?5 RETURNING 1

-- name: drop_doc
DELETE FROM stepvault_doc WHERE space = ?1 AND key = ?2

-- name: take_doc
DELETE FROM stepvault_doc WHERE space = ?1 AND key = ?2 AND version = ?3 RETURNING 1

-- name: now
SELECT {now}

-- name: delete_thread
DELETE FROM stepvault_thread WHERE tenant = ?1 AND thread = ?2 RETURNING uid

-- name: notes_of_thread
SELECT key, body FROM stepvault_note WHERE t = (SELECT no FROM stepvault_thread WHERE tenant = ?1 AND thread = ?2)
ORDER BY key

-- name: count_checkpoints
SELECT count(*) FROM stepvault_checkpoint WHERE t = (SELECT no FROM stepvault_thread WHERE tenant = ?1 AND thread = ?2)

-- name: delete_chunks
DELETE FROM stepvault_chunk WHERE t = (SELECT no FROM stepvault_thread WHERE tenant = ?1 AND thread = ?2)

-- name: delete_checkpoints
DELETE FROM stepvault_checkpoint WHERE t = (SELECT no FROM stepvault_thread WHERE tenant = ?1 AND thread = ?2)

-- name: delete_writes
DELETE FROM stepvault_write WHERE t = (SELECT no FROM stepvault_thread WHERE tenant = ?1 AND thread = ?2)

-- name: delete_metas
DELETE FROM stepvault_meta WHERE t = (SELECT no FROM stepvault_thread WHERE tenant = ?1 AND thread = ?2)

-- Several threads at once, by a JSON list of their numbers.
-- name: sizes
SELECT no, rev, (SELECT count(*) FROM stepvault_checkpoint WHERE t = no) FROM stepvault_thread
WHERE no IN (SELECT value FROM json_each(?1))

-- name: notes_of_all
SELECT t, key, body FROM stepvault_note WHERE t IN (SELECT value FROM json_each(?1)) ORDER BY t, key

-- name: delete_all_threads
DELETE FROM stepvault_thread WHERE no IN (SELECT value FROM json_each(?1))

-- name: delete_all_chunks
DELETE FROM stepvault_chunk WHERE t IN (SELECT value FROM json_each(?1))

-- name: delete_all_checkpoints
DELETE FROM stepvault_checkpoint WHERE t IN (SELECT value FROM json_each(?1))

-- name: delete_all_writes
DELETE FROM stepvault_write WHERE t IN (SELECT value FROM json_each(?1))

-- name: delete_all_metas
DELETE FROM stepvault_meta WHERE t IN (SELECT value FROM json_each(?1))

-- name: delete_all_notes
DELETE FROM stepvault_note WHERE t IN (SELECT value FROM json_each(?1))

-- name: all_checkpoints
SELECT ns, id, parent, run, source, step, created_at, refs, body FROM stepvault_checkpoint WHERE t = ?1

-- name: all_writes
SELECT ns, checkpoint, task, k, run, created_at, refs, body FROM stepvault_write WHERE t = ?1

-- name: all_chunks
SELECT no, n, length(body) FROM stepvault_chunk WHERE t = ?1 ORDER BY no

-- name: chunk
SELECT no, n, body FROM stepvault_chunk WHERE t = ?1 AND no = ?2

-- name: remove_checkpoint
DELETE FROM stepvault_checkpoint WHERE t = ?1 AND ns = ?2 AND id = ?3

-- name: remove_write
DELETE FROM stepvault_write WHERE t = ?1 AND ns = ?2 AND checkpoint = ?3 AND task = ?4 AND k = ?5

-- name: remove_chunk
DELETE FROM stepvault_chunk WHERE t = ?1 AND no = ?2

-- name: copy_chunks
INSERT INTO stepvault_chunk (t, no, n, body)
SELECT (SELECT no FROM stepvault_thread WHERE tenant = ?2 AND thread = ?3), no, n, body
FROM stepvault_chunk WHERE t = ?1

-- name: copy_checkpoints
INSERT INTO stepvault_checkpoint (t, ns, id, parent, run, source, step, created_at, refs, body)
SELECT (SELECT no FROM stepvault_thread WHERE tenant = ?2 AND thread = ?3),
    ns, id, parent, run, source, step, created_at, refs, body
FROM stepvault_checkpoint WHERE t = ?1

-- name: copy_writes
INSERT INTO stepvault_write (t, ns, checkpoint, task, k, run, created_at, refs, body)
SELECT (SELECT no FROM stepvault_thread WHERE tenant = ?2 AND thread = ?3),
    ns, checkpoint, task, k, run, created_at, refs, body
FROM stepvault_write WHERE t = ?1

-- name: copy_metas
INSERT INTO stepvault_meta (token, t, ns, checkpoint)
SELECT token, (SELECT no FROM stepvault_thread WHERE tenant = ?2 AND thread = ?3), ns, checkpoint
FROM stepvault_meta WHERE t = ?1

-- name: tenants
SELECT DISTINCT tenant FROM stepvault_thread ORDER BY tenant

-- name: spaces_between
WITH RECURSIVE s(space) AS (
    SELECT (SELECT space FROM stepvault_doc WHERE space >= ?1 AND space < ?2 ORDER BY space LIMIT 1)
    UNION ALL
    SELECT (SELECT d.space FROM stepvault_doc d WHERE d.space > s.space AND d.space < ?2 ORDER BY d.space LIMIT 1)
    FROM s WHERE s.space IS NOT NULL)
SELECT space FROM s WHERE space IS NOT NULL

-- name: spaces
SELECT DISTINCT space FROM stepvault_doc

-- name: threads_of_run
SELECT t.tenant, t.thread FROM stepvault_thread t
WHERE t.tenant = ?1 AND t.no IN (
    SELECT t FROM stepvault_checkpoint WHERE run = ?2 UNION SELECT t FROM stepvault_write WHERE run = ?2)
ORDER BY t.no

-- name: find_in_namespace
SELECT t.no, t.uid, t.rev, t.extents, c.ns, c.id, t.thread, c.parent, c.run, c.source, c.step, c.created_at, c.refs, c.body
FROM stepvault_thread t CROSS JOIN stepvault_checkpoint c ON c.t = t.no
WHERE t.tenant = :tenant AND t.thread = :thread AND c.ns = :ns AND c.id < :below {more}
ORDER BY c.id DESC LIMIT :limit

-- name: find_in_thread
SELECT t.no, t.uid, t.rev, t.extents, c.ns, c.id, t.thread, c.parent, c.run, c.source, c.step, c.created_at, c.refs, c.body
FROM (SELECT k.t, k.ns, k.id, h.thread, h.no, h.uid, h.rev, h.extents FROM stepvault_thread h CROSS JOIN stepvault_checkpoint k ON k.t = h.no
      WHERE h.tenant = :tenant AND h.thread = :thread AND (k.id, k.ns) < (:below, :below_ns) {more_k}
      ORDER BY k.id DESC, k.ns DESC LIMIT :limit) t
CROSS JOIN stepvault_checkpoint c ON c.t = t.t AND c.ns = t.ns AND c.id = t.id
ORDER BY c.id DESC, c.ns DESC

-- name: find_everywhere
SELECT t.no, t.uid, t.rev, t.extents, c.ns, c.id, t.thread, c.parent, c.run, c.source, c.step, c.created_at, c.refs, c.body
FROM (SELECT k.t, k.ns, k.id, h.thread, h.no, h.uid, h.rev, h.extents FROM stepvault_thread h CROSS JOIN stepvault_checkpoint k ON k.t = h.no
      WHERE h.tenant = :tenant AND (k.id, k.ns, h.thread) < (:below, :below_ns, :below_thread) {more_k}
      ORDER BY k.id DESC, k.ns DESC, h.thread DESC LIMIT :limit) t
CROSS JOIN stepvault_checkpoint c ON c.t = t.t AND c.ns = t.ns AND c.id = t.id
ORDER BY c.id DESC, c.ns DESC, t.thread DESC

-- name: threads
SELECT t.no, t.thread, t.created_at, t.updated_at, t.expires_at, t.subjects,
    (SELECT id FROM stepvault_checkpoint c WHERE c.t = t.no AND c.ns = x'' ORDER BY id DESC LIMIT 1) AS head,
    (SELECT count(*) FROM stepvault_checkpoint c WHERE c.t = t.no),
    (SELECT coalesce(sum(length(body)), 0) FROM stepvault_checkpoint c WHERE c.t = t.no)
        + (SELECT coalesce(sum(length(body)), 0) FROM stepvault_chunk k WHERE k.t = t.no)
        + (SELECT coalesce(sum(length(body)), 0) FROM stepvault_write w WHERE w.t = t.no),
    EXISTS (SELECT 1 FROM stepvault_write w WHERE w.t = t.no AND w.ns = x'' AND w.k = -3
        AND w.checkpoint = (SELECT id FROM stepvault_checkpoint c WHERE c.t = t.no AND c.ns = x'' ORDER BY id DESC LIMIT 1)
        AND NOT EXISTS (SELECT 1 FROM stepvault_write o WHERE o.t = w.t AND o.ns = w.ns
            AND o.checkpoint = w.checkpoint AND o.task = w.task AND o.k >= 0)),
    t.extents
FROM stepvault_thread t WHERE t.tenant = ?1 AND t.no < ?2 ORDER BY t.no DESC LIMIT ?3
