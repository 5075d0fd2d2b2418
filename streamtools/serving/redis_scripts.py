"""What Redis does at once: the keys of a run, and the scripts that change them.

A run is a stream of events (`log`), a hash (`meta`) and a key that expires (`lease`). Whoever drives it holds a
*token*, which counts the owners that it has had and so is unlike any that was before; it stands in `meta`, and
outlives the lease. The lease tells only whether the owner still comes back: once it has expired, another may claim the
run, which changes the token, and from then on nothing is written under the old one.

Each script looks first and writes then, so that one that was sent twice, because its answer was lost, changes nothing.
An event is appended under the id `<seq>-0`: the position of a reader is an id of the stream. The name of its field is
the number of the owner who has written it, by which a reader knows it again.
"""

from __future__ import annotations

from typing import NamedTuple


class Keys(NamedTuple):
    """The keys of one run. They share a hash tag, and so a slot."""

    log: str
    meta: str
    lease: str
    readers: str


def run_keys(prefix: str, key: str) -> Keys:
    stem = f"{prefix}:{{{key}}}:"
    return Keys(stem + "log", stem + "meta", stem + "lease", stem + "readers")


_NOW = "local t = redis.call('TIME') local now = t[1] * 1000 + math.floor(t[2] / 1000) "

_LAST = """
local function last_of(log)
  local found = redis.call('XREVRANGE', log, '+', '-', 'COUNT', 1)
  if #found == 0 then return 0 end
  return tonumber(string.match(found[1][1], '^%d+'))
end
"""

BEGIN = (
    _NOW
    + """
-- KEYS meta, lease, running, the owner's runs, conversations and runs that go on; ARGV key, run id, token, lease,
-- bound of the owner's (0: none), conversation or '', and the rest of meta, in pairs
if redis.call('EXISTS', KEYS[1]) == 1 then
  return redis.call('HGET', KEYS[1], 'token') == ARGV[3] and 'begun' or 'there'
end
local most = tonumber(ARGV[5])
if most > 0 and redis.call('SCARD', KEYS[6]) >= most then return 'full' end
redis.call('HSET', KEYS[1], 'token', ARGV[3], 'since', 0, 'conversation', ARGV[6], unpack(ARGV, 7))
redis.call('SET', KEYS[2], ARGV[3], 'PX', ARGV[4])
redis.call('ZADD', KEYS[3], now + tonumber(ARGV[4]), ARGV[1])
redis.call('ZADD', KEYS[4], now, ARGV[2])
redis.call('PERSIST', KEYS[4])
if ARGV[6] ~= '' then redis.call('HSET', KEYS[5], ARGV[6], ARGV[2]) redis.call('PERSIST', KEYS[5]) end
redis.call('SADD', KEYS[6], ARGV[2])
return 'begun'
"""
)
"""Write down a new run, with its owner's token and lease. Returns `begun`, `there` or `full`."""

APPEND = (
    _LAST
    + """
-- KEYS for each run: log, meta; ARGV length of a log, and for each run: token, first seq, whether a gap may be left,
-- how many events follow, and these
local answers, place = {}, 2
for run = 0, #KEYS / 2 - 1 do
  local log, meta = KEYS[2 * run + 1], KEYS[2 * run + 2]
  local token, first, count = ARGV[place], tonumber(ARGV[place + 1]), tonumber(ARGV[place + 3])
  local kept = redis.call('HMGET', meta, 'token', 'since')
  local last = last_of(log)
  if kept[1] ~= token then
    answers[#answers + 1] = {'fenced', last}
  elseif first > last + 1 and ARGV[place + 2] == '0' then
    answers[#answers + 1] = {'gap', last}
  elseif first <= tonumber(kept[2]) then
    answers[#answers + 1] = {'fenced', last}
  else
    local by = string.match(token, '^%d+')
    for i = 1, count do
      local seq = first + i - 1
      if seq > last then
        redis.call('XADD', log, 'MAXLEN', '~', ARGV[1], string.format('%d-0', seq), by, ARGV[place + 3 + i])
      end
    end
    answers[#answers + 1] = {'ok', math.max(last, first + count - 1)}
  end
  place = place + 4 + count
end
return answers
"""
)
"""Append events of runs, each behind the last of its log. For each run it returns a word and the last `seq` there:

`ok`: they are there, all of them; `fenced`: the run is another's by now; `gap`: events before these are missing, and
nothing was written. Events that are there already were written by the same owner, or else the answer is `fenced`.
"""

END = (
    _LAST
    + """
-- KEYS log, meta, lease, running, the owner's runs, conversations and runs that go on; ARGV token, keep, key, run id,
-- the seq of the last event, that event, whether a gap may be left, and what the run has come to
local kept = redis.call('HMGET', KEYS[2], 'token', 'since', 'ended')
local last, seq = last_of(KEYS[1]), tonumber(ARGV[5])
if kept[1] ~= ARGV[1] or seq <= tonumber(kept[2]) then return {'fenced', last} end
if kept[3] then return {'ok', last} end
if seq > last + 1 and ARGV[7] == '0' then return {'gap', last} end
if seq > last then redis.call('XADD', KEYS[1], string.format('%d-0', seq), string.match(ARGV[1], '^%d+'), ARGV[6]) end
redis.call('HSET', KEYS[2], 'ended', ARGV[8])
redis.call('DEL', KEYS[3])
redis.call('ZREM', KEYS[4], ARGV[3])
redis.call('SREM', KEYS[7], ARGV[4])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('PEXPIRE', KEYS[2], ARGV[2])
if redis.call('SCARD', KEYS[7]) == 0 then
  redis.call('PEXPIRE', KEYS[5], ARGV[2])
  redis.call('PEXPIRE', KEYS[6], ARGV[2])
end
return {'ok', seq}
"""
)
"""Append the last event with what the run has come to, from when on it is kept for a while. Returns as `APPEND`."""

RENEW = (
    _NOW
    + _LAST
    + """
-- KEYS running, and for each run: log, meta, lease, readers; ARGV lease, and for each run: token, key
local answers = {}
for run = 0, (#KEYS - 1) / 4 - 1 do
  local log, meta, lease, readers = unpack(KEYS, 4 * run + 2, 4 * run + 5)
  local token, key = ARGV[2 * run + 2], ARGV[2 * run + 3]
  if redis.call('HGET', meta, 'token') == token then
    if redis.call('HEXISTS', meta, 'ended') == 0 then
      redis.call('SET', lease, token, 'PX', ARGV[1])
      redis.call('ZADD', KEYS[1], now + tonumber(ARGV[1]), key)
    end
    answers[#answers + 1] = {1, last_of(log), redis.call('EXISTS', readers)}
  else
    answers[#answers + 1] = {0, 0, 0}
  end
end
return answers
"""
)
"""Renew leases. For each run it returns whether it is still the caller's, its last `seq`, and whether it is read."""

CLAIM = (
    _NOW
    + _LAST
    + """
-- KEYS log, meta, lease, running; ARGV who claims, lease, key, and of an owner that claims its own run the token, or ''
local kept = redis.call('HMGET', KEYS[2], 'token', 'ended')
if not kept[1] or kept[2] then
  redis.call('ZREM', KEYS[4], ARGV[3])
  return {'over', 0, 0}
end
local epoch, owner = string.match(kept[1], '(%d+):(.*)')
epoch = tonumber(epoch)
if ARGV[4] ~= '' then  -- a server that has lost its last writes may have an earlier token of this owner
  local mine = tonumber(string.match(ARGV[4], '%d+'))
  if owner ~= ARGV[1] or epoch > mine then return {'held', 0, 0} end
  epoch = mine
elseif redis.call('EXISTS', KEYS[3]) == 1 then
  return {'held', 0, 0}
end
epoch = epoch + 1
local last = last_of(KEYS[1])
redis.call('HSET', KEYS[2], 'token', epoch .. ':' .. ARGV[1], 'since', last)
redis.call('SET', KEYS[3], epoch .. ':' .. ARGV[1], 'PX', ARGV[2])
redis.call('ZADD', KEYS[4], now + tonumber(ARGV[2]), ARGV[3])
return {'claimed', epoch, last}
"""
)
"""Take a run over whose lease has expired. Returns `claimed` with the epoch and the last `seq`, `held`, or `over`."""

EXPIRED = _NOW + "return redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, 100)"
"""Return the keys of runs whose lease may have expired."""

LOOK = (
    _LAST
    + """
-- KEYS log, meta; ARGV a seq, or '' for the last
local kept = redis.call('HMGET', KEYS[2], 'token', 'since', 'ended')
if not kept[1] then return {0, 0, '', 0, 0, 0} end
local head = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 1)
local first = #head > 0 and tonumber(string.match(head[1][1], '^%d+')) or 0
local last = last_of(KEYS[1])
local at = string.format('%d-0', ARGV[1] == '' and last or tonumber(ARGV[1]))
local entry = redis.call('XRANGE', KEYS[1], at, at)
return {first, last, kept[1], tonumber(kept[2]), kept[3] and 1 or 0, #entry > 0 and tonumber(entry[1][2][1]) or 0}
"""
)
"""Return of a run its first and last `seq`, its token ('': there is no run), the last `seq` before this owner, whether
it has ended, and which owner has written the event of that `seq`, 0 where there is none."""

SEND = """
-- KEYS a stream; ARGV how long it is kept, and a message
local id = redis.call('XADD', KEYS[1], 'MAXLEN', '~', 10000, '*', 'm', ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return id
"""
"""Send a message to the stream of a process, and keep that stream no longer than it is used."""
