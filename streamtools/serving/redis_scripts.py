"""The Lua scripts that change the runs on Redis.

A run is a stream of events (`log`), a hash (`meta`) and a key that expires (`lease`). Its owner holds a *token*, in
`meta`, which starts with the epoch: the number of owners until now. So no two owners have the same token. The lease
only shows whether the owner is alive. After it has expired, another process may claim the run, which changes the token.
From then on nothing is written under the old token.

Each script checks before it writes, so a script that is sent again because its answer was lost changes nothing. The id
of an event is `<seq>-0`, so the position of a reader is an id of the stream. The name of its field is the epoch of the
owner that wrote it.
"""

from __future__ import annotations

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
if redis.call('EXISTS', KEYS[1]) == 1 then
  return redis.call('HGET', KEYS[1], 'token') == ARGV[3] and 'begun' or 'there'
end
local limit = tonumber(ARGV[5])
if limit > 0 and redis.call('SCARD', KEYS[6]) >= limit then return 'full' end
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
"""Store a new run with its owner's token and lease. Returns `begun`, `there` or `full`.

`KEYS`: meta, lease, running, the owner's runs, conversations and running runs; `ARGV`: key, run id, token, lease,
limit of running runs of the owner (0: none), conversation or '', and more fields of meta with their values.
"""

APPEND = (
    _LAST
    + """
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
"""Append events of runs. Returns a status and the last `seq` for each run.

`ok`: all of them are there. `fenced`: another process has the run. `gap`: earlier events are missing, and nothing was
written. If events are there already, the same owner wrote them; otherwise the status is `fenced`.

`KEYS`: for each run: log, meta; `ARGV`: length of a log, and for each run: token, first seq, whether a gap is allowed,
number of events, and the events.
"""

END = (
    _LAST
    + """
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
"""Append the last event and the result of a run, which is kept for a while then. Returns the same as `APPEND`.

`KEYS`: log, meta, lease, running, the owner's runs, conversations and running runs; `ARGV`: token, keep, key, run id,
the seq of the last event, that event, whether a gap is allowed, and the result of the run.
"""

RENEW = (
    _NOW
    + _LAST
    + """
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
"""Renew leases. Returns for each run whether the caller owns it, its last `seq`, and whether it is read elsewhere.

`KEYS`: running, and for each run: log, meta, lease, readers; `ARGV`: lease, and for each run: token, key.
"""

CLAIM = (
    _NOW
    + _LAST
    + """
local kept = redis.call('HMGET', KEYS[2], 'token', 'ended')
if not kept[1] or kept[2] then
  redis.call('ZREM', KEYS[4], ARGV[3])
  return {'over', 0, 0}
end
local epoch, owner = string.match(kept[1], '(%d+):(.*)')
epoch = tonumber(epoch)
if ARGV[4] ~= '' then  -- a server that lost its last writes may have an earlier token of this owner
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
"""Take over a run whose lease has expired. Returns `claimed` with the epoch and the last `seq`, `held`, or `over`.

`KEYS`: log, meta, lease, running; `ARGV`: process, lease, key, and the token of an owner that claims its own run or "".
"""

EXPIRED = _NOW + "return redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, 100)"
"""Return the log keys of runs whose lease may have expired."""

STATE = (
    _LAST
    + """
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
"""Return the state of a run: first and last `seq`, token ('' if there is no such run), last `seq` before this owner,
whether it has ended, and the epoch of the owner that wrote the event of that `seq`, 0 if it is not there.

`KEYS`: log, meta; `ARGV`: a seq, or '' for the last.
"""

SEND = """
local id = redis.call('XADD', KEYS[1], 'MAXLEN', '~', 10000, '*', 'm', ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return id
"""
"""Send a message to the stream of a process. The stream expires when it is not used.

`KEYS`: a stream; `ARGV`: milliseconds that it is kept, and a message.
"""
