"""`base.caching`: caches stay bounded, and lazy values are built once."""

from hypothesis import given
from hypothesis import strategies as st

from kit.clock import Clock
from mcpx.base.caching import Lazy, Lru, TtlCache

ACTIONS = st.lists(
    st.tuples(st.sampled_from(["store", "use", "read", "remove"]), st.integers(0, 6))
)


@given(st.integers(1, 4), ACTIONS)
def test_an_lru_keeps_what_a_list_in_order_of_use_keeps(
    limit: int, actions: list[tuple[str, int]]
) -> None:
    cache: Lru[int, str] = Lru(limit)
    model: list[int] = []
    for action, key in actions:
        if action == "store":
            cache[key] = str(key)
        elif action == "use":
            assert cache.use(key) == (str(key) if key in model else None)
        elif action == "read":
            assert (cache.get(key) is not None) == (key in model)
        else:
            cache.pop(key, None)
        if action in ("store", "use", "remove") and (key in model or action == "store"):
            model = [each for each in model if each != key]
            if action != "remove":
                model.append(key)
        model = model[-limit:]
        assert list(cache) == model


def test_a_ttl_cache_forgets_after_its_time_and_beyond_its_size() -> None:
    clock = Clock()
    cache: TtlCache[str, int] = TtlCache(2, 10, clock)
    cache.put("a", 1)
    cache.put("b", 2, seconds=20)
    clock.advance(9)
    assert (cache.get("a"), cache.get("b")) == (1, 2)
    clock.advance(1)
    assert (cache.get("a"), cache.get("b")) == (None, 2)
    assert len(cache) == 1
    cache.put("c", 3)
    cache.put("d", 4)
    assert (cache.get("b"), cache.pop("c"), cache.get("c"), cache.get("d")) == (None, 3, None, 4)
    cache.clear()
    assert cache.get("d") is None


def test_a_lazy_value_is_built_once_and_can_be_looked_at() -> None:
    built: list[int] = []

    def build() -> list[int]:
        built.append(1)
        return built

    value = Lazy(build)
    assert value.built is None
    assert value() is value() is built
    assert value.built is built
    assert built == [1]
