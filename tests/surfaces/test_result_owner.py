"""SUR-11: a stored result is bound to the caller, also where a client has no session."""

from dataclasses import replace

from mcpx.model.call import Caller
from mcpx.surfaces.large.kept import ResultStore, pack
from mcpx.surfaces.results import owner_of

ANN = Caller(
    principal="ann", profile="office", client={"name": "editor", "version": "1"}, modern=True
)


def test_a_stored_result_is_unknown_to_another_principal_profile_or_client() -> None:
    """SUR-11: two users can run the same version of the same client."""
    store = ResultStore()
    handle = store.keep(owner_of(ANN), pack(b"a result of ann"))
    for other in (
        replace(ANN, principal="bob"),
        replace(ANN, profile="home"),
        replace(ANN, client={"name": "editor", "version": "2"}),
    ):
        assert store.get(owner_of(other), handle) is None
    kept = store.get(owner_of(replace(ANN)), handle)
    assert kept is not None and kept.text() == b"a result of ann"
