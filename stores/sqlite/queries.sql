-- Statements of the SQLite store. {live} is "not expired"; {more} are the conditions of one search.
-- Words are put by VALUES: before and after an INSERT ... SELECT, FTS5 writes out all it has, so a batch would pay for
-- every item what it can pay once.

-- name: survey
SELECT sqlite_version(), (SELECT count(*) FROM pragma_module_list WHERE name = 'fts5')

-- name: get
SELECT i.no, i.ns, i.key, i.created_at, i.updated_at, i.ttl, i.thread, i.checkpoint, i.body
FROM stepvault_item i WHERE i.tenant = ?1 AND i.ns = ?2 AND i.key = ?3 AND {live}

-- name: find
SELECT i.no, i.ns, i.key, i.created_at, i.updated_at, i.ttl, i.thread, i.checkpoint, i.body, NULL
FROM stepvault_item i WHERE i.no IN (
    SELECT i.no FROM stepvault_item i
    WHERE i.tenant = :tenant AND i.ns >= :low AND i.ns < :high AND {live} {more}
    ORDER BY i.no DESC LIMIT :limit OFFSET :offset)
ORDER BY i.no DESC

-- name: candidates
SELECT i.no, i.updated_at FROM stepvault_item i
WHERE i.tenant = :tenant AND i.ns >= :low AND i.ns < :high AND {live} {more} ORDER BY i.no DESC

-- name: vectors
SELECT item, embedding FROM stepvault_vector WHERE item IN (SELECT value FROM json_each(?1))

-- name: rows
SELECT i.no, i.ns, i.key, i.created_at, i.updated_at, i.ttl, i.thread, i.checkpoint, i.body
FROM stepvault_item i WHERE i.no IN (SELECT value FROM json_each(?1))

-- name: match
SELECT i.no, i.ns, i.key, i.created_at, i.updated_at, i.ttl, i.thread, i.checkpoint, i.body, m.score
FROM (SELECT t.rowid AS no, -bm25(stepvault_text) AS score FROM stepvault_text t WHERE stepvault_text MATCH :words) m
CROSS JOIN stepvault_item i ON i.no = m.no
WHERE i.tenant = :tenant AND i.ns >= :low AND i.ns < :high AND {live} {more}
ORDER BY m.score DESC, i.no DESC LIMIT :limit

-- name: namespaces
SELECT DISTINCT i.ns FROM stepvault_item i
WHERE i.tenant = ?1 AND i.ns >= ?2 AND i.ns < ?3 AND {live} ORDER BY i.ns

-- name: put
INSERT OR REPLACE INTO stepvault_item
    (tenant, ns, key, created_at, updated_at, ttl, expires_at, thread, checkpoint, tokens, fields, body)
VALUES (?1, ?2, ?3,
    coalesce((SELECT i.created_at FROM stepvault_item i
              WHERE i.tenant = ?1 AND i.ns = ?2 AND i.key = ?3 AND {live}), {now}),
    {now}, ?4,
    CASE WHEN NOT EXISTS (SELECT 1 FROM stepvault_item i WHERE i.tenant = ?1 AND i.ns = ?2 AND i.key = ?3
                          AND i.ttl IS NOT NULL AND i.expires_at IS NULL)
         THEN {now} + CAST(?4 * 60000000 AS INTEGER) END, ?5, ?6, ?7, ?8, ?9)

-- name: put_vector
INSERT OR REPLACE INTO stepvault_vector (item, embedding)
SELECT no, ?4 FROM stepvault_item WHERE tenant = ?1 AND ns = ?2 AND key = ?3

-- name: put_text
INSERT INTO stepvault_text (rowid, words)
VALUES ((SELECT no FROM stepvault_item WHERE tenant = ?1 AND ns = ?2 AND key = ?3), ?4)

-- name: drop_vector
DELETE FROM stepvault_vector
WHERE item = (SELECT no FROM stepvault_item WHERE tenant = ?1 AND ns = ?2 AND key = ?3)

-- name: drop_text
DELETE FROM stepvault_text
WHERE rowid = (SELECT no FROM stepvault_item WHERE tenant = ?1 AND ns = ?2 AND key = ?3)

-- name: drop_item
DELETE FROM stepvault_item WHERE tenant = ?1 AND ns = ?2 AND key = ?3

-- name: living
SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM stepvault_erased WHERE tenant = ? AND mark IN ({marks}))

-- name: set_erased
INSERT OR IGNORE INTO stepvault_erased (tenant, mark) VALUES (?1, ?2)

-- name: unset_erased
DELETE FROM stepvault_erased WHERE tenant = ?1 AND mark = ?2

-- name: erased
SELECT tenant, mark FROM stepvault_erased

-- name: touch
UPDATE stepvault_item AS i SET expires_at = {now} + CAST(ttl * 60000000 AS INTEGER)
WHERE i.no = ?1 AND i.expires_at IS NOT NULL AND {live}

-- name: pin
UPDATE stepvault_item AS i SET expires_at = NULL
WHERE i.tenant = ?1 AND i.ns = ?2 AND i.key = ?3 AND i.ttl IS NOT NULL AND {live}

-- name: unpin
UPDATE stepvault_item AS i SET expires_at = {now} + CAST(ttl * 60000000 AS INTEGER)
WHERE i.tenant = ?1 AND i.ns = ?2 AND i.key = ?3 AND i.ttl IS NOT NULL AND i.expires_at IS NULL

-- name: below
WITH p (low, high) AS (VALUES {ranges})
SELECT p.low, count(*) FILTER (WHERE {live}), count(v.item) FILTER (WHERE {live})
FROM p CROSS JOIN stepvault_item i ON i.tenant = ? AND i.ns >= p.low AND i.ns < p.high
LEFT JOIN stepvault_vector v ON v.item = i.no GROUP BY p.low

-- name: drop_vectors_below
DELETE FROM stepvault_vector
WHERE item IN (SELECT no FROM stepvault_item WHERE tenant = ?1 AND ns >= ?2 AND ns < ?3)

-- name: drop_texts_below
DELETE FROM stepvault_text
WHERE rowid IN (SELECT no FROM stepvault_item WHERE tenant = ?1 AND ns >= ?2 AND ns < ?3)

-- name: drop_items_below
DELETE FROM stepvault_item WHERE tenant = ?1 AND ns >= ?2 AND ns < ?3

-- name: expired
SELECT no FROM stepvault_item WHERE expires_at <= {now} ORDER BY expires_at LIMIT ?1

-- name: overdue
SELECT count(*) FROM stepvault_item WHERE expires_at <= {now}

-- name: drop_vector_no
DELETE FROM stepvault_vector WHERE item = ?1

-- name: drop_text_no
DELETE FROM stepvault_text WHERE rowid = ?1

-- name: drop_item_no
DELETE FROM stepvault_item WHERE no = ?1

-- name: index
SELECT dims, distance, model, ready FROM stepvault_vector_index

-- name: drop_all_vectors
DELETE FROM stepvault_vector

-- name: make_index
INSERT OR REPLACE INTO stepvault_vector_index (id, dims, distance, model, ready) VALUES (1, ?1, ?2, ?3, ?4)

-- name: page
SELECT i.no, i.fields, i.body FROM stepvault_item i WHERE i.no > ?1 AND i.tenant <> x'ff' AND {live}
ORDER BY i.no LIMIT ?2

-- name: whole
SELECT i.no, i.tenant, i.ns, i.key, i.ttl, i.thread, i.checkpoint, i.tokens, i.fields, v.embedding, i.body
FROM stepvault_item i LEFT JOIN stepvault_vector v ON v.item = i.no
WHERE i.no IN (SELECT value FROM json_each(?1))

-- name: texts
SELECT rowid, words FROM stepvault_text WHERE rowid IN (SELECT value FROM json_each(?1))

-- name: number
SELECT no FROM stepvault_item WHERE tenant = ?1 AND ns = ?2 AND key = ?3

-- name: exchange
UPDATE stepvault_item SET ns = ?2, key = ?3, thread = ?4, tokens = ?5, fields = ?6, body = ?7 WHERE no = ?1

-- name: set_text
INSERT INTO stepvault_text (rowid, words) SELECT no, ?2 FROM stepvault_item WHERE no = ?1

-- name: now
SELECT {now} / 1000

-- name: set_vector
INSERT OR REPLACE INTO stepvault_vector (item, embedding) SELECT no, ?2 FROM stepvault_item WHERE no = ?1

-- name: text_is_exact
SELECT v FROM stepvault_text_config WHERE k = 'secure-delete'

-- name: make_text_exact
INSERT INTO stepvault_text (stepvault_text, rank) VALUES ('secure-delete', 1)

-- name: tidy_text
INSERT INTO stepvault_text (stepvault_text) VALUES ('optimize')
