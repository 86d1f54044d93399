-- Builds and changes binary trees of tables, and a long table of strings.
local function build(depth) return depth == 0 and {} or { build(depth - 1), build(depth - 1) } end
local function count(tree) return tree[1] and 1 + count(tree[1]) + count(tree[2]) or 1 end
local depth = tonumber(arg[1])
local kept = build(depth)
local total = 0
for round = 1, 6 do total = total + count(build(depth - 3)) end
local strings = {}
for number = 1, 400000 do strings[number] = "string " .. (number * 7919 % 1000003) end
table.sort(strings)
print(count(kept), total, strings[1], strings[200000], strings[400000])
