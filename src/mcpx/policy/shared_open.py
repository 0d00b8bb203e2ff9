"""Questions that are open over all replicas: what may come back, once and for a while, by who is to
bring it.

The same as `seals` keeps in one process, in the store: whatever replica a client comes back to, it
is taken once, by one script. The bounds are the same, and count over all replicas. A store that was
emptied has no open questions, and nobody writes them anew, since nobody knows which of them have
come back: those people are asked again.
"""

from typing import Final

from mcpx.policy.seals import MOST, MOST_EACH, OPEN_FOR
from mcpx.replicas.replicas import Replicas
from mcpx.replicas.store import Script, StoreDown

WHOSE: Final = 22
"""Characters that stand for a caller: of a signature, so that the store does not tell who it is."""

_COMMON: Final = """
local all, crowd, whose, what = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local function own(who) return all .. ':' .. who end
local function drop(who, which)
  redis.call('ZREM', own(who), which)
  if redis.call('ZREM', all, who .. which) == 1 and tonumber(redis.call('ZINCRBY', crowd, -1, who)) <= 0 then
    redis.call('ZREM', crowd, who)
  end
end
local function split(member) return string.sub(member, 1, #whose), string.sub(member, #whose + 1) end
for _, member in ipairs(redis.call('ZRANGEBYSCORE', all, '-inf', now, 'LIMIT', 0, 100)) do drop(split(member)) end
"""
_ADD: Final = Script(
    _COMMON
    + """
local lasts, most, each = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
drop(whose, what)
while redis.call('ZCARD', own(whose)) >= each do drop(whose, redis.call('ZRANGE', own(whose), 0, 0)[1]) end
while redis.call('ZCARD', all) >= most do
  local who = redis.call('ZREVRANGE', crowd, 0, 0)[1]
  local oldest = who and redis.call('ZRANGE', own(who), 0, 0)[1]
  if oldest then drop(who, oldest) else drop(split(redis.call('ZRANGE', all, 0, 0)[1])) end
end
redis.call('ZADD', all, now + 1000 * lasts, whose .. what)
redis.call('ZADD', own(whose), now + 1000 * lasts, what)
redis.call('ZINCRBY', crowd, 1, whose)
for _, key in ipairs({all, crowd, own(whose)}) do redis.call('PEXPIRE', key, 2 * lasts) end
return 1
"""
)
_TAKE: Final = Script(
    _COMMON
    + """
local ends = redis.call('ZSCORE', all, whose .. what)
drop(whose, what)
return ends and tonumber(ends) > now and 1 or 0
"""
)


class SharedOpen:
    def __init__(self, replicas: Replicas, name: str) -> None:
        self._replicas = replicas
        self._keys = [replicas.store.key(name), replicas.store.key(name, "crowd")]

    async def add(self, whose: str, what: str) -> None:
        """Raises `StoreDown`."""
        await self._run(_ADD, whose, what, int(OPEN_FOR * 1000), MOST, MOST_EACH)

    async def take(self, whose: str, what: str) -> bool:
        """Whether it was there, and not too old; it is there no more. Raises `StoreDown`, and
        whether it is still there is not known then."""
        return bool(await self._run(_TAKE, whose, what))

    async def _run(self, script: Script, whose: str, *words: str | int) -> int:
        replicas = self._replicas
        if not replicas.joined.is_set():
            raise StoreDown(replicas.store.problem)
        who = replicas.seals.sign(b"caller", whose.encode(errors="surrogatepass"))[:WHOSE]
        return int(await replicas.store.run(script, self._keys, [who, *words]))
