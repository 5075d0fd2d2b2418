"""The Lua scripts that change the runs on Redis.

    BEGIN ──> running ──────────────── END ──> ended
               │  ^ └── RELEASE ──> handed over
               │  └──── CLAIM ────────┤
               └─ lease expires ──> lost

A running run has a lease, and an ended run the field `ended`. A run that was handed over has the field `released`. Any
other run is lost. With `CLAIM`, a process recovers a run: the run is running again, until its end or the next loss.

Redis keeps three main keys for a run: a stream of events (`log`), a hash (`meta`) and a key that expires (`lease`). One
process at a time drives the run: it produces the events. The field `token` of `meta` names this process: it is
`<epoch>:<process id>`. The epoch starts at 1 and grows by 1 with each claim, so each claim has a different token. The
field `claim_seq` is the last seq in the log at the time of the last claim. The driving process renews the lease. After
the lease has expired, another process may claim the run, which replaces the token. A script that gets the old token
then writes nothing.

If the reply to `BEGIN`, `APPEND` or `END` is lost, the process sends the script again. The repetition changes nothing,
because these scripts check the stored state before they write. An event with the seq 7 has the id `7-0` in the stream,
so a reader can fetch the events after a seq. An entry of the stream has one field. The name of the field is the epoch
under which the event was written, and its value is the event as JSON.

Another key of a run, `readers`, exists while another process reads the run. All runs share the sorted set `running`.
It contains the `log_key` of each run that has not ended, sorted by the time at which the lease expires. A run also
belongs to a *user*: the `owner` that was passed to `Runs.start`. Each user has keys that list the user's runs.
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
  return redis.call('HGET', KEYS[1], 'token') == ARGV[3] and 'started' or 'exists'
end
if KEYS[9] and redis.call('EXISTS', KEYS[9]) == 0 then return 'gone' end
local limit = tonumber(ARGV[5])
if limit > 0 and redis.call('SCARD', KEYS[6]) >= limit then return 'full' end
redis.call('HSET', KEYS[1], 'token', ARGV[3], 'claim_seq', 0, 'conversation', ARGV[6], unpack(ARGV, 7))
redis.call('SET', KEYS[2], ARGV[3], 'PX', ARGV[4])
redis.call('ZADD', KEYS[3], now + tonumber(ARGV[4]), ARGV[1])
redis.call('ZADD', KEYS[4], now, ARGV[2])
redis.call('PERSIST', KEYS[4])
if ARGV[6] ~= '' then redis.call('HSET', KEYS[5], ARGV[6], ARGV[2]) redis.call('PERSIST', KEYS[5]) end
redis.call('SADD', KEYS[6], ARGV[2])
for i = 8, #KEYS do redis.call('PERSIST', KEYS[i]) end
return 'started'
"""
)
"""Stores a new run with the token and the lease of the process that drives it.

Returns `started` if this token now drives the run, `exists` if the run exists with another token, `gone` if the run
that it continues was deleted, and `full` if the user has too many running runs. The runs that it continues are then
kept as long as the run. `KEYS`: meta, lease, running, and the user's runs, conversations, running runs and `kept`, then
log and meta of each run that it continues, the last one first.
`ARGV`: key of the run, run id, token, lease in milliseconds, maximum number of running runs of the user (0:
unlimited), conversation or `''`, and further field names of meta, each followed by its value.
"""

APPEND = (
    _LAST
    + """
local replies, position = {}, 2
for run = 0, #KEYS / 2 - 1 do
  local log, meta = KEYS[2 * run + 1], KEYS[2 * run + 2]
  local token, first, count = ARGV[position], tonumber(ARGV[position + 1]), tonumber(ARGV[position + 3])
  local stored = redis.call('HMGET', meta, 'token', 'claim_seq')
  local last = last_of(log)
  if stored[1] ~= token then
    replies[#replies + 1] = {'fenced', last}
  elseif first > last + 1 and ARGV[position + 2] == '0' then
    replies[#replies + 1] = {'gap', last}
  elseif first <= tonumber(stored[2]) then
    replies[#replies + 1] = {'fenced', last}
  else
    local epoch = string.match(token, '^%d+')
    for i = 1, count do
      local seq = first + i - 1
      if seq > last then
        redis.call('XADD', log, 'MAXLEN', '~', ARGV[1], string.format('%d-0', seq), epoch, ARGV[position + 3 + i])
      end
    end
    replies[#replies + 1] = {'ok', math.max(last, first + count - 1)}
  end
  position = position + 4 + count
end
return replies
"""
)
"""Appends events to several runs. Returns a status and the last `seq` of each run.

`ok`: the log now contains all events that were passed. `fenced`: another process has claimed the run, or the log
already had an event with the first of these seqs when the run was claimed. `gap`: events before the first seq are
missing. With `fenced` and `gap`, nothing is written. Events whose seq is already in the log are skipped.

`KEYS`: log and meta of each run. `ARGV`: the maximum length of a log, and for each run: token, first seq, whether a gap
is allowed (1 or 0), number of events, and the events.
"""

END = (
    _LAST
    + """
local stored = redis.call('HMGET', KEYS[2], 'token', 'claim_seq', 'ended')
local last, seq = last_of(KEYS[1]), tonumber(ARGV[5])
if stored[1] ~= ARGV[1] or seq <= tonumber(stored[2]) then return {'fenced', last} end
if stored[3] then return {'ok', last} end
if seq > last + 1 and ARGV[7] == '0' then return {'gap', last} end
if seq > last then redis.call('XADD', KEYS[1], string.format('%d-0', seq), string.match(ARGV[1], '^%d+'), ARGV[6]) end
redis.call('HSET', KEYS[2], 'ended', ARGV[8])
redis.call('DEL', KEYS[3])
redis.call('ZREM', KEYS[4], ARGV[3])
redis.call('SREM', KEYS[7], ARGV[4])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('PEXPIRE', KEYS[2], ARGV[2])
for i = 9, #KEYS do redis.call('PEXPIRE', KEYS[i], ARGV[2]) end
local kept = math.max(tonumber(ARGV[2]), redis.call('PTTL', KEYS[8]))
redis.call('SET', KEYS[8], '', 'PX', kept)
if redis.call('SCARD', KEYS[7]) == 0 then
  redis.call('PEXPIRE', KEYS[5], kept)
  redis.call('PEXPIRE', KEYS[6], kept)
end
return {'ok', seq}
"""
)
"""Appends the last event of a run, stores its result, and lets its keys expire. Returns a status and a `seq`.

`ok`: the end is stored now, or was stored before. `fenced`: another process has claimed the run, or the log already had
an event with this seq when the run was claimed. `gap`: the events before the last one are missing. With `fenced` and
`gap`, nothing is written.

`KEYS`: log, meta, lease, running, and the user's runs, conversations, running runs and `kept`, then log and meta of
each run that it continues. `ARGV`: token, milliseconds until the keys expire, key of the run, run id, the seq of the
last event, that event, whether a gap is allowed (1 or 0), and the result of the run.
"""

STORE_ONCE = """
if redis.call('EXISTS', KEYS[1]) == 0 then return {} end
if ARGV[2] ~= '' then redis.call('HSETNX', KEYS[1], ARGV[1], ARGV[2]) end
return redis.call('HMGET', KEYS[1], unpack(ARGV, 3))
"""
"""Stores a field of a run, unless the run has this field or is not kept. Returns fields of the run.

`KEYS`: meta of the run. `ARGV`: the name of the field, its value or `''`, and the names of the fields to return.
"""

DECIDE_RUNNING = """
if redis.call('HGET', KEYS[1], 'token') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], ARGV[2], ARGV[3])
return 1
"""
"""Stores a decision about a call of a running run, for a process that takes the run over. Returns 0 for a wrong token.

`KEYS`: meta of the run. `ARGV`: token, the field of the decision, and the decision.
"""

RENEW = (
    _NOW
    + _LAST
    + """
local replies = {}
for run = 0, (#KEYS - 1) / 4 - 1 do
  local log, meta, lease, readers = unpack(KEYS, 4 * run + 2, 4 * run + 5)
  local token, key = ARGV[2 * run + 2], ARGV[2 * run + 3]
  if redis.call('HGET', meta, 'token') == token then
    if redis.call('HEXISTS', meta, 'ended') == 0 then
      redis.call('SET', lease, token, 'PX', ARGV[1])
      redis.call('ZADD', KEYS[1], now + tonumber(ARGV[1]), key)
    end
    replies[#replies + 1] = {1, last_of(log), redis.call('EXISTS', readers)}
  else
    replies[#replies + 1] = {0, 0, 0}
  end
end
return replies
"""
)
"""Renews the leases of several runs. Returns three integers for each run.

The integers are: whether the token is still valid (1 or 0), the last `seq`, and whether another process reads the run
(1 or 0). The lease of a run that has ended is not renewed.

`KEYS`: running, and for each run: log, meta, lease, readers. `ARGV`: lease in milliseconds, and for each run: token,
key of the run.
"""

CLAIM = (
    _NOW
    + _LAST
    + """
local stored = redis.call('HMGET', KEYS[2], 'token', 'ended', 'released')
if not stored[1] or stored[2] then
  redis.call('ZREM', KEYS[4], ARGV[3])
  return {'over', 0, 0, 0, 0, 0}
end
local crashed, silence = 0, 0
local epoch, process = string.match(stored[1], '(%d+):(.*)')
epoch = tonumber(epoch)
if ARGV[4] ~= '' then  -- a server that lost its last writes may have an earlier token of this process
  local current = tonumber(string.match(ARGV[4], '%d+'))
  if process ~= ARGV[1] or epoch > current then return {'driven', 0, 0, 0, 0, 0} end
  epoch = current
elseif redis.call('EXISTS', KEYS[3]) == 1 then
  return {'driven', 0, 0, 0, 0, 0}
else
  crashed = stored[3] and 0 or 1
  silence = now - (stored[3] or (redis.call('ZSCORE', KEYS[4], ARGV[3]) or now) - ARGV[2])
end
epoch = epoch + 1
local last = last_of(KEYS[1])
redis.call('HSET', KEYS[2], 'token', epoch .. ':' .. ARGV[1], 'claim_seq', last)
redis.call('SET', KEYS[3], epoch .. ':' .. ARGV[1], 'PX', ARGV[2])
redis.call('ZADD', KEYS[4], now + tonumber(ARGV[2]), ARGV[3])
redis.call('PERSIST', KEYS[1])
redis.call('PERSIST', KEYS[2])
redis.call('HDEL', KEYS[2], 'released')
return {'claimed', epoch, last, redis.call('HINCRBY', KEYS[2], 'crashes', crashed), silence, crashed}
"""
)
"""Claims a run: either a run whose lease has expired, or a run that the calling process already drives.

Returns a status and five integers. `claimed` comes with the new epoch, the last `seq`, and the number of processes of
the run that have crashed. If the claim takes the run over, the last two integers are the milliseconds since the lease
was renewed or the run was handed over, and 1 after a crash. Otherwise these are 0. All integers are 0 with `driven`,
if another process drives the run, and with `over`, if the run has ended or is unknown.

`KEYS`: log, meta, lease, running. `ARGV`: process id, lease in milliseconds, key of the run, and the current token if
the calling process drives the run, otherwise `''`.
"""

RELEASE = (
    _NOW
    + """
if redis.call('HGET', KEYS[2], 'token') ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[3])
redis.call('HSET', KEYS[2], 'released', now)
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('PEXPIRE', KEYS[2], ARGV[2])
redis.call('ZADD', KEYS[4], 0, ARGV[3])
redis.call('XADD', KEYS[5], 'MAXLEN', '~', 1000, '*', 'key', ARGV[3])
return 1
"""
)
"""Hands a run over: ends its lease, and tells all processes that they can claim it. Returns 0 for a wrong token.

`KEYS`: log, meta, lease, running, and the stream of released runs. `ARGV`: token, milliseconds until the keys expire,
key of the run.
"""

EXPIRED = _NOW + "return redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, 100)"
"""Returns the `log_key` of up to 100 runs whose lease may have expired. `KEYS`: running."""

STATE = (
    _LAST
    + """
local stored = redis.call('HMGET', KEYS[2], 'token', 'claim_seq', 'ended')
if not stored[1] then return {0, 0, '', 0, 0, 0} end
local oldest = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 1)
local first = #oldest > 0 and tonumber(string.match(oldest[1][1], '^%d+')) or 0
local last = last_of(KEYS[1])
local id = string.format('%d-0', ARGV[1] == '' and last or tonumber(ARGV[1]))
local entry = redis.call('XRANGE', KEYS[1], id, id)
return {first, last, stored[1], tonumber(stored[2]), stored[3] and 1 or 0, #entry > 0 and tonumber(entry[1][2][1]) or 0}
"""
)
"""Returns the state of a run as six values:

1. The first `seq` in the log.
2. The last `seq` in the log.
3. The token, or `''` if the run is unknown.
4. The last `seq` at the time of the last claim.
5. Whether the run has ended (1 or 0).
6. The epoch under which the requested event was written, or 0 if the log does not contain the event.

`KEYS`: log, meta. `ARGV`: the seq of the requested event, or `''` for the last event.
"""

SEND = """
local id = redis.call('XADD', KEYS[1], 'MAXLEN', '~', 10000, '*', 'm', ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return id
"""
"""Sends a message to the stream of a process, and returns the id of the message in the stream.

The stream expires some time after its last message. `KEYS`: the stream. `ARGV`: milliseconds until it expires, and the
message.
"""
