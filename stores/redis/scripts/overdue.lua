-- uses: items
-- How many items have expired.
return redis.call('ZCOUNT', DEADLINES, '-inf', number_text(now))
