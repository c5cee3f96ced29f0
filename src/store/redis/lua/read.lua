-- SPDX-License-Identifier: Apache-2.0
-- read.lua -- whole events from a position on. Answers {status, gap's reason, start, next, last, ordinal, bytes, info,
-- the last one's ordinal}.

local a = named({'tag', 'name', 'from', 'life', 'pos', 'event', 'max', 'touch'})
local max = tonumber(a.max)
local ENTRIES_MAX = 512 -- of one call

local s, why, moved = find(a.tag, a.name)
if moved then return {why, moved.moved, moved.nonce} end
if not s then return {why} end
if a.touch == '1' then pcall(touch, s) end -- a Redis that is full takes no notes, but can be read

local function nothing(status, reason)
    return {status, reason or '', 0, 0, 0, 0, '', info(s)}
end

local parts, bytes, count = {}, 0, 0
local start, pos, last, ordinal, last_ordinal

-- Takes as many events of an entry as fit, behind the first `before` of them. False: not all of them.
local function take(e, before)
    local from = event_end(e, before)
    local n = events_before(e, from + max - bytes)
    if n <= before and bytes == 0 then n = before + 1 end
    if n > before then
        local to = event_end(e, n)
        local whole = to - from == #e.data
        parts[#parts + 1] = whole and e.data or string.sub(e.data, from - e.pos + 1, to - e.pos)
        bytes, pos, last = bytes + to - from, to, event_end(e, n - 1)
        last_ordinal = e.ordinal + n - 1
    end
    return pos == e.stop and bytes < max
end

-- Goes on from where the last entry ended. True: all that the segment has.
local function take_segment(seg)
    local step = 4
    while pos < seg.upto and pos < s.tail do
        local got = redis.call('XRANGE', seg.buffer, text(pos), '+', 'COUNT', step)
        for _, raw in ipairs(got) do
            local e = entry(seg, raw)
            if pos == seg.upto then return true end
            if e.pos ~= pos then return false end -- behind a hole
            if not take(e, 0) then return false end
        end
        count = count + step
        if #got == 0 or count >= ENTRIES_MAX then return false end
        step = math.min(step * 2, 64)
    end
    return true
end

if a.from == 'tail' then
    pos = s.tail
elseif a.from == 'start' then
    pos = s.first
elseif a.from == 'event' then
    local event = tonumber(a.event)
    if event > s.events then return nothing('GAP', 'UNKNOWN') end
    if event < s.first_event then return nothing('GAP', 'TRIMMED') end
    pos = s.tail
    if event < s.events then
        local e, before = seek(s, event)
        if not e then return nothing('GAP', 'UNKNOWN') end
        pos = event_end(e, before)
    end
else
    local reason
    pos, reason = resolve(s, tonumber(a.life), tonumber(a.pos))
    if not pos then return nothing('GAP', reason) end
end

for _, hole in ipairs(holes_of(s)) do -- there is nothing behind it yet: a fork was made there
    if hole[1] == pos and hole[2] == s.tail then pos = s.tail end
end
start, last, ordinal = pos, pos, s.events
if pos < s.tail then
    local e, before = locate(s, pos)
    if not e then return nothing(before, 'UNKNOWN') end
    start, ordinal = event_end(e, before), e.ordinal + before
    pos, last = start, start
    local more = take(e, before)
    for _, seg in ipairs(segments(s)) do
        if more and pos >= seg.from then more = take_segment(seg) end
    end
end
return {'OK', '', start, pos, last, ordinal, table.concat(parts), info(s), last_ordinal or 0}
