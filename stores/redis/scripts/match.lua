-- uses: items walk
-- Items that hold any of the words after the tokens: (id, no, words) triples; then how many items were looked at,
-- how many words they have together, and where to go on.
local out, items, length = {}, 0, 0
local asked = {}
for a = 7 + tonumber(ARGV[6]), #ARGV do asked[#asked + 1] = ' ' .. ARGV[a] .. ' ' end
local cursor = walk(function(id, value)
  local text = redis.call('HGET', DATA, 'w' .. id)
  if text and string.sub(text, 1, 8) == string.sub(value, 1, 8) then
    local words = ' ' .. string.sub(text, 9) .. ' '
    local _, blanks = string.gsub(words, ' ', '')
    items, length = items + 1, length + blanks - 1
    for _, word in ipairs(asked) do
      if string.find(words, word, 1, true) then
        out[#out + 1], out[#out + 2], out[#out + 3] = id, string.sub(value, 1, 8), string.sub(text, 9)
        break
      end
    end
  end
  return true
end)
out[#out + 1] = items
out[#out + 1] = length
out[#out + 1] = cursor
return out
