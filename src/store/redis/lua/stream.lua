-- SPDX-License-Identifier: Apache-2.0
-- stream.lua -- how streams rest in Redis; stands in front of every other script.
--
-- NS:sse:state:{TAG}:NAME      hash: what is known of a stream (load)
-- NS:sse:buffer:{TAG}:LIFE     Redis stream: its events, an entry for each append. A large append has several
--     id  POSITION-(ORDINAL+1) of the first event in it
--     d   the bytes;  t  when, in ms
--     e   '' for one event; otherwise how many events and how many bytes of the append follow in later
--         entries, and where each event of this one ends: 4 bytes each, big-endian
-- NS:sse:producers:{TAG}:LIFE  hash: id -> `EPOCH SEQ`
-- NS:sse:forks:{TAG}:LIFE      sorted set: lives of forks by the time they die at
-- NS:doc:{TAG}:KEY             hash: version, value
-- NS:{index}:names, :docs      sorted sets of all names and keys, by their bytes
-- NS:{index}:terms             sorted set of what has to be looked at, by the time (sweep.lua; on a cluster: forget.lua)
-- NS:{index}:probe             written to see whether writes are taken again; expires at once
-- NS:wake:{TAG}:NAME           channel: something has changed
-- NS:ops:{TAG}:PROCESS         what a process did there lately (find_op)
--
-- Where the prefix is empty, NS: is left out, and the state of a NAME.snapshot is at sse:snapshot:{TAG}:NAME.snapshot.
-- A tag says what shares a slot of a cluster. There a fork is kept where its source is, and its own state says where
-- that is: `moved`, a tag, and `nonce`, who said so. Positions may have holes: see jump in write.lua.
-- Numbers are doubles, exact to 2^53; text() is the only way to write one.

local ns, process = ARGV[1], ARGV[3] -- ns ends with a colon, or there is none at all
local cluster = ARGV[4] ~= '' -- 'all': somebody wants to know of every stream
local ARGS = 4 -- of every script; its own come behind
local CLOCK_LEAD = 3600000 -- ms that the clock may have gone back by
local clock = redis.call('TIME')
local now_us = clock[1] * 1000000 + clock[2]
local now = tonumber(ARGV[2]) or math.floor(now_us / 1000) -- given: by tests, with a clock of their own
local redis_expires = ARGV[2] == ''

local function text(n)
    return string.format('%.0f', n)
end

-- The arguments of a script by their names, and where what follows them begins. More: added to a, from `at` on.
local function named(names, a, at)
    a, at = a or {}, at or ARGS + 1
    for i = 1, #names do
        a[names[i]] = ARGV[at + i - 1]
    end
    return a, at + #names
end

-- state_key in redis_args.c is the same.
local function key(kind, tag, rest)
    if ns == '' and kind == 'state' and rest:sub(-9) == '.snapshot' then kind = 'snapshot' end
    return ns .. 'sse:' .. kind .. ':{' .. tag .. '}:' .. rest
end

-- by: the process that knows already.
local function wake(tag, name, by)
    local channel = ns .. 'wake:{' .. tag .. '}:' .. name
    redis.call(cluster and 'SPUBLISH' or 'PUBLISH', channel, by or '')
    if ARGV[4] == 'all' then redis.call('PUBLISH', ns .. 'wake', channel) end
end

-- ---- what is known of a stream ----

local NUMBERS = {life = true, tail = true, events = true, first = true, first_event = true, last = true,
    ttl = true, expires = true, dies = true, keep_events = true, keep_bytes = true, keep_age = true,
    ended = true, forked = true}

-- life, type; tail, events (all that ever were), last (where the last one begins); first, first_event: trimmed up
-- to here; ttl (s), expires (ms), dies: when both are looked at; keep_*: what it retains; ended: why, closed_by:
-- `EPOCH SEQ ID`; seq: the last Stream-Seq; run: the Redis that took the last append; config: as asked for, if
-- anything was. Of a fork: origins, source. With forks: forked, up to where; gone: only they keep it.
local function load(tag, name)
    local flat = redis.call('HGETALL', key('state', tag, name))
    if #flat == 0 then return nil end
    local s = {tag = tag, name = name, first = 0, first_event = 0, ended = 0}
    for i = 1, #flat, 2 do
        s[flat[i]] = NUMBERS[flat[i]] and tonumber(flat[i + 1]) or flat[i + 1]
    end
    return s
end

local function part(s, kind)
    s.id = s.id or text(s.life)
    return key(kind, s.tag, s.id)
end

local function holes_of(s)
    return s.holes and cmsgpack.unpack(s.holes) or {}
end

-- Bytes that can be read.
local function size(s)
    local n = s.tail - s.first
    for _, hole in ipairs(holes_of(s)) do
        n = n - math.max(0, hole[2] - math.max(hole[1], s.first))
    end
    return n
end

local function info(s)
    return {s.life, s.first, s.tail, s.first_event, s.events, s.type, s.ttl or -1, s.expires or -1,
        s.keep_events or 0, s.keep_bytes or 0, s.keep_age or 0, s.ended, size(s)}
end

local function has_forks(s)
    if not s.forked then return false end
    redis.call('ZREMRANGEBYSCORE', part(s, 'forks'), '-inf', text(now))
    return redis.call('ZCARD', part(s, 'forks')) > 0
end

local function source_of(s)
    if not s.source then return nil end
    local at = cmsgpack.unpack(s.source)
    local source = load(at[1], at[2])
    return source and source.life == at[3] and source or nil
end

-- Leaves the keys of a stream to Redis for as long as it, or a fork of it, can be read.
local function hold(s)
    local till = s.gone and 0 or s.dies or math.huge
    if s.forked then
        local top = redis.call('ZREVRANGE', part(s, 'forks'), 0, 0, 'WITHSCORES')
        till = math.max(till, tonumber(top[2] or 0))
    end
    local keys = {key('state', s.tag, s.name), part(s, 'buffer'), part(s, 'producers')}
    if s.forked then keys[4] = part(s, 'forks') end
    for _, k in ipairs(redis_expires and keys or {}) do
        if till == math.huge then
            redis.call('PERSIST', k)
        else
            redis.call('PEXPIRE', k, text(till - now))
        end
    end
    local source = source_of(s)
    if source then
        redis.call('ZADD', part(source, 'forks'), till == math.huge and '+inf' or text(till), text(s.life))
        hold(source)
    end
end

-- written: it may have got keys that it did not have before.
local function touch(s, written)
    local dies = s.dies
    if s.ttl then s.dies = now + s.ttl * 1000 end
    if s.expires then s.dies = math.min(s.ttl and s.dies or math.huge, s.expires) end
    if not s.dies or (s.dies == dies and not written) then return end
    redis.call('HSET', key('state', s.tag, s.name), 'dies', text(s.dies))
    hold(s)
end

local function term_of(s)
    return '{' .. s.tag .. '}:' .. s.name
end

-- Takes a stream away, and sources that only it kept. While forks live, its name is not free.
local function remove(s)
    local state = key('state', s.tag, s.name)
    if not s.gone then wake(s.tag, s.name) end
    if not cluster then
        redis.call('ZREM', ns .. '{index}:names', s.name)
        redis.call('ZREM', ns .. '{index}:terms', term_of(s))
    end
    if has_forks(s) then
        s.gone, s.dies = '1', nil
        redis.call('HSET', state, 'gone', '1')
        redis.call('UNLINK', part(s, 'producers'))
        hold(s)
        return
    end
    redis.call('UNLINK', state, part(s, 'buffer'), part(s, 'producers'), part(s, 'forks'))
    local source = source_of(s)
    if not source then return end
    redis.call('ZREM', part(source, 'forks'), text(s.life))
    if source.gone and not has_forks(source) then
        remove(source)
    else
        hold(source)
    end
end

-- The stream, or nil and why not (and where it is). One that has expired is removed by this. One that says it lives for
-- longer than it can was last used when the clock was wrong; a Redis that is full takes no notes of that.
local function find(tag, name)
    local s = load(tag, name)
    if s and s.moved then return nil, 'MOVED', s end
    if s and s.ttl and s.dies and not s.gone and s.dies > now + s.ttl * 1000 + CLOCK_LEAD then pcall(touch, s) end
    if s and not s.gone and s.dies and now >= s.dies then
        remove(s)
        s = load(tag, name)
    end
    if s and s.gone and not has_forks(s) then
        remove(s)
        s = nil
    end
    if not s then return nil, 'NOT_FOUND' end
    if s.gone then return nil, 'DELETED' end
    return s
end

-- ---- its events ----

-- The buffers that hold it, in order: those of the streams it was forked from, and its own.
local function segments(s)
    if s.segments then return s.segments end
    local all, from = {}, 0
    for _, o in ipairs(s.origins and cmsgpack.unpack(s.origins) or {}) do
        all[#all + 1] = {buffer = key('buffer', o[1], text(o[2])), life = o[2], from = from, upto = o[3], events = o[4]}
        from = o[3]
    end
    all[#all + 1] = {buffer = part(s, 'buffer'), life = s.life, from = from, upto = math.huge, events = math.huge}
    s.segments = all
    return all
end

-- Where the i-th event of an entry ends, from 1 on; 0: where the first begins.
local function event_end(e, i)
    if i == 0 then return e.pos end
    if i >= e.n then return e.stop end
    return e.pos + (struct.unpack('>I4', e.ends, 5 + i * 4))
end

-- How many events of an entry end at pos or before it.
local function events_before(e, pos)
    local low, high = 0, e.n
    while low < high do
        local mid = math.ceil((low + high) / 2)
        if event_end(e, mid) <= pos then low = mid else high = mid - 1 end
    end
    return low
end

-- A fork has only what stands before its point; a part of an event counts as one.
local function cut(e, upto)
    e.n = events_before(e, upto - 1) + 1
    e.stop, e.more_events, e.more_bytes = upto, 0, 0
end

local function entry(seg, raw)
    local pos, seq = string.match(raw[1], '^(%d+)-(%d+)$')
    local e = {seg = seg, pos = tonumber(pos), ordinal = tonumber(seq) - 1, data = raw[2][2], ms = tonumber(raw[2][4]),
        ends = raw[2][6], n = 1, more_events = 0, more_bytes = 0}
    if e.ends ~= '' then
        e.more_events, e.more_bytes = struct.unpack('>I4I4', e.ends)
        e.n = math.max(1, (#e.ends - 8) / 4)
    end
    e.stop = e.pos + #e.data
    if e.stop > seg.upto and e.pos < seg.upto then cut(e, seg.upto) end
    return e
end

-- The last entry that begins at pos or before it.
local function entry_at(seg, pos)
    local got = redis.call('XREVRANGE', seg.buffer, text(pos), '-', 'COUNT', 1)
    return got[1] and entry(seg, got[1])
end

-- The first entry from pos on, in this segment or a later one.
local function entry_from(s, i, pos)
    for at = i, #segments(s) do
        local seg = segments(s)[at]
        local got = redis.call('XRANGE', seg.buffer, text(math.max(pos, seg.from)), '+', 'COUNT', 1)
        local e = got[1] and entry(seg, got[1])
        if e and e.pos < seg.upto then return e end
    end
    return nil
end

-- The entry to read from and how many of its events lie before pos; nil, 'OFFSET': no event begins there; nil,
-- 'GAP': it was never here, or is no longer. s.first <= pos < s.tail.
local function locate(s, pos)
    local i = 1
    while pos >= segments(s)[i].upto do i = i + 1 end
    local seg = segments(s)[i]
    local e = entry_at(seg, pos)
    if e and pos < e.stop then
        local before = events_before(e, pos)
        if event_end(e, before) ~= pos then return nil, 'OFFSET' end
        return e, before
    end
    -- At the edge of a hole, or of what was trimmed.
    if pos ~= s.first and pos ~= seg.from and not (e and pos == e.stop) then return nil, 'GAP' end
    e = entry_from(s, i, pos)
    if e then return e, 0 end
    return nil, 'GAP'
end

-- The entry with the event of this ordinal, and how many of its events come before. s.first_event <= event < s.events
local function seek(s, event)
    local i = 1
    while event >= segments(s)[i].events do i = i + 1 end
    local seg = segments(s)[i]
    local low, high = math.max(s.first, seg.from), math.min(s.tail, seg.upto) - 1
    while low <= high do
        local mid = math.floor((low + high) / 2)
        local e = entry_at(seg, mid)
        if not e then
            low = mid + 1
        elseif event < e.ordinal then
            high = e.pos - 1
        elseif event >= e.ordinal + e.n then
            low = math.max(e.stop, mid + 1)
        else
            return e, event - e.ordinal
        end
    end
    return nil
end

-- The position that an offset means: nil, or the reason of the gap. Whether an event begins there is not looked at.
local function resolve(s, life, pos)
    if life == 0 and pos == 0 then return s.first end
    local upto
    for _, seg in ipairs(segments(s)) do
        if seg.life == life then upto = math.min(seg.upto, s.tail) end
    end
    if not upto or pos > upto then return nil, not upto and life < s.life and 'REBORN' or 'UNKNOWN' end
    if pos < s.first then return nil, 'TRIMMED' end
    return pos
end

-- ---- what it retains ----

local DROPPED_MAX = 16 -- entries in a call
local SLACK_EVENTS, SLACK_BYTES = 10000, 1048576 -- that stay at most, so that no call has much to trim

-- The position so many bytes before the tail; holes do not count.
local function bytes_back(s, bytes)
    local holes, pos = holes_of(s), s.tail - bytes
    for i = #holes, 1, -1 do
        if pos < holes[i][2] then pos = pos - (holes[i][2] - holes[i][1]) end
    end
    return pos
end

local function trim_to(s, pos, event)
    if pos <= s.first then return end
    s.first, s.first_event, s.trimmed = pos, event, true
end

local function trim_events(s, keep)
    if keep == 0 or s.events - s.first_event <= keep + math.min(math.floor(keep / 8), SLACK_EVENTS) then return end
    local e, before = seek(s, s.events - keep)
    if e then trim_to(s, event_end(e, before), s.events - keep) end
end

local function trim_bytes(s, keep)
    if keep == 0 or bytes_back(s, keep + math.min(math.floor(keep / 8), SLACK_BYTES)) <= s.first then return end
    local target = math.min(bytes_back(s, keep), s.last)
    local i = 1
    while target >= segments(s)[i].upto do i = i + 1 end
    local e = entry_at(segments(s)[i], target)
    if not e then return end
    if target >= e.stop then
        trim_to(s, e.stop, e.ordinal + e.n)
        return
    end
    local before = events_before(e, target)
    if event_end(e, before) < target then before = before + 1 end
    trim_to(s, event_end(e, before), e.ordinal + before)
end

-- The last entry of a segment that is too old, from one on that is: they rest in the order of their times.
local function last_aged(s, e, since)
    local low, high = e.stop, math.min(s.tail, e.seg.upto) - 1
    while low <= high do
        local mid = math.floor((low + high) / 2)
        local at = entry_at(e.seg, mid)
        if at.ms < since then
            low, e = math.max(at.stop, mid + 1), at
        else
            high = at.pos - 1
        end
    end
    return e
end

local function trim_age(s, age)
    for _ = 1, age > 0 and #segments(s) or 0 do
        local e = s.first < s.tail and locate(s, s.first)
        if not e or e.ms >= now - age then return end
        e = last_aged(s, e, now - age)
        trim_to(s, e.stop, e.stop == s.tail and s.events or e.ordinal + e.n)
    end
end

-- Forks may need what was there when they were made; the rest goes.
local function drop_trimmed(s)
    local buffer, from = part(s, 'buffer'), segments(s)[#segments(s)].from
    if s.first < from then return end
    if not has_forks(s) then
        local e = s.first < s.tail and locate(s, s.first)
        redis.call('XTRIM', buffer, 'MINID', '~', text(e and e.pos or s.first), 'LIMIT', 0) -- whole nodes, so it is fast
        return
    end
    local old = redis.call('XRANGE', buffer, text(s.forked), text(s.first), 'COUNT', DROPPED_MAX)
    for _, raw in ipairs(old) do
        local e = entry({upto = math.huge}, raw)
        if e.stop <= s.first then redis.call('XDEL', buffer, raw[1]) end
    end
end

-- Moves its beginning; s.trimmed says that it has moved. Not for each event by itself: an eighth more may stay.
local function trim(s, default_events, default_bytes, default_age)
    if s.first == s.tail then return end
    trim_events(s, s.keep_events or default_events)
    trim_bytes(s, s.keep_bytes or default_bytes)
    trim_age(s, s.keep_age or default_age)
    if s.trimmed or (s.forked and s.first > s.forked and has_forks(s)) then drop_trimmed(s) end
end

-- When nobody writes it. a: has the default bounds.
local function trim_idle(s, a)
    trim(s, tonumber(a.default_events), tonumber(a.default_bytes), tonumber(a.default_age))
    if not s.trimmed then return end
    redis.call('HSET', key('state', s.tag, s.name), 'first', text(s.first), 'first_event', text(s.first_event))
end

-- When a sweep has to look at it again; nil: never.
local function due(s, default_age)
    local age = s.keep_age or default_age
    local aged = age > 0 and now + math.max(1000, age / 4) or nil
    if s.dies and aged then return math.min(s.dies, aged) end
    return s.dies or aged
end

-- ---- what a process did before ----

-- When it is to be kept longer, 8 bytes, and OP bytes for each: number, tail, events. Asked always, since a call that was
-- given up may still be on its way.
local OPS_MS, OPS_KEPT, OPS_MAX, OP = 120000, 64, 128, 24
local ops_key, ops

-- true, tail, events: it was done.
local function find_op(tag, op)
    ops_key = ns .. 'ops:{' .. tag .. '}:' .. process
    ops = redis.call('GET', ops_key) or ''
    local at = string.find(ops, op, 9, true)
    while at and at % OP ~= 9 do at = string.find(ops, op, at + 1, true) end
    if at then return true, struct.unpack('>I8I8', ops, at + #op) end
    return false
end

-- After find_op.
local function note_op(op, tail, events)
    local note = op .. struct.pack('>I8I8', tail, events)
    if ops ~= '' and struct.unpack('>I8', ops) > now_us and #ops < OPS_MAX * OP then
        redis.call('APPEND', ops_key, note)
        return
    end
    local head = struct.pack('>I8', now_us + OPS_MS * 500)
    redis.call('SET', ops_key, head .. string.sub(ops, math.max(9, #ops - OPS_KEPT * OP + 1)) .. note, 'PX', OPS_MS)
end

-- ---- documents ----

-- Documents to be written stand in ARGV from `at` on: Redis key, name, expected version, 1 for a value, value.
local DOC = 5

local function doc_is_written(i)
    local version, value = unpack(redis.call('HMGET', ARGV[i], 'version', 'value'))
    if ARGV[i + 3] ~= '1' then return not version end
    return version == text(tonumber(ARGV[i + 2]) + 1) and value == ARGV[i + 4]
end

-- Again: those that an earlier try has written are fine as well.
local function docs_match(at, n, again)
    for i = at, at + (n - 1) * DOC, DOC do
        local version = redis.call('HGET', ARGV[i], 'version') or '0'
        if version ~= ARGV[i + 2] and not (again and doc_is_written(i)) then return false end
    end
    return true
end

local function put_docs(at, n)
    for i = at, at + (n - 1) * DOC, DOC do
        local k, name, version = ARGV[i], ARGV[i + 1], text(tonumber(ARGV[i + 2]) + 1)
        if ARGV[i + 3] == '1' then
            redis.call('HSET', k, 'version', version, 'value', ARGV[i + 4])
            if not cluster then redis.call('ZADD', ns .. '{index}:docs', 0, name) end
        else
            redis.call('UNLINK', k)
            if not cluster then redis.call('ZREM', ns .. '{index}:docs', name) end
        end
    end
end

