"""Implements a call ledger in Redis or Valkey. Processes on several machines can share it.

Each operation runs a Lua script. While a script runs, no other client can change data. If a `RedisStore` on the same
server drives the run of a call, the script that records the call also checks that this process still drives the run.
Times are stored with 17 digits, because Lua would round them by default.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any, Self

from streamtools.calls import ToolCall
from streamtools.errors import AsyncOnly, CallRefused, ClosedError, check_methods
from streamtools.json_values import write_json
from streamtools.tools import ledger
from streamtools.tools.redis_client import Cipher, RedisClient, Unencrypted, Word, check_url, open_client
from streamtools.tools.results import ToolOutcome

_START = """
-- KEYS: [1] calls by start, [2] ended calls by expiry, [3] epochs by run, [4] runs by the time of their epoch,
-- [5] a call, [6] calls of its run, [7] hash with the token of the driving process. ARGV: now, keep, other arguments
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
local function close_call(call, member)  -- record that the call has ended, and when its entry expires
  redis.call('HSETNX', call, 'ended', digits(now))
  local kept = redis.call('HMGET', call, 'ended', 'until')
  redis.call('ZADD', KEYS[2], digits(math.max(kept[1] + keep, tonumber(kept[2]))), member)
end
local function raise_epoch(scope, epoch, token)  -- record the epoch of a run; returns false if a later one is known
  for _, old in ipairs(redis.call('ZRANGEBYSCORE', KEYS[4], '-inf', digits(now - keep), 'LIMIT', 0, 100)) do
    redis.call('HDEL', KEYS[3], old)
    redis.call('ZREM', KEYS[4], old)
  end
  local known = tonumber(redis.call('HGET', KEYS[3], scope) or 0)
  local driver = token and redis.call('HGET', token, 'token')
  if epoch < known or driver and epoch < tonumber(string.match(driver, '%d+')) then return false end
  if epoch > known then
    redis.call('HSET', KEYS[3], scope, epoch)
    redis.call('ZADD', KEYS[4], digits(now), scope)
  end
  return true
end
"""
_BEGIN = """
-- ARGV scope, member, epoch, holder, lease, until, slack, owner, call, key prefixes of calls and of runs
local scope, member, holder, expires = ARGV[3], ARGV[4], ARGV[6], tonumber(ARGV[8])
if not raise_epoch(scope, tonumber(ARGV[5]), KEYS[7]) then return 'fenced' end
local fields = redis.call('HGETALL', KEYS[5])
if #fields > 0 then
  local kept = redis.call('HMGET', KEYS[5], 'holder', 'ended')
  if holder ~= '' and kept[1] == holder and not kept[2] then return false end  -- repeated: the first answer was lost
  return {digits(now), {{member, fields}}}
end
expires = expires > 0 and math.max(now, math.min(expires, now + keep) + tonumber(ARGV[9])) or now
local held = holder == '' and 0 or now + tonumber(ARGV[7])
redis.call('HSET', KEYS[5], 'owner', ARGV[10], 'call', ARGV[11], 'holder', holder, 'held', digits(held),
  'until', digits(expires), 'began', digits(now))
redis.call('ZADD', KEYS[1], digits(now), member)
redis.call('ZADD', KEYS[6], digits(now), member)
for _, old in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', digits(now), 'LIMIT', 0, 100)) do
  drop(old, ARGV[12] .. old, ARGV[13] .. string.match(old, '^%Z*'))
end
return false
"""
_FENCE = "return raise_epoch(ARGV[3], tonumber(ARGV[4])) and 1 or 'fenced'"
_HOLD = """
-- ARGV member, holder, seconds
local kept = redis.call('HMGET', KEYS[5], 'holder', 'ended')
if kept[1] ~= ARGV[4] or kept[2] then return end
if tonumber(ARGV[5]) <= 0 then return close_call(KEYS[5], ARGV[3]) end
redis.call('HSET', KEYS[5], 'held', digits(now + ARGV[5]))
"""
_FINISH = """
-- ARGV member, outcome, whether the call's outcome must be unknown, owner
local kept = redis.call('HMGET', KEYS[5], 'owner', 'held', 'ended', 'outcome')
local is_held, is_mine = not kept[3] and tonumber(kept[2] or 0) > now, ARGV[6] == '' or ARGV[6] == kept[1]
if not kept[1] or kept[4] or ARGV[5] == '1' and (is_held or not is_mine) then return 0 end
redis.call('HSET', KEYS[5], 'outcome', ARGV[4])
close_call(KEYS[5], ARGV[3])
return 1
"""
_LIST = """
-- KEYS[5] the calls of one run, or absent; ARGV start of the previous page's last call, its name, limit, owner, prefix
local index, found = KEYS[5] or KEYS[1], {}
local first = redis.call('ZRANK', index, ARGV[4])
first = first and first + 1 or ARGV[4] == '' and 0 or redis.call('ZCOUNT', index, '-inf', '(' .. ARGV[3])
local page, limit, last = redis.call('ZRANGE', index, first, first + 999, 'WITHSCORES'), tonumber(ARGV[5]), 0
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


class RedisLedger(ledger.OwnerViews, AsyncOnly):
    """A ledger on one server of Redis (6.2 or later) or Valkey. Needs the extra `redis`.

    Open it with `async with`, on asyncio. `url_or_client` is a URL or a client of redis-py. All keys start with
    `prefix`. If the ledger and a `RedisStore` use the same server, a process whose run was taken over by another
    process cannot start calls. A failover of the server may lose the last recorded calls. Use `PostgresLedger` for
    calls that must never run twice.

    `lease` is the time in seconds after which a process that does not renew its lease is considered dead. `keep` is the
    time in seconds that an entry is kept after its call has ended. The memory of the server limits the number of
    entries. The server must not evict entries: use the policy `noeviction`. Times come from the clock of the server.
    `cipher` encrypts the calls and their outcomes, like `vault_cipher` of a `RedisStore`. All processes need the same
    one.

    Raises the errors of the client, and ClosedError if the ledger is not open. Opening it raises ValueError if the
    server is a cluster.
    """

    def __init__(
        self,
        url_or_client: object,
        *,
        prefix: str = "streamtools",
        lease: float = 15.0,
        keep: float = 2_592_000,
        cipher: Cipher | None = None,
    ) -> None:
        check_url(url_or_client)
        check_methods("cipher", cipher, "a cipher, such as Fernet(key)", "encrypt", optional=True)
        super().__init__(lease=lease, keep=keep)
        self._url_or_client = url_or_client
        self._prefix = f"{prefix}:ledger:"
        self._call_prefix, self._run_prefix = self._prefix + "call:", self._prefix + "run:"
        self._cipher = cipher or Unencrypted()
        self._clients: list[RedisClient] = []  # one client while open, else none; shared with the views of owners
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(open_client(self._url_or_client))
            if b"cluster_enabled:1" in await client.execute("INFO", "cluster"):
                raise ValueError("this is a Redis Cluster: give a single server")
            self._clients.append(client)
            stack.callback(self._clients.clear)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *raised: Any) -> None:
        await self._stack.__aexit__(*raised)

    async def begin(self, scope: str, call: ToolCall, claim: ledger.Claim = ledger.NO_LEASE) -> ledger.Entry | None:
        """Record that the call starts, or return its entry; see `CallLedger`.

        Raises `CallRefused` if the epoch of the claim is too old, or if another process has taken over the run.
        """
        member, keys = self._keys_of(scope, call)
        if (driven := ledger.RECOVERABLE_RUN.get()) is not None and driven.run_id == scope:
            keys = [*keys, driven.meta_key]
        terms = (claim.holder, repr(self.lease), repr(min(claim.until, 1e15)), repr(ledger.CLOCK_SLACK), self._owner)
        written = self._cipher.encrypt(write_json(call)), self._call_prefix, self._run_prefix
        answer = await self._run(_BEGIN, keys, scope, member, claim.epoch, *terms, *written)
        if answer == b"fenced":
            raise CallRefused(ledger.TAKEN_OVER)
        return None if answer is None else _read_entries(self._cipher, *answer)[0]

    async def hold(self, scope: str, call: ToolCall, holder: str, seconds: float) -> None:
        """Renew the lease of a call for `seconds`. With 0, abandon the call."""
        member, keys = self._keys_of(scope, call)
        await self._run(_HOLD, keys, member, holder, repr(seconds))

    async def finish(self, scope: str, outcome: ToolOutcome) -> None:
        """Record the outcome of a call."""
        member, keys = self._keys_of(scope, outcome.call)
        await self._run(_FINISH, keys, member, self._cipher.encrypt(write_json(outcome)), 0, "")

    async def fence(self, scope: str, epoch: int) -> None:
        """Refuse calls of the run if their claim has an older epoch; see `CallLedger`.

        Raises `CallRefused` if the run already has a later epoch.
        """
        if await self._run(_FENCE, [], scope, epoch) == b"fenced":
            raise CallRefused(ledger.TAKEN_OVER)

    async def entries(
        self, scope: str | None = None, *, unknown: bool = False, after: ledger.Entry | None = None, limit: int = 100
    ) -> list[ledger.Entry]:
        """Return entries, oldest first; see `CallLedger`."""
        keys = [] if scope is None else [self._run_prefix + scope]
        began, last = "0", ""
        if after is not None:
            began, last = repr(after.began), f"{after.scope}\0{ledger.call_key(after.call)}"
        found: list[ledger.Entry] = []
        while len(found) < limit:
            answer = await self._run(_LIST, keys, began, last, limit, self._owner, self._call_prefix)
            found += [entry for entry in _read_entries(self._cipher, *answer[:2]) if not unknown or entry.is_unknown]
            last, began = answer[2:]
            if not last:
                break
        return found[:limit]

    async def resolve(self, scope: str, outcome: ToolOutcome) -> bool:
        """Record the outcome of a call whose outcome was unknown. Returns False if no such call is recorded."""
        member, keys = self._keys_of(scope, outcome.call)
        return bool(await self._run(_FINISH, keys, member, self._cipher.encrypt(write_json(outcome)), 1, self._owner))

    def _keys_of(self, scope: str, call: ToolCall) -> tuple[str, list[str]]:
        """Return the name of a call in the sorted sets, and a list of the keys of the call and of its run."""
        member = f"{scope}\0{ledger.call_key(call)}"
        return member, [self._call_prefix + member, self._run_prefix + scope]

    async def _run(self, script: str, keys: list[str], *args: Word) -> Any:
        if not self._clients:
            raise ClosedError("Enter the ledger before you use it: `async with RedisLedger(url) as ledger:`.")
        names = [*(self._prefix + name for name in ("calls", "ends", "epochs", "ages")), *keys]
        now = "" if self._clock is None else repr(self._clock())
        return await self._clients[0].execute("EVAL", _START + script, len(names), *names, now, repr(self.keep), *args)


def _read_entries(cipher: Cipher, now: bytes, rows: list[Any]) -> list[ledger.Entry]:
    entries = []
    for member, fields in rows:
        scope, _, key = member.decode().partition("\0")
        kept = dict(zip(fields[::2], fields[1::2], strict=True))
        kept |= {name: cipher.decrypt(kept[name]) for name in (b"call", b"outcome") if name in kept}
        held, until, began = (float(kept[name]) for name in (b"held", b"until", b"began"))
        ended = float(kept[b"ended"]) if b"ended" in kept else None
        owner, holder = kept[b"owner"].decode(), kept[b"holder"]
        row = (scope, key, owner, kept[b"call"], holder, held, until, began, ended, kept.get(b"outcome"))
        entries.append(ledger.read_entry(row, float(now)))
    return entries
