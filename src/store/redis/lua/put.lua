-- SPDX-License-Identifier: Apache-2.0
-- put.lua -- documents, all or none of them. Answers {status}.

local a, at = named({'tag', 'op', 'again', 'n_docs'})
local n = tonumber(a.n_docs)
if find_op(a.tag, a.op) then return {'OK'} end
if not docs_match(at, n, a.again == '1') then return {'VERSION'} end
put_docs(at, n)
note_op(a.op, 0, 0)
return {'OK'}
