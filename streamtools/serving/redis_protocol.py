"""The protocol of the processes that share runs on one Redis server: the keys, and the Lua scripts that change them.

The states of a run:

    BEGIN ──> running ───────────────── END ──> ended
               ^  │ └─ RELEASE ──> handed over ──┐
               │  └─ lease expires ──> lost ─────┤
               └── recovering <──────── CLAIM ───┘ (── END ──> ended)

    running      A process drives the run: it produces the events. It renews the lease.
    lost         The lease has expired. The driving process has crashed, or cannot reach the server.
    handed over  The driving process has ended the lease with RELEASE, because it shuts down.
    recovering   A process has claimed the run. It continues the run, or ends it. For the server the run is running.
    ended        The result of the run is stored, and its keys expire.

Each state is stored in one place:

- The key `running` is a sorted set of the runs that have not ended. The score of a run is the time when its lease ends.
- `token`, a field of the hash `meta` of the run, is `<epoch>:<process id>` of the driving process. The process id is
  empty after RELEASE. The epoch starts at 1 and grows by 1 with each claim, so each claim has a different token.
- `ended`, a field of `meta`, is the result of the run. A run without this field has not ended.

The scripts keep these invariants:

1. BEGIN and CLAIM store the token of the calling process. APPEND, END, RENEW and RELEASE change nothing if the caller
   has a different token. STORE compares the tokens only if the caller passes one.
2. A repeated BEGIN, APPEND, END or STORE changes nothing. So a process that gets no reply sends it again.
3. The seqs of a log have no gap, unless the process reports that events are lost. An event with the seq 7 has the id
   `7-0` in the stream, so a reader can fetch the events after a seq.
4. Each event written after a claim has a seq above `claim_seq`, so it replaces no earlier event. `claim_seq` is a field
   of `meta`. It is the last seq in the log at the time of the last claim.
5. While a process drives a run, its log and meta, and its user's `runs` and `conversations`, do not expire. After END,
   these keys are kept for at least the time `keep`. After RELEASE, the log and the meta are kept for the time `keep`.

An entry of the log has one field. The name of the field is the epoch under which the event was written, and its value
is the event as JSON. A *user* is the `owner` that was passed to `Runs.start`.
"""

from __future__ import annotations

from typing import NamedTuple

from streamtools.serving.event_log import log_key
from streamtools.serving.run import chain_of


class RunKeys(NamedTuple):
    """The Redis keys of one run: a stream of events, a hash, and a key that exists while other processes read the run.

    The fields of `meta` are `token`, `claim_seq`, `crashes`, `conversation`, `note`, `copied`, `stop` (if a user
    has stopped the run), `decision:<call id>`, `vault` (the values of the vault), and `ended`.
    """

    log: str
    meta: str
    readers: str


class OwnerKeys(NamedTuple):
    """The Redis keys of one user.

    `kept` is an empty key. It expires when the last of the ended runs expires. `runs` holds the ids of all runs, sorted
    by their start. `conversations` maps each conversation to its last run. `running` holds the ids of the runs that
    have not ended.
    """

    kept: str
    runs: str
    conversations: str
    running: str


class Keys:
    """The names of all Redis keys of a store."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self.running = f"{prefix}:running"
        """The sorted set of the runs that have not ended. Its members are the `log_key` of each run."""
        self.released = f"{prefix}:released"
        """A stream of the runs that were handed over. All processes read it."""

    def of_process(self, process_id: str) -> str:
        """Return the stream of the messages to a process."""
        return f"{self._prefix}:process:{process_id}"

    def of_run(self, key: str) -> RunKeys:
        """Return the keys of the run with this `log_key`."""
        stem = f"{self._prefix}:{{{key}}}:"
        return RunKeys(stem + "log", stem + "meta", stem + "readers")

    def of_owner(self, owner: str) -> OwnerKeys:
        stem = f"{self._prefix}:{{{log_key(owner, '')}}}:"
        return OwnerKeys(stem + "kept", stem + "runs", stem + "conversations", stem + "running")

    def changed_by(self, owner: str, run_id: str) -> list[str]:
        """Return the keys that the scripts BEGIN, CLAIM and END use for a run.

        The first keys are `running` and the keys of the user. The log and the meta of the run follow, and the log and
        the meta of each run that it continues.
        """
        names = [self.running, *self.of_owner(owner)]
        for each in reversed(chain_of(run_id)):
            names += self.of_run(log_key(owner, each))[:2]
        return names


class RunState(NamedTuple):
    """The state of a run on the server.

    `first` and `last` are the first and the last seq in the log. `epoch` and `process_id` are the parts of the token.
    For an unknown run, they are 0 and `""`. `is_over` is True after the end of the run. A caller requests the state for
    one event. `written_by` is the epoch under which this event was written, or 0 if the log does not contain it.
    """

    first: int
    last: int
    epoch: int
    process_id: str
    claim_seq: int
    is_over: bool
    written_by: int


_NOW = "local t = redis.call('TIME') local now = t[1] * 1000 + math.floor(t[2] / 1000) "

_LAST = """
local function last_of(log)
  local found = redis.call('XREVRANGE', log, '+', '-', 'COUNT', 1)
  return #found == 0 and 0 or tonumber(string.match(found[1][1], '^%d+'))
end
"""

_MAY_WRITE = (
    _LAST
    + """
local function may_write(meta, token, first, last, may_have_gap)
  local stored = redis.call('HMGET', meta, 'token', 'claim_seq')
  return stored[1] == token and first > tonumber(stored[2]) and (first <= last + 1 or may_have_gap == '1')
end
"""
)
"""Checks the invariants 1, 3 and 4 for the next events of a run."""

_LET_EXPIRE = """
local function let_expire(key, id, keep)
  local running, kept, runs, conversations, of_owner = unpack(KEYS)
  redis.call('ZREM', running, key)
  redis.call('SREM', of_owner, id)
  for i = 6, #KEYS do redis.call('PEXPIRE', KEYS[i], keep) end
  local longest = math.max(keep, redis.call('PTTL', kept))
  redis.call('SET', kept, '', 'PX', longest)
  if redis.call('SCARD', of_owner) == 0 then
    redis.call('PEXPIRE', runs, longest)
    redis.call('PEXPIRE', conversations, longest)
  end
end
"""
"""Removes a run from the running runs, and sets the expiry of its keys (invariant 5). `KEYS`: `Keys.changed_by`."""

BEGIN = (
    _NOW
    + """
local running, _, runs, conversations, of_owner, _, meta, _, waiting = unpack(KEYS)
local token, lease, key, id, limit, conversation, last = unpack(ARGV)
if redis.call('EXISTS', meta) == 1 then
  return redis.call('HGET', meta, 'token') == token and 'started' or 'exists'
end
if waiting and redis.call('EXISTS', waiting) == 0 then return 'gone' end
if waiting and redis.call('HEXISTS', waiting, 'decision:') == 1 then return 'gone' end
if last ~= 'any' and last ~= 'id:' .. (redis.call('HGET', conversations, conversation) or '') then return 'busy' end
if tonumber(limit) > 0 and redis.call('SCARD', of_owner) >= tonumber(limit) then return 'full' end
redis.call('HSET', meta, 'token', token, 'claim_seq', 0, 'conversation', conversation, unpack(ARGV, 8))
redis.call('ZADD', running, now + lease, key)
redis.call('ZADD', runs, now, id)
redis.call('SADD', of_owner, id)
redis.call('HSET', meta, 'previous', redis.call('HGET', conversations, conversation) or '')
if conversation ~= '' then redis.call('HSET', conversations, conversation, id) end
for i = 3, #KEYS do redis.call('PERSIST', KEYS[i]) end
return 'started'
"""
)
"""Stores a new run with the token and the lease of the process that drives it.

Returns one of five words. `started`: the run is stored with this token. `exists`: the run exists with another token.
`gone`: the run that the new run continues is not kept any more. `busy`: the conversation has another last run than
expected. `full`: the user has the maximum number of running runs.

`KEYS`: `Keys.changed_by`. `ARGV`: token, lease in milliseconds, key of the run, run id, maximum number of running runs
of the user (0: unlimited), conversation or `''`, the expected last run of the conversation (`id:` and an id, or `any`),
and further field names of meta, each followed by its value.
"""

FORGET = """
local stored = redis.call('HMGET', KEYS[3], 'conversation', 'previous')
if stored[2] and stored[2] ~= '' and redis.call('HGET', KEYS[1], stored[1]) == ARGV[1] then
  redis.call('HSET', KEYS[1], stored[1], stored[2])
end
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('DEL', unpack(KEYS, 3))
"""
"""Deletes a run. If it is the last run of its conversation, the one before it becomes the last one again.

`KEYS`: `conversations` and `runs` of the user, the meta, and all keys of the run. `ARGV`: run id.
"""

APPEND = (
    _MAY_WRITE
    + """
local replies, position = {}, 2
for run = 1, #KEYS, 2 do
  local log, meta, token = KEYS[run], KEYS[run + 1], ARGV[position]
  local first, count = tonumber(ARGV[position + 1]), tonumber(ARGV[position + 3])
  local last, reply = last_of(log), 0
  if may_write(meta, token, first, last, ARGV[position + 2]) then
    local epoch = string.match(token, '^%d+')
    for i = 1, count do
      local seq = first + i - 1
      if seq > last then
        redis.call('XADD', log, 'MAXLEN', '~', ARGV[1], string.format('%d-0', seq), epoch, ARGV[position + 3 + i])
      end
    end
    reply = math.max(last, first + count - 1)
  end
  replies[#replies + 1] = reply
  position = position + 4 + count
end
return replies
"""
)
"""Appends events to several runs. Returns the last `seq` of each run, or 0 if its events were refused.

Events whose seq is already in the log are skipped.

`KEYS`: log and meta of each run. `ARGV`: the maximum length of a log, and for each run: token, first seq, whether a gap
is allowed (1 or 0), number of events, and the events.
"""

END = (
    _MAY_WRITE
    + _LET_EXPIRE
    + """
local log, meta = unpack(KEYS, 6)
local token, keep, key, id, seq, done, may_have_gap, result = unpack(ARGV)
local last = last_of(log)
if not may_write(meta, token, tonumber(seq), last, may_have_gap) then return 0 end
if redis.call('HSETNX', meta, 'ended', result) == 0 then return last end
if tonumber(seq) > last then redis.call('XADD', log, seq .. '-0', string.match(token, '^%d+'), done) end
let_expire(key, id, keep)
return tonumber(seq)
"""
)
"""Appends the last event of a run, stores its result, and lets its keys expire.

Returns the last `seq` of the run, or 0 if the end was refused. The end that was stored first counts.

`KEYS`: `Keys.changed_by`. `ARGV`: token, milliseconds until the keys expire, key of the run, run id, the seq of the
last event, that event, whether a gap is allowed (1 or 0), and the result of the run.
"""

STORE = """
local meta, token, field, value = KEYS[1], unpack(ARGV)
local stored = redis.call('HGET', meta, 'token')
if not stored or token ~= '' and token ~= stored then return {} end
if value ~= '' then redis.call(field == 'vault' and 'HSET' or 'HSETNX', meta, field, value) end
return redis.call('HMGET', meta, unpack(ARGV, 4))
"""
"""Stores a field of a run, if the run does not have it and the value is not `''`. Returns the requested fields.

The field `vault` replaces an earlier value.

If the run is unknown, or a passed token is not the token of the run, the script stores and returns nothing.

`KEYS`: meta of the run. `ARGV`: token or `''`, the name of the field, its value or `''`, and the names of the fields to
return.
"""

RENEW = (
    _NOW
    + _LAST
    + """
local replies = {}
for run = 0, (#KEYS - 1) / 3 - 1 do
  local log, meta, readers = unpack(KEYS, 3 * run + 2, 3 * run + 4)
  local token, key = unpack(ARGV, 2 * run + 2, 2 * run + 3)
  if redis.call('HGET', meta, 'token') == token then
    redis.call('ZADD', KEYS[1], 'XX', now + ARGV[1], key)  -- an ended run is not in the set
    replies[#replies + 1] = {last_of(log), redis.call('EXISTS', readers)}
  else
    replies[#replies + 1] = {-1, 0}
  end
end
return replies
"""
)
"""Renews the leases of several runs. Returns two integers for each run.

The first is the last `seq`, or -1 for a wrong token. The second is 1 if another process reads the run, otherwise 0.

`KEYS`: running, and for each run: log, meta, readers. `ARGV`: lease in milliseconds, and for each run: token, key of
the run.
"""

CLAIM = (
    _NOW
    + _LAST
    + _LET_EXPIRE
    + """
local running, log, meta = KEYS[1], unpack(KEYS, 6)
local process, lease, keep, key, id, current = unpack(ARGV)
local stored = redis.call('HMGET', meta, 'token', 'ended')
if not stored[1] then  -- it was handed over, and not claimed in the time `keep`
  let_expire(key, id, keep)
  return
elseif stored[2] then
  redis.call('ZREM', running, key)
  return
end
local epoch, driver = string.match(stored[1], '(%d+):(.*)')
local expiry, crashed, silence = tonumber(redis.call('ZSCORE', running, key) or now), 0, 0
if current ~= '' then  -- a server that lost its last writes may have an earlier token of this process
  if driver ~= process or tonumber(epoch) > tonumber(current) then return end
  epoch = current
elseif expiry > now then
  return
elseif driver == '' then
  silence = now - expiry
else
  crashed, silence = 1, now - expiry + lease
end
local last = last_of(log)
epoch = epoch + 1
redis.call('HSET', meta, 'token', epoch .. ':' .. process, 'claim_seq', last)
redis.call('ZADD', running, now + lease, key)
for i = 6, #KEYS do redis.call('PERSIST', KEYS[i]) end
return {epoch, last, redis.call('HINCRBY', meta, 'crashes', crashed), silence, crashed}
"""
)
"""Claims a run: either a run that is lost or handed over, or a run that the calling process already drives.

Returns five integers. The first three are the new epoch, the last `seq`, and the number of crashes of the run's
processes. The fourth is the milliseconds since the lease was renewed or the run was handed over. The fifth is 1 if the
lease expired without RELEASE, otherwise 0. The last two are 0 if the calling process already drives the run. Returns
nothing if another process drives the run, or if the run has ended or is unknown.

`KEYS`: `Keys.changed_by`. `ARGV`: process id, lease in milliseconds, milliseconds until keys expire, key of the run,
run id, and the current epoch if the calling process drives the run, otherwise `''`.
"""

RELEASE = (
    _NOW
    + """
local log, meta, running, released = unpack(KEYS)
local token, keep, key = unpack(ARGV)
if redis.call('HGET', meta, 'token') ~= token then return end
redis.call('HSET', meta, 'token', string.match(token, '^%d+:'))
redis.call('ZADD', running, now, key)
redis.call('PEXPIRE', log, keep)
redis.call('PEXPIRE', meta, keep)
redis.call('XADD', released, 'MAXLEN', '~', 1000, '*', 'key', key)
"""
)
"""Hands a run over: ends its lease, and tells all processes that they can claim it.

`KEYS`: log, meta, running, released. `ARGV`: token, milliseconds until the keys expire, key of the run.
"""

EXPIRED = _NOW + "return redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, 100)"
"""Returns the `log_key` of up to 100 runs whose lease has expired. `KEYS`: running."""

STATE = (
    _LAST
    + """
local stored = redis.call('HMGET', KEYS[2], 'token', 'claim_seq', 'ended')
local epoch, process = string.match(stored[1] or '0:', '(%d+):(.*)')
local oldest, last = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 1), last_of(KEYS[1])
local first = #oldest > 0 and tonumber(string.match(oldest[1][1], '^%d+')) or 0
local id = string.format('%d-0', ARGV[1] == '' and last or ARGV[1])
local entry = redis.call('XRANGE', KEYS[1], id, id)
local written_by = #entry > 0 and tonumber(entry[1][2][1]) or 0
return {first, last, tonumber(epoch), process, tonumber(stored[2] or 0), stored[3] and 1 or 0, written_by}
"""
)
"""Returns the fields of `RunState`. `KEYS`: log, meta. `ARGV`: the seq of the requested event, `''` for the last."""

SEND = """
local id = redis.call('XADD', KEYS[1], 'MAXLEN', '~', 10000, '*', 'm', ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return id
"""
"""Sends a message to the stream of a process. Returns the id of the message in the stream.

The stream expires some time after its last message. `KEYS`: the stream. `ARGV`: milliseconds until it expires, and the
message.
"""
