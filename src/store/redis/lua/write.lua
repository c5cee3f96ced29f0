-- SPDX-License-Identifier: Apache-2.0
-- write.lua -- one atomic change of one stream; the preconditions and their order are those of store.h.
-- Answers {status, epoch, seq, expected seq, created, tail, events, info}; epoch -1: no producer is known.

local a, PARTS = named({'tag', 'name', 'op', 'create', 'typed', 'data_type', 'claim', 'epoch', 'claim_seq', 'sequenced', 'seq',
    'if_match', 'match_life', 'match_pos', 'bad_data', 'has_data', 'last', 'close', 'ended', 'default_events', 'default_bytes',
    'default_age', 'bad_docs', 'again', 'n_parts', 'n_docs'})
if a.create == '1' then
    a, PARTS = named({'confirm', 'config', 'type', 'ttl', 'expires', 'keep_events', 'keep_bytes', 'keep_age', 'fork_of', 'fork_tag',
        'fork_at_tail', 'fork_life', 'fork_pos', 'fork_sub', 'fork_depth'}, a, PARTS)
end
local DOCS = PARTS + a.n_parts * 2 -- the parts: bytes, and `e` as in stream.lua
local PRODUCERS_MAX, HOLES_MAX = 10000, 16
local HOLE = 8589934592 -- 2^33: more than can have been lost
local YEAR_2025_US, BYTES_PER_US = 1735689600000000, 16
local SMALL = 16384

local producer = {epoch = -1, seq = 0, expected = 0} -- what is answered of it
local source, source_moved, fork_pos, fork_events

local function answer(status, s, created)
    local tail, events = s and s.tail or 0, s and s.events or 0
    return {status, producer.epoch, producer.seq, producer.expected, created and 1 or 0, tail, events, s and info(s) or {}}
end

local function media_type(t)
    return string.lower((string.gsub(string.match(t, '^[ \t]*([^;]*)'), '[ \t]+$', '')))
end

local function same_type(x, y)
    return x == y or media_type(x) == media_type(y)
end

-- By bytes, whatever the locale says of letters.
local function is_behind(x, y)
    for i = 1, #x do
        local p, q = string.byte(x, i), string.byte(y, i)
        if not q or p > q then return true end
        if p < q then return false end
    end
    return false
end

-- ---- the verdict: nil to apply, or the status ----

local function claimed(s)
    return a.claim ~= '' and s.life and redis.call('HGET', part(s, 'producers'), a.claim)
end

local function note_producer(known)
    local epoch, seq = string.match(known, '^(%d+) (%d+)$')
    producer.epoch, producer.seq = tonumber(epoch), tonumber(seq)
end

local function closed_verdict(s)
    local known = claimed(s)
    if known then note_producer(known) end
    if a.close ~= '1' then return 'CLOSED' end
    if a.claim ~= '' then
        if s.closed_by ~= a.epoch .. ' ' .. a.claim_seq .. ' ' .. a.claim then return 'CLOSED' end
        producer.epoch, producer.seq = tonumber(a.epoch), tonumber(a.claim_seq)
        return 'DUPLICATE'
    end
    return a.has_data ~= '1' and a.bad_data ~= '1' and 'DUPLICATE' or 'CLOSED'
end

local function claim_verdict(known)
    local epoch, seq = tonumber(a.epoch), tonumber(a.claim_seq)
    local next = 0
    if known then
        note_producer(known)
        if epoch < producer.epoch then return 'FENCED' end
        if epoch > producer.epoch and seq > 0 then return 'EPOCH_START' end
        if epoch == producer.epoch then
            if seq <= producer.seq then return 'DUPLICATE' end
            next = producer.seq + 1
        end
    end
    if seq ~= next then
        producer.expected = next
        return 'SEQ_GAP'
    end
    producer.epoch, producer.seq = epoch, seq
end

local function verdict(s)
    if s.ended ~= 0 then return closed_verdict(s) end
    if a.typed == '1' and not same_type(a.data_type, s.type) then return 'TYPE_MISMATCH' end
    local known = claimed(s)
    if a.claim ~= '' then
        local v = claim_verdict(known)
        if v then return v end
    end
    if a.sequenced == '1' and s.seq and not is_behind(a.seq, s.seq) then return 'SEQ_ORDER' end
    local life, pos = tonumber(a.match_life), tonumber(a.match_pos)
    local own = life == s.life or (life == 0 and pos == 0)
    if a.if_match == '1' and not (own and pos == s.tail) then return 'TAIL_MOVED' end
    if a.bad_data == '1' then return 'BAD_DATA' end
    if a.claim ~= '' and s.life and not known and redis.call('HLEN', part(s, 'producers')) >= PRODUCERS_MAX then
        return 'LIMIT'
    end
    if a.bad_docs == '1' or not docs_match(DOCS, tonumber(a.n_docs), a.again == '1') then return 'VERSION' end
end

-- Where the fork begins: `sub` events (JSON) or bytes past the position, within the append that begins there.
local function place_fork(pos, sub)
    if sub == 0 and pos == source.tail then return pos, source.events end
    if pos == source.tail then return nil end
    local e, before = locate(source, pos)
    if not e then return nil end
    if sub == 0 then return pos, e.ordinal + before end
    local from, first = event_end(e, before), e.ordinal + before
    if media_type(source.type) == 'application/json' then
        if first + sub > math.min(e.ordinal + e.n + e.more_events, e.seg.events) then return nil end
        local last, index = seek(source, first + sub - 1)
        if not last then return nil end
        return event_end(last, index + 1), first + sub
    end
    local to = from + sub
    if to > math.min(e.pos + #e.data + e.more_bytes, e.seg.upto) then return nil end
    local last = entry_at(e.seg, to - 1)
    return to, last.ordinal + events_before(last, to - 1) + 1
end

local function fork_verdict()
    local why
    source, why, source_moved = find(a.fork_tag, a.fork_of)
    if source_moved then return 'SOURCE_MOVED' end
    if not source then return why == 'DELETED' and 'FORK_DELETED' or 'FORK_SOURCE' end
    if #segments(source) > tonumber(a.fork_depth) then return 'FORK_DEPTH' end -- a touch goes through all of them
    local pos = source.tail
    if a.fork_at_tail ~= '1' then pos = resolve(source, tonumber(a.fork_life), tonumber(a.fork_pos)) end
    if not pos then return 'FORK_OFFSET' end
    if a.type ~= '' and not same_type(a.type, source.type) then return 'TYPE_MISMATCH' end
    fork_pos, fork_events = place_fork(pos, tonumber(a.fork_sub))
    if not fork_pos then return 'FORK_OFFSET' end
end

local function create_verdict()
    if a.fork_of ~= '' then
        local v = fork_verdict()
        if v then return v end
    end
    local s = {type = a.type ~= '' and a.type or source.type, tail = fork_pos or 0, ended = 0}
    return verdict(s)
end

-- By this very write, whose answer was lost.
local function was_created(s)
    local known = claimed(s)
    return known and claim_verdict(known) == 'DUPLICATE'
end

local function confirm_verdict(s)
    if was_created(s) then return 'DUPLICATE' end
    local same = (s.config or '') == a.config and (a.close == '1') == (s.ended ~= 0)
    local typed = a.type ~= '' and same_type(a.type, s.type) or (a.type == '' and a.fork_of ~= '')
    return same and typed and 'SAME' or 'EXISTS'
end

-- ---- applying it ----

local changes = {}
local function set(s, field, value)
    s[field] = value
    changes[#changes + 1] = field
    changes[#changes + 1] = type(value) == 'number' and text(value) or value
end

-- A fork takes over from its source what it does not ask for.
local function set_terms(s)
    local own = a
    if source and tonumber(a.ttl) < 0 and tonumber(a.expires) < 0 then own = source end
    for _, field in ipairs({'ttl', 'expires'}) do
        local v = tonumber(own[field] or -1)
        if v >= 0 then set(s, field, v) end
    end
    own = a
    if source and a.keep_events + a.keep_bytes + a.keep_age == 0 then own = source end
    for _, field in ipairs({'keep_events', 'keep_bytes', 'keep_age'}) do
        local v = tonumber(own[field] or 0)
        if v > 0 then set(s, field, v) end
    end
end

local function set_fork(s)
    local origins = {}
    for _, o in ipairs(source.origins and cmsgpack.unpack(source.origins) or {}) do
        origins[#origins + 1] = {o[1], o[2], math.min(o[3], fork_pos), math.min(o[4], fork_events)}
    end
    origins[#origins + 1] = {source.tag, source.life, fork_pos, fork_events}
    set(s, 'origins', cmsgpack.pack(origins))
    set(s, 'source', cmsgpack.pack({source.tag, source.name, source.life}))
    local empty = source.first >= fork_pos
    set(s, 'first', empty and fork_pos or source.first)
    set(s, 'first_event', empty and fork_events or source.first_event)
    local holes = {}
    for _, hole in ipairs(holes_of(source)) do
        if hole[2] <= fork_pos then holes[#holes + 1] = hole end
    end
    if #holes > 0 then set(s, 'holes', cmsgpack.pack(holes)) end
    local state = key('state', source.tag, source.name)
    redis.call('HSET', state, 'forked', text(math.max(source.forked or 0, fork_pos)))
    redis.call('ZADD', part(source, 'forks'), '+inf', text(s.life))
end

-- Where the last event before pos begins in the source; pos: there is none.
local function last_before(pos)
    if pos <= source.first then return pos end
    local i = 1
    while pos - 1 >= segments(source)[i].upto do i = i + 1 end
    local e = entry_at(segments(source)[i], pos - 1)
    return e and event_end(e, math.min(events_before(e, pos - 1), e.n - 1)) or pos
end

-- Which Redis this is: another one after a failover, or after a restart that may have lost what was last written. (Also
-- when it gets its first replica, which loses nothing; but who was primary, was not, and is again has the same run_id.)
local function this_run()
    local text_of = redis.call('INFO', 'replication')
    local _, at = string.find(text_of, 'master_replid:', 1, true)
    return at and string.sub(text_of, at + 1, at + 16) or 'unknown'
end

-- A life never comes again, also when a failover has lost the last ones: it is the time.
local function create()
    local s = {tag = a.tag, name = a.name, first = 0, first_event = 0, ended = 0}
    local life = now_us
    while redis.call('EXISTS', key('buffer', a.tag, text(life))) == 1 do life = life + 1 end
    set(s, 'life', life)
    set(s, 'type', a.type ~= '' and a.type or source.type)
    set(s, 'tail', fork_pos or 0)
    set(s, 'events', fork_events or 0)
    set(s, 'last', source and last_before(fork_pos) or 0)
    set(s, 'run', this_run())
    if a.config ~= '' then set(s, 'config', a.config) end
    set_terms(s)
    if source then set_fork(s) end
    return s
end

-- Events that this Redis never got may have been read; their positions must not mean others. So the tail goes far beyond
-- what can have been there, and an offset in between is a gap. The clock is in it as well: two histories that leave the
-- same tail, one after the other, go to different places (unless a stream takes more than 16 MB/s all the time between).
local function jump(s)
    local run = this_run()
    if s.run and s.run ~= run then
        local to = math.max((math.ceil(s.tail / HOLE) + 1) * HOLE, (now_us - YEAR_2025_US) * BYTES_PER_US)
        local holes = holes_of(s)
        holes[#holes + 1] = {s.tail, to}
        while holes[1] and holes[1][2] <= s.first do table.remove(holes, 1) end
        if #holes > HOLES_MAX then holes[2][1] = table.remove(holes, 1)[1] end -- what is between counts no more
        set(s, 'holes', cmsgpack.pack(holes))
        s.tail = to
    end
    if s.run ~= run then set(s, 'run', run) end
end

local function append(s)
    jump(s)
    set(s, 'last', s.tail + a.last)
    for i = PARTS, DOCS - 1, 2 do
        local data, ends = ARGV[i], ARGV[i + 1]
        local id = text(s.tail) .. '-' .. text(s.events + 1)
        redis.call('XADD', part(s, 'buffer'), id, 'd', data, 't', text(now), 'e', ends)
        s.tail = s.tail + #data
        s.events = s.events + math.max(1, (#ends - 8) / 4)
    end
    set(s, 'tail', s.tail)
    set(s, 'events', s.events)
end

-- Redis keeps room for events to come, 4 KiB by default; where none will come that is given back.
local function give_room_back(s)
    local buffer = part(s, 'buffer')
    local small = s.tail - segments(s)[#segments(s)].from < SMALL
    local copy = small and redis.call('DUMP', buffer)
    if copy then redis.call('RESTORE', buffer, 0, copy, 'REPLACE') end
end

local function apply(s)
    local created = not s
    s = s or create()
    if a.has_data == '1' then append(s) end
    if a.claim ~= '' then redis.call('HSET', part(s, 'producers'), a.claim, a.epoch .. ' ' .. a.claim_seq) end
    if a.sequenced == '1' then set(s, 'seq', a.seq) end
    if a.close == '1' then
        set(s, 'ended', tonumber(a.ended))
        if a.claim ~= '' then set(s, 'closed_by', a.epoch .. ' ' .. a.claim_seq .. ' ' .. a.claim) end
        give_room_back(s)
    end
    put_docs(DOCS, tonumber(a.n_docs))
    trim(s, tonumber(a.default_events), tonumber(a.default_bytes), tonumber(a.default_age))
    if s.trimmed then
        set(s, 'first', s.first)
        set(s, 'first_event', s.first_event)
    end
    if #changes > 0 then redis.call('HSET', key('state', s.tag, s.name), unpack(changes)) end
    touch(s, true)
    if created and not cluster then
        redis.call('ZADD', ns .. '{index}:names', 0, s.name)
        local at = due(s, tonumber(a.default_age))
        if at then redis.call('ZADD', ns .. '{index}:terms', text(at), term_of(s)) end
    end
    if created and source and not s.dies then hold(s) end
    note_op(a.op, s.tail, s.events)
    wake(s.tag, s.name, process)
    return answer('OK', s, created)
end

local s, why, moved = find(a.tag, a.name)
if moved then return {'MOVED', moved.moved, moved.nonce} end
local done, tail, events = find_op(a.tag, a.op)
if done then
    if a.claim ~= '' then producer.epoch, producer.seq = tonumber(a.epoch), tonumber(a.claim_seq) end
    local said = answer('OK', s, a.create == '1')
    said[6], said[7] = tail, events
    return said
end
local v
if s then
    if a.create == '1' then v = confirm_verdict(s) else v = verdict(s) end
elseif a.create == '1' and why == 'DELETED' then
    v = 'EXISTS'
elseif a.create == '1' and a.confirm ~= '1' then
    v = create_verdict()
else
    v = why
end
if not v then return apply(s) end
if v == 'SOURCE_MOVED' then return {v, source_moved.moved} end
if v == 'DUPLICATE' then touch(s) end
return answer(v, s, v == 'DUPLICATE' and a.create == '1')
