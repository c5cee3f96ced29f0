-- SPDX-License-Identifier: Apache-2.0
-- place.lua -- on a cluster: where the stream of a name is kept. `say`: under another tag from now on, unless it is
-- said so already; answers {'OK'}, {'THERE'} if it was said before, {'EXISTS'} if the stream is here, {'ELSEWHERE', tag,
-- nonce} if it is said to be under a third one. Who has looked there and found nothing comes with that nonce as `stale`;
-- if it still stands, what it said is replaced. `claim`: the stream has been made there, under a new nonce: nobody can
-- replace it any more who looked before. `unsay`: what this nonce has said.

local a = named({'tag', 'name', 'what', 'family', 'nonce', 'stale'})
local s, why, moved = find(a.tag, a.name)
local state = key('state', a.tag, a.name)
if a.what == 'unsay' then
    if moved and moved.nonce == a.nonce then redis.call('UNLINK', state) end
    return {'OK'}
end
if s or why == 'DELETED' then return {'EXISTS'} end
if moved and moved.moved ~= a.family and moved.nonce ~= a.stale then return {'ELSEWHERE', moved.moved, moved.nonce} end
if a.family == a.tag then -- here, that is
    redis.call('UNLINK', state)
    return {'THERE'}
end
if moved and moved.moved == a.family and a.what == 'say' then return {'THERE'} end
redis.call('HSET', state, 'moved', a.family, 'nonce', a.nonce)
if a.what == 'claim' then wake(a.tag, a.name) end -- who listens here has to hear of it
return {'OK'}
