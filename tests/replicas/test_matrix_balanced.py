"""SCA-1: the era matrix of one gateway (`behaviour.test_matrix`), behind a load balancer that sends
each request to the next of three replicas.

Processes of stdio servers exist for each replica: what one of them tells to all is told to the
clients of its replica. What is tried here is what does not depend on that, in the cells that go
ways of their own between replicas.
"""

from collections.abc import Callable

import pytest

from behaviour import test_matrix as matrix_tests
from behaviour.clients import Kind
from behaviour.conftest import CHILDREN, Matrix
from behaviour.test_matrix import Cell

pytestmark = matrix_tests.pytestmark

TRIED: dict[str, Callable[[Cell], bool]] = {
    "each HTTP request goes to the next replica, whatever the eras": lambda cell: (
        cell.front == "http" and cell.upstream == "http"
    ),
    "the message of an SSE client is forwarded to the replica that has its stream": lambda cell: (
        cell.front == "sse"
        and cell.client.startswith("raw")
        and cell.upstream == "http"
        and cell.era == "older"
    ),
    "one replica serves a WebSocket from beginning to end": lambda cell: (
        cell.front == "websocket" and cell.client == "raw-modern" and cell.upstream == "http"
    ),
}
"""The cells of the matrix that are tried again behind the load balancer, by reason. The connection
to the servers does not depend on the load balancer, so one transport is enough."""
CELLS = [cell for cell in matrix_tests.CELLS if any(tried(cell) for tried in TRIED.values())]

ELSEWHERE = matrix_tests.an_update_reaches_who_subscribed_in_the_form_of_its_subscription
"""A modern client listens at one replica, and somebody touches the resource through another: in a
process of that."""


@pytest.fixture
def shared_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    def elsewhere(cell: Cell) -> bool:
        return cell.client.endswith("modern") and cell.server in CHILDREN

    monkeypatch.setitem(
        matrix_tests.LEFT_OUT, ELSEWHERE, {"processes exist for each replica": elsewhere}
    )


@pytest.mark.usefixtures("shared_servers")
@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_a_client_finds_the_behaviour_of_one_gateway(
    cell: Cell, matrix: Matrix, subtests: pytest.Subtests
) -> None:
    """SCA-1, PRO-1, PRO-2, PRO-3, PRO-4, PRO-5, PRO-6."""
    matrix_tests.test_a_client_finds_the_same_behaviour(cell, matrix, subtests)


@pytest.mark.parametrize("server", sorted({cell.server for cell in CELLS}))
def test_a_change_of_the_tools_reaches_every_client(
    server: str, matrix: Matrix, subtests: pytest.Subtests, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SCA-1, PRO-4, SUR-1: whichever replicas they are at."""
    monkeypatch.setattr(matrix_tests, "CELLS", CELLS)
    matrix_tests.test_a_change_of_the_tools_reaches_every_client(server, matrix, subtests)


@pytest.mark.parametrize("kind", ("raw-modern", "raw-older"))
@pytest.mark.parametrize("era", matrix_tests.ERAS)
def test_unknown_fields_survive_both_ways(
    kind: Kind, era: matrix_tests.Era, matrix: Matrix
) -> None:
    """SCA-1, PRO-6: between replicas too."""
    matrix_tests.test_unknown_fields_survive_both_ways(Cell(kind, "http", "stdio", era), matrix)


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
def test_each_older_revision_is_answered_in_its_own_words(version: str, matrix: Matrix) -> None:
    """SCA-1, SRC-2."""
    matrix_tests.test_each_older_revision_is_answered_in_its_own_words(version, matrix)


def test_two_hundred_calls_at_once_get_their_own_answers(matrix: Matrix) -> None:
    """SCA-1, PRO-1, PRO-6."""
    matrix_tests.test_two_hundred_calls_at_once_get_their_own_answers(matrix)


def test_each_question_reaches_the_client_that_caused_it_and_nobody_else(
    matrix: Matrix, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SCA-1, PRO-5, PRO-3."""
    monkeypatch.setattr(
        matrix_tests, "ASK_ROUNDS", 2
    )  # each replica has processes of its own for those who are asked
    matrix_tests.test_each_question_reaches_the_client_that_caused_it_and_nobody_else(matrix)
