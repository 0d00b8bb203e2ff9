"""What only replicas of one store can make and read."""

from mcpx.replicas.seals import KEYS, Seals, key_from


def test_an_id_tells_its_owner_to_whoever_has_the_key() -> None:
    one = Seals()
    other = Seals(one.key)
    id = one.mint("abc123")
    assert other.owner(id) == "abc123"
    assert one.mint("abc123") != id


def test_an_id_that_was_changed_or_made_up_is_nobodys() -> None:
    seals = Seals()
    id = seals.mint("abc123")
    _, _, seal = id.rpartition(".")
    forged = (
        id[:-1] + ("A" if id[-1] != "A" else "B"),
        "abc124" + id[6:],
        "x",
        "",
        f"abc123.{seal}",
        "é.x.y",
        "..",
    )
    assert [seals.owner(text) for text in forged] == [None] * len(forged)
    assert Seals().owner(id) is None


def test_what_was_made_with_the_key_before_stays_good() -> None:
    """A store that was emptied may come back with another key."""
    seals = Seals()
    id, sealed, signed = seals.mint("a"), seals.encrypt(b"text", b"here"), seals.sign(b"p", b"data")
    seals.take_up(Seals().key)
    assert seals.owner(id) == "a"
    assert seals.decrypt(sealed, b"here") == b"text"
    assert seals.signed(b"p", b"data", signed)
    for _ in range(KEYS):
        seals.take_up(Seals().key)
    assert seals.owner(id) is None


def test_what_is_sealed_is_taken_for_nothing_else() -> None:
    seals = Seals()
    sealed = seals.encrypt(b"text", b"here")
    assert b"text" not in sealed
    assert seals.decrypt(sealed, b"there") is None
    assert seals.decrypt(sealed[:-1], b"here") is None
    assert seals.decrypt(b"", b"here") is None
    assert not seals.signed(b"other", b"data", seals.sign(b"p", b"data"))
    assert not seals.signed(b"", b"pdata", seals.sign(b"p", b"data"))


def test_the_same_words_make_the_same_key() -> None:
    assert key_from({}) is None
    assert (
        key_from({"MCPX_KEY": "a phrase"})
        == key_from({"MCPX_KEY": "a phrase"})
        != key_from({"MCPX_KEY": "another"})
    )
    assert (
        Seals(key_from({"MCPX_KEY": "a phrase"})).fingerprint
        == Seals(key_from({"MCPX_KEY": "a phrase"})).fingerprint
    )
