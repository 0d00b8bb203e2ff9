"""What replicas count together, as the store has it: one hash a counter, and the two scripts that
work on them.

    spent, at          calls of the last minute as far as they have not leaked away, and when that was so: they leak
                       in steps of some seconds, so that of calls that come at once over all
                       replicas, and take a moment to arrive, exactly so many pass as the minute
                       allows
    r:WHO  w:WHO       places that WHO has, and calls that wait there for one
    g:WHO              of its places, those that it was given while it waited and has not heard of yet
    last               whose turn it was

WHO is a replica and its term. A replica begins a new term whenever it cannot know what the store
has of it: it tells all it has anew, under that term, and nothing it said before counts any more,
not even what arrives late. Two more keys have the term of each replica, and when it was last heard
of, which is often while it has a place or waits for one. Whoever comes across what belongs to one
that was not heard of for a while drops it, and with it ends that term: should the replica be there
after all, it has to tell all it has anew.

Promised: a script does all it is asked or nothing, by the store's own clock; should that be set
back, what it has written before counts as of now. A place that is free goes to whoever waits, one
replica after the other, in the same moment. Every key ends by itself (`KEPT`), that of a client who
has only made calls once they have leaked away.
"""

from typing import Final

from mcpx.replicas.store import Script

KEPT: Final = 180_000
"""Milliseconds a counter is kept that nobody touches: what leaks away does so in a minute, and who
has a place or waits for one touches it more often (`shared_counters.TOUCHED`)."""
TERMS_KEPT: Final = 24 * 3_600_000
"""The same of terms, and of one that is not heard of: longer than one waits between calls,
mostly."""

# What becomes of a call.
PASSES: Final = 0
WAITS: Final = 1
"""For a place at one of them; it has those before. It stands in line."""
DISPLACES: Final = 2
"""The same, and the line is full: it takes the place of another call of its replica."""
TOO_OFTEN: Final = 3
FULL: Final = 4
"""Refused at once: nothing was counted."""
FULL_BY_NOW: Final = 5
"""It has waited before, and has the places before this one."""

ROUND: Final = Script(
    """
-- KEYS: terms, heard, a counter each. ARGV: replica, term, seconds after which one is gone, KEPT, TERMS_KEPT, JSON:
-- counters: [in_flight, per_minute, queue, places given back, calls that wait no more, calls that were not made] each
-- calls: [first place to take, whether it comes for the first time, (number of a counter, may it displace) each] each
local STEP = 3
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return false end
local me = ARGV[1] .. '.' .. ARGV[2]
local asked = cjson.decode(ARGV[6])
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
local known = {[me] = true}
redis.call('ZADD', KEYS[2], string.format('%.17g', now), ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[5])
redis.call('PEXPIRE', KEYS[2], ARGV[5])

local function is_there(who)
  if known[who] == nil then
    local id, term = string.match(who, '^(.-)%.(%d+)$')
    known[who] = false
    if id and redis.call('HGET', KEYS[1], id) == term then
      local heard = tonumber(redis.call('ZSCORE', KEYS[2], id)) or 0
      if heard > now then redis.call('ZADD', KEYS[2], string.format('%.17g', now), id) end
      known[who] = now - heard <= tonumber(ARGV[3])
      if not known[who] then redis.call('HDEL', KEYS[1], id) end
    end
  end
  return known[who]
end

local function add(c, kind, who, by)
  c[kind][who] = (c[kind][who] or 0) + by
  c.sum[kind] = c.sum[kind] + by
  c.changed[kind .. ':' .. who] = c[kind][who]
end

local function read(key, told)
  local c = {key = key, most = told[1], rate = told[2], room = told[3], spent = 0, at = now, last = '',
             r = {}, w = {}, g = {}, sum = {r = 0, w = 0, g = 0}, changed = {}}
  local all = redis.call('HGETALL', key)
  for i = 1, #all, 2 do
    local name, value = all[i], all[i + 1]
    local kind, who = string.sub(name, 1, 1), string.sub(name, 3)
    if name == 'spent' or name == 'at' then c[name] = tonumber(value)
    elseif name == 'last' then c.last = value
    elseif not is_there(who) then c.changed[name] = 0
    else
      c[kind][who] = tonumber(value)
      c.sum[kind] = c.sum[kind] + value
    end
  end
  if c.rate > 0 then
    c.at = math.min(c.at, now)
    local steps = math.max(0, math.floor((now - c.at) / STEP))
    c.spent = math.max(0, c.spent - steps * STEP * c.rate / 60)
    c.at = c.spent > 0 and c.at + steps * STEP or now
    c.spent = math.max(0, c.spent - told[6])
  end
  return c
end

local function give_back(c, places, left)
  local waits = c.w[me] or 0
  local given = math.min(math.max(0, left - waits), c.g[me] or 0)  -- to one that waits no more
  if left > 0 then add(c, 'w', me, -math.min(left, waits)) end
  if given > 0 then add(c, 'g', me, -given) end
  places = math.min(places + given, c.r[me] or 0)
  if places > 0 then add(c, 'r', me, -places) end
end

local to_tell = {}

local function give(c, number)
  while c.most >= 0 and c.sum.r < c.most and c.sum.w > 0 do
    local first, after
    for who, waiting in pairs(c.w) do
      if waiting > 0 then
        if not first or who < first then first = who end
        if who > c.last and (not after or who < after) then after = who end
      end
    end
    local who = after or first
    add(c, 'w', who, -1)
    add(c, 'r', who, 1)
    add(c, 'g', who, 1)
    c.last = who
    c.turned = true
    if who ~= me then to_tell[#to_tell + 1] = string.match(who, '^(.-)%.') .. ' ' .. number end
  end
end

local counters = {}
for number, told in ipairs(asked.counters) do
  local c = read(KEYS[number + 2], told)
  counters[number] = c
  give_back(c, told[4], told[5])
  give(c, number)
end

local function has_room(c, displaces)
  return c.most < 0 or c.sum.r < c.most or c.sum.w < c.room or displaces == 1
end

local function enter(call)
  local met, displaces = {}, {}
  for i = 3, #call, 2 do
    met[#met + 1] = counters[call[i]]
    displaces[#met] = call[i + 1]
  end
  if call[2] == 1 then
    for n, c in ipairs(met) do
      if c.rate > 0 and c.spent + 1 > c.rate then
        local steps = math.ceil((c.spent + 1 - c.rate) * 60 / c.rate / STEP)
        return {3, n, math.ceil((c.at + steps * STEP - now) * 1000)}
      end
      if not has_room(c, displaces[n]) then return {4, n, c.sum.r, c.sum.w} end
    end
    for _, c in ipairs(met) do
      if c.rate > 0 then c.spent = c.spent + 1 end
    end
  end
  for n = call[1], #met do
    local c = met[n]
    if c.most >= 0 then
      if c.sum.r < c.most and c.sum.w == 0 then
        add(c, 'r', me, 1)
      elseif not has_room(c, displaces[n]) then
        return {5, n, c.sum.r, c.sum.w}
      elseif c.sum.w >= c.room and displaces[n] == 1 then
        return {2, n}
      else
        add(c, 'w', me, 1)
        return {1, n}
      end
    end
  end
  return {0, 0}
end

local answers = {}
for i, call in ipairs(asked.calls) do answers[i] = enter(call) end

local states = {}
for number, c in ipairs(counters) do
  local given = c.g[me] or 0
  if given > 0 then add(c, 'g', me, -given) end
  local sets, drops = {}, {}
  for name, value in pairs(c.changed) do
    if value > 0 then
      sets[#sets + 1] = name
      sets[#sets + 1] = value
    else
      drops[#drops + 1] = name
    end
  end
  if c.rate > 0 then
    if c.spent > 0 then
      for _, word in ipairs({'spent', string.format('%.17g', c.spent), 'at', string.format('%.17g', c.at)}) do
        sets[#sets + 1] = word
      end
    else
      drops[#drops + 1] = 'spent'
      drops[#drops + 1] = 'at'
    end
  end
  if c.turned then
    sets[#sets + 1] = 'last'
    sets[#sets + 1] = c.last
  end
  if #drops > 0 then redis.call('HDEL', c.key, unpack(drops)) end
  if #sets > 0 then redis.call('HSET', c.key, unpack(sets)) end
  local lasts = tonumber(ARGV[4])
  if c.rate > 0 and c.sum.r == 0 and c.sum.w == 0 then
    lasts = math.min(lasts, math.ceil((c.spent * 60 / c.rate + STEP) * 1000))
  end
  redis.call('PEXPIRE', c.key, lasts)
  states[number] = {given, string.format('%.17g', c.spent)}
end
return {answers, states, to_tell}
"""
)
"""Give places back, let calls in, and see what was given to this replica. None: the store knows
nothing of its term."""

TELL_ANEW: Final = Script(
    """
-- KEYS: terms, heard, a counter each. ARGV: replica, term, TERMS_KEPT, KEPT, JSON: for each counter
-- [per_minute, calls of the last minute when the store was last heard, those made since, places, calls that wait]
if tonumber(redis.call('HGET', KEYS[1], ARGV[1]) or 0) > tonumber(ARGV[2]) then return false end
local me = ARGV[1] .. '.' .. ARGV[2]
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
local old = now - ARGV[3] / 1000
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', string.format('%.17g', old))) do
  redis.call('HDEL', KEYS[1], id)
  redis.call('ZREM', KEYS[2], id)
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('ZADD', KEYS[2], string.format('%.17g', now), ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
redis.call('PEXPIRE', KEYS[2], ARGV[3])
local spent = {}
for i, told in ipairs(cjson.decode(ARGV[5])) do
  local key, rate = KEYS[i + 2], told[1]
  spent[i] = '0'
  if rate > 0 then
    local had = redis.call('HMGET', key, 'spent', 'at')
    local left = math.max(0, (tonumber(had[1]) or 0) - math.max(0, now - (tonumber(had[2]) or now)) * rate / 60)
    spent[i] = string.format('%.17g', math.max(left, told[2]) + told[3])
    redis.call('HSET', key, 'spent', spent[i], 'at', string.format('%.17g', now))
  end
  if told[4] > 0 then redis.call('HSET', key, 'r:' .. me, told[4]) end
  if told[5] > 0 then redis.call('HSET', key, 'w:' .. me, told[5]) end
  redis.call('PEXPIRE', key, ARGV[4])
end
return spent
"""
)
"""Begin a term with what this replica has: the calls of each counter's last minute, for all of
them."""

END_TERM: Final = Script(
    """
-- KEYS: terms, heard. ARGV: replica, term
if redis.call('HGET', KEYS[1], ARGV[1]) == ARGV[2] then
  redis.call('HDEL', KEYS[1], ARGV[1])
  redis.call('ZREM', KEYS[2], ARGV[1])
end
return 0
"""
)
"""Of a replica that ends: what it has is free at once."""
