"""A ledger in Redis or Valkey, which the processes of many machines share, as durable as that server is.

Each step is one script, so nothing comes between the look and the entry. A call of a run that a `RedisStore` drives is
begun in the same script that looks whether the run is still its owner's. Times are written with all their digits,
which the numbers of a script would lose when they are made text.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any, Self

from streamtools.calls import ToolCall
from streamtools.errors import CallRefused, ClosedError
from streamtools.tools.at_most_once import DRIVEN_RUN
from streamtools.tools.ledger import (
    CLOCK_SLACK,
    NO_LEASE,
    Claim,
    Entry,
    OwnerViews,
    call_key,
    encode,
    read_entry,
    taken_over,
)
from streamtools.tools.redis_client import RedisClient, Word, open_client
from streamtools.tools.results import ToolOutcome

_START = """
-- KEYS calls by their beginning, ended calls by when they go, epochs, epochs by their age, then the call and those of
-- its run, and where the token of the run's owner stands; ARGV now, keep, and what each script says
local now, keep = tonumber(ARGV[1]), tonumber(ARGV[2])
if not now then
  local time = redis.call('TIME')
  now = time[1] + time[2] / 1000000
end
local function digits(number) return string.format('%.17g', number) end
local function drop(member, call, run)
  redis.call('DEL', call)
  redis.call('ZREM', run, member)
  redis.call('ZREM', KEYS[1], member)
  redis.call('ZREM', KEYS[2], member)
end
local function leave(call, member)  -- it has ended, and goes when it is old and nobody can name it any more
  redis.call('HSETNX', call, 'ended', digits(now))
  local kept = redis.call('HMGET', call, 'ended', 'until')
  redis.call('ZADD', KEYS[2], digits(math.max(kept[1] + keep, tonumber(kept[2]))), member)
end
local function raise(scope, epoch, token)
  for _, old in ipairs(redis.call('ZRANGEBYSCORE', KEYS[4], '-inf', digits(now - keep), 'LIMIT', 0, 100)) do
    redis.call('HDEL', KEYS[3], old)
    redis.call('ZREM', KEYS[4], old)
  end
  local known = tonumber(redis.call('HGET', KEYS[3], scope) or 0)
  local owner = token and redis.call('HGET', token, 'token')
  if epoch < known or owner and epoch < tonumber(string.match(owner, '%d+')) then return false end
  if epoch > known then
    redis.call('HSET', KEYS[3], scope, epoch)
    redis.call('ZADD', KEYS[4], digits(now), scope)
  end
  return true
end
"""
_BEGIN = """
-- ARGV scope, member, epoch, holder, lease, until, slack, owner, call, what the keys of calls and of runs begin with
local scope, member, holder, til = ARGV[3], ARGV[4], ARGV[6], tonumber(ARGV[8])
if not raise(scope, tonumber(ARGV[5]), KEYS[7]) then return 'fenced' end
local there = redis.call('HGETALL', KEYS[5])
if #there > 0 then
  local kept = redis.call('HMGET', KEYS[5], 'holder', 'ended')
  if holder ~= '' and kept[1] == holder and not kept[2] then return false end
  return {digits(now), {{member, there}}}
end
til = til > 0 and math.max(now, math.min(til, now + keep) + tonumber(ARGV[9])) or now
local held = holder == '' and 0 or now + tonumber(ARGV[7])
redis.call('HSET', KEYS[5], 'owner', ARGV[10], 'call', ARGV[11], 'holder', holder, 'held', digits(held),
  'until', digits(til), 'began', digits(now))
redis.call('ZADD', KEYS[1], digits(now), member)
redis.call('ZADD', KEYS[6], digits(now), member)
for _, old in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', digits(now), 'LIMIT', 0, 100)) do
  drop(old, ARGV[12] .. old, ARGV[13] .. string.match(old, '^%Z*'))
end
return false
"""
_FENCE = "return raise(ARGV[3], tonumber(ARGV[4])) and 1 or 'fenced'"
_HOLD = """
-- ARGV member, holder, seconds
local kept = redis.call('HMGET', KEYS[5], 'holder', 'ended')
if kept[1] ~= ARGV[4] or kept[2] then return end
if tonumber(ARGV[5]) <= 0 then return leave(KEYS[5], ARGV[3]) end
redis.call('HSET', KEYS[5], 'held', digits(now + ARGV[5]))
"""
_WITHDRAW = """
-- ARGV member, holder
if redis.call('HGET', KEYS[5], 'holder') == ARGV[4] then drop(ARGV[3], KEYS[5], KEYS[6]) end
"""
_FINISH = """
-- ARGV member, outcome, whether its end has to be unknown, owner
local kept = redis.call('HMGET', KEYS[5], 'owner', 'held', 'ended', 'outcome')
local is_held, is_mine = not kept[3] and tonumber(kept[2] or 0) > now, ARGV[6] == '' or ARGV[6] == kept[1]
if not kept[1] or kept[4] or ARGV[5] == '1' and (is_held or not is_mine) then return 0 end
redis.call('HSET', KEYS[5], 'outcome', ARGV[4])
leave(KEYS[5], ARGV[3])
return 1
"""
_LIST = """
-- KEYS[5] the calls of the run, or none; ARGV when the last began, the last, limit, owner, what calls begin with
local index, found = KEYS[5] or KEYS[1], {}
local at = redis.call('ZRANK', index, ARGV[4])
at = at and at + 1 or ARGV[4] == '' and 0 or redis.call('ZCOUNT', index, '-inf', '(' .. ARGV[3])
local page, limit, last = redis.call('ZRANGE', index, at, at + 999, 'WITHSCORES'), tonumber(ARGV[5]), 0
for i = 1, #page, 2 do
  local call = ARGV[7] .. page[i]
  local owner = redis.call('HGET', call, 'owner')
  if owner and (ARGV[6] == '' or ARGV[6] == owner) then
    found[#found + 1] = {page[i], redis.call('HGETALL', call)}
  end
  last = i
  if #found == limit then break end
end
return {digits(now), found, page[last] or '', page[last + 1] or ''}
"""
_PRUNE = """
-- ARGV where to begin, age, owner, what the keys of calls and of runs begin with
local page, gone = redis.call('ZRANGE', KEYS[1], ARGV[3], ARGV[3] + 99), 0
for _, member in ipairs(page) do
  local call = ARGV[6] .. member
  local kept = redis.call('HMGET', call, 'owner', 'held', 'until', 'began', 'ended')
  if kept[1] and (ARGV[5] == '' or ARGV[5] == kept[1]) and (kept[5] or tonumber(kept[2]) <= now)
      and tonumber(kept[3]) <= now and tonumber(kept[5] or kept[4]) <= now - ARGV[4] then
    drop(member, call, ARGV[7] .. string.match(member, '^%Z*'))
    gone = gone + 1
  end
end
return {#page, gone}
"""


class RedisLedger(OwnerViews):
    """A ledger on one server of Redis (6.2 or later) or Valkey. Needs the extra `redis`; enter it to open it.

    `url_or_client` and `prefix` are what they are for `RedisStore`; on the server of that store, no call begins in a
    process that has lost its run. With `durable`, which takes Redis or Valkey from 7.2 on with a file (AOF), a tool
    begins only when its call is on the disk of the server and of so many replicas, which may take `patience` seconds;
    it is refused otherwise. A failover may still lose it: for what must not happen twice, there is `PostgresLedger`.

    A process that dies is noticed when its `lease` is over, in seconds. Entries that have ended are kept for `keep`
    seconds; what bounds their number is the memory of the server, which must not evict them (`noeviction`). The time is
    that of the server, unless a `clock` tells seconds since 1970, to all processes the same. Raises what the client
    raises, ClosedError where it has not been entered, and ValueError, when it is entered, for a cluster and for a
    server that cannot be `durable`.
    """

    def __init__(
        self,
        url_or_client: object,
        *,
        prefix: str = "streamtools",
        lease: float = 15.0,
        keep: float = 2_592_000,
        durable: int | None = None,
        patience: float = 5.0,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.lease = lease
        self.keep = keep
        self._given = url_or_client
        self._prefix = f"{prefix}:ledger:"
        self._durable = durable
        self._patience = patience
        self._clock = clock
        self._clients: list[RedisClient] = []  # one, where it is open; for all owners
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(open_client(self._given))
            if b"cluster_enabled:1" in await client.execute("INFO", "cluster"):
                raise ValueError("this is a Redis Cluster: give a single server")
            if self._durable is not None:
                if (await client.execute("COMMAND", "INFO", "WAITAOF"))[0] is None:
                    raise ValueError("durable= takes WAITAOF, which Redis and Valkey have from 7.2 on")
                await client.execute("WAITAOF", 1, self._durable, 1)  # it complains where there is no file
            self._clients.append(client)
            stack.callback(self._clients.clear)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *raised: Any) -> None:
        await self._stack.__aexit__(*raised)

    async def begin(self, scope: str, call: ToolCall, claim: Claim = NO_LEASE) -> Entry | None:
        """Write down that the call begins, or return what is there of it. Raises `CallRefused` for an older epoch, and
        where it is not durable in time.
        """
        member, keys = self._place(scope, call)
        driven = DRIVEN_RUN.get()
        if driven is not None and driven.run_id == scope:
            keys = [*keys, driven.place]
        terms = (claim.holder, repr(self.lease), repr(min(claim.until, 1e15)), repr(CLOCK_SLACK), self._owner)
        stems = (self._prefix + "call:", self._prefix + "run:")
        answer = await self._run(_BEGIN, keys, scope, member, claim.epoch, *terms, encode(call), *stems, durable=True)
        if answer == b"fenced":
            raise taken_over()
        if answer == b"forgettable":
            await self._run(_WITHDRAW, keys, member, claim.holder)
            raise CallRefused(f"its call is not on the disks of the server and {self._durable} replicas in time")
        return None if answer is None else _read(*answer)[0]

    async def hold(self, scope: str, call: ToolCall, holder: str, seconds: float) -> None:
        """Renew the lease of a call for so many seconds; with 0, leave it."""
        member, keys = self._place(scope, call)
        await self._run(_HOLD, keys, member, holder, repr(seconds))

    async def finish(self, scope: str, outcome: ToolOutcome) -> None:
        """Write down how a call has ended."""
        member, keys = self._place(scope, outcome.call)
        await self._run(_FINISH, keys, member, encode(outcome), 0, "")

    async def fence(self, scope: str, epoch: int) -> None:
        """Refuse each call of the run that begins under an older epoch. Raises `CallRefused` as `begin` does."""
        answer = await self._run(_FENCE, [], scope, epoch, durable=True)
        if answer != 1:
            raise taken_over() if answer == b"fenced" else CallRefused("that it was taken over is not on enough disks")

    async def entries(
        self, scope: str | None = None, *, unknown: bool = False, after: Entry | None = None, limit: int = 100
    ) -> list[Entry]:
        """Return entries, the oldest first; see `CallLedger`."""
        keys = [] if scope is None else [f"{self._prefix}run:{scope}"]
        began, last = ("0", "") if after is None else (repr(after.began), f"{after.scope}\0{call_key(after.call)}")
        found: list[Entry] = []
        while len(found) < limit:
            answer = await self._run(_LIST, keys, began, last, limit, self._owner, self._prefix + "call:")
            found += [each for each in _read(*answer[:2]) if not unknown or each.is_unknown]
            last, began = answer[2:]
            if not last:
                break
        return found[:limit]

    async def resolve(self, scope: str, outcome: ToolOutcome) -> bool:
        """Write down how a call has ended whose end was unknown, and return whether there is one."""
        member, keys = self._place(scope, outcome.call)
        return bool(await self._run(_FINISH, keys, member, encode(outcome), 1, self._owner))

    async def prune(self, age: float | None = None) -> int:
        """Forget what ended, or began, so many seconds ago, and nobody runs or can name; return how many."""
        at, count, before = 0, 0, repr(self.keep if age is None else age)
        while True:
            stems = (self._prefix + "call:", self._prefix + "run:")
            looked: int
            gone: int
            looked, gone = await self._run(_PRUNE, [], at, before, self._owner, *stems)
            at, count = at + looked - gone, count + gone
            if not looked:
                return count

    def _place(self, scope: str, call: ToolCall) -> tuple[str, list[str]]:
        """Return what a call is called in a list, and its keys."""
        member = f"{scope}\0{call_key(call)}"
        return member, [f"{self._prefix}call:{member}", f"{self._prefix}run:{scope}"]

    async def _run(self, script: str, keys: list[str], *args: Word, durable: bool = False) -> Any:
        """Return what a script says; `forgettable` where nothing is there, or 1, and that is not `durable` in time."""
        if not self._clients:
            raise ClosedError(
                "a ledger in Redis is entered before it is used: `async with RedisLedger(url) as ledger:`"
            )
        names = [*(self._prefix + each for each in ("calls", "ends", "epochs", "ages")), *keys]
        now = "" if self._clock is None else repr(self._clock())
        command = ("EVAL", _START + script, len(names), *names, now, repr(self.keep), *args)
        if not durable or self._durable is None:
            return await self._clients[0].execute(*command)
        async with self._clients[0].connection() as connection:
            answer = await connection.execute(*command)
            if answer in (None, 1):  # it counts for what this connection has written
                synced = await connection.execute("WAITAOF", 1, self._durable, math.ceil(self._patience * 1000))
                if synced[0] < 1 or synced[1] < self._durable:
                    return b"forgettable"
            return answer


def _read(now: bytes, rows: list[Any]) -> list[Entry]:
    entries = []
    for member, fields in rows:
        scope, _, key = member.decode().partition("\0")
        kept = dict(zip(fields[::2], fields[1::2], strict=True))
        held, until, began = (float(kept[name]) for name in (b"held", b"until", b"began"))
        ended = float(kept[b"ended"]) if b"ended" in kept else None
        owner, holder = kept[b"owner"].decode(), kept[b"holder"]
        row = (scope, key, owner, kept[b"call"], holder, held, until, began, ended, kept.get(b"outcome"))
        entries.append(read_entry(row, float(now)))
    return entries
