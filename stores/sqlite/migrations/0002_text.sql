-- Words of items by their `no`, already without case and accents.

CREATE VIRTUAL TABLE stepvault_text USING fts5 (words, tokenize = 'unicode61 remove_diacritics 0');
