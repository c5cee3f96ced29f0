-- SPDX-License-Identifier: Apache-2.0
-- announce.lua -- on a cluster: puts names into their indexes before there is anything of these names (what is listed is
-- looked at anyway), and says when they are to be looked at. In ARGV, of each: index or '', name, member of terms, ms to
-- wait or '' (not before a minute, if at all). Answers {'OK'}.

local MINUTE = 60000
for i = ARGS + 1, #ARGV, 4 do
    local index, name, member, wait = ARGV[i], ARGV[i + 1], ARGV[i + 2], tonumber(ARGV[i + 3])
    if index ~= '' then redis.call('ZADD', ns .. '{index}:' .. index, 0, name) end
    local at = text(now + MINUTE + (wait or 0))
    if wait then
        redis.call('ZADD', ns .. '{index}:terms', at, member)
    else
        redis.call('ZADD', ns .. '{index}:terms', 'XX', at, member)
    end
end
return {'OK'}
