-- SPDX-License-Identifier: Apache-2.0
-- trim.lua -- on a cluster: what time has done to one stream. Answers as stat.lua does.

local a = named({'tag', 'name', 'default_events', 'default_bytes', 'default_age'})
local s, why, moved = find(a.tag, a.name)
if moved then return {why, moved.moved, moved.nonce} end
if s then trim_idle(s, a) end
return {{s and 'OK' or why, s and info(s) or {}}}
