-- SPDX-License-Identifier: Apache-2.0
-- sweep.lua -- what time has done to streams: names of those that Redis has expired go, and events that are too old.
-- Answers how many were looked at.

local a = named({'limit', 'default_events', 'default_bytes', 'default_age'})
local terms = ns .. '{index}:terms'
local old = redis.call('ZRANGEBYSCORE', terms, '-inf', text(now), 'LIMIT', 0, a.limit)
for _, m in ipairs(old) do
    local tag, name = string.match(m, '^{([^}]*)}:(.*)$')
    local s, why = find(tag, name)
    if s then
        trim_idle(s, a)
    elseif why == 'NOT_FOUND' and redis.call('ZREM', ns .. '{index}:names', name) == 1 then
        wake(tag, name) -- nobody saw it go
    end
    local at = s and due(s, tonumber(a.default_age))
    if at then
        redis.call('ZADD', terms, text(math.max(at, now + 1000)), m)
    else
        redis.call('ZREM', terms, m)
    end
end
return #old
