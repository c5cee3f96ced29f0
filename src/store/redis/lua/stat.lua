-- SPDX-License-Identifier: Apache-2.0
-- stat.lua -- what is known of some streams: {status, info} of each. Their tags and names stand behind one another.

local all = {}
for i = ARGS + 1, #ARGV, 2 do
    local s, why, moved = find(ARGV[i], ARGV[i + 1])
    if moved then return {why, moved.moved, moved.nonce} end -- on a cluster it is asked for alone
    all[#all + 1] = {s and 'OK' or why, s and info(s) or {}}
end
return all
