-- SPDX-License-Identifier: Apache-2.0
-- remove.lua -- takes a stream away. Answers {status}.

local a = named({'tag', 'name', 'op'})
if find_op(a.tag, a.op) then return {'OK'} end
local s, why, moved = find(a.tag, a.name)
if moved then return {why, moved.moved, moved.nonce} end
if not s then return {why} end
remove(s)
note_op(a.op, 0, 0)
return {'OK'}
