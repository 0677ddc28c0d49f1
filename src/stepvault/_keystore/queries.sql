-- Statements of the key store on SQLite. Parameters by number.

-- name: load
SELECT owner, gen, id, kek, wrapped FROM stepvault_key WHERE owner = ?1

-- name: insert
INSERT INTO stepvault_key (owner, gen, id, kek, wrapped, created_at)
SELECT ?1, ?2, ?3, ?4, ?5, {now}
WHERE NOT EXISTS (SELECT 1 FROM stepvault_kek_retired WHERE kek = ?4)
    AND (SELECT count(*) FROM stepvault_key WHERE owner = ?1 AND wrapped IS NULL) = ?6
ON CONFLICT (owner, gen) DO NOTHING
RETURNING gen

-- name: link
INSERT INTO stepvault_key_link (subject, owner) VALUES (?1, ?2) ON CONFLICT DO NOTHING

-- name: linked
SELECT l.owner, (SELECT count(*) FROM stepvault_key_link o WHERE o.owner = l.owner)
FROM stepvault_key_link l WHERE l.subject = ?1 ORDER BY l.owner

-- name: page
SELECT owner, gen, id, kek, wrapped FROM stepvault_key
WHERE (owner, gen) > (?2, ?3) AND wrapped IS NOT NULL AND kek <> ?1
ORDER BY owner, gen LIMIT ?4

-- name: rewrap
UPDATE stepvault_key SET kek = ?4, wrapped = ?5 WHERE owner = ?1 AND gen = ?2 AND wrapped = ?3 RETURNING gen

-- name: shred
UPDATE stepvault_key SET wrapped = NULL, shredded_at = {now} WHERE owner = ?1 AND wrapped IS NOT NULL RETURNING gen

-- name: bury
INSERT INTO stepvault_key (owner, gen, id, kek, created_at, shredded_at)
SELECT ?1, 0, zeroblob(16), '', {now}, {now}
WHERE NOT EXISTS (SELECT 1 FROM stepvault_key WHERE owner = ?1)

-- name: forgettable
SELECT DISTINCT k.owner FROM stepvault_key k WHERE k.shredded_at IS NOT NULL AND k.shredded_at < ?1
    AND NOT EXISTS (SELECT 1 FROM stepvault_key o WHERE o.owner = k.owner
        AND (o.wrapped IS NOT NULL OR o.shredded_at >= ?1))
LIMIT ?2

-- name: forget
DELETE FROM stepvault_key WHERE owner = ?1
    AND NOT EXISTS (SELECT 1 FROM stepvault_key WHERE owner = ?1 AND wrapped IS NOT NULL)

-- name: unlink
DELETE FROM stepvault_key_link WHERE owner = ?1 AND NOT EXISTS (SELECT 1 FROM stepvault_key WHERE owner = ?1)

-- name: retire
INSERT INTO stepvault_kek_retired (kek, retired_at) VALUES (?1, {now}) ON CONFLICT DO NOTHING

-- name: retired
SELECT kek FROM stepvault_kek_retired ORDER BY kek

-- name: uses
SELECT kek, count(*) FROM stepvault_key WHERE wrapped IS NOT NULL GROUP BY kek ORDER BY kek
