-- SPDX-License-Identifier: Apache-2.0
-- forget.lua -- on a cluster: drops from its index what was not found, unless somebody has made it due at another time
-- since: who creates it does that first. Answers {'OK'}.

local a = named({'index', 'name', 'member', 'seen'})
if redis.call('ZSCORE', ns .. '{index}:terms', a.member) == a.seen then
    redis.call('ZREM', ns .. '{index}:terms', a.member)
    redis.call('ZREM', ns .. '{index}:' .. a.index, a.name)
end
return {'OK'}
