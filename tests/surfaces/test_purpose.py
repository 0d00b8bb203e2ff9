"""What a server is for, in a few words (SUR-10)."""

import random
import time

import pytest

from mcpx.model.call import Json
from mcpx.model.offer import Offer
from mcpx.model.slices import at_once
from mcpx.surfaces.texts.purpose import LONGEST, fitting, purpose, purposes
from mcpx.surfaces.view import Service


def server(name: str, description: str = "", instructions: str = "") -> Service:
    return Service(name, description, instructions, "connected")


def tools(server: str, **described: str) -> list[Offer]:
    definitions: list[Json] = [
        {"name": name, "description": text} for name, text in described.items()
    ]
    return [Offer("tools", server, each["name"], each["name"], each) for each in definitions]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "A Model Context Protocol (MCP) server that provides weather alerts for Europe.",
            "weather alerts for Europe",
        ),
        ("An MCP server for reading and sending Outlook mail", "reading and sending Outlook mail"),
        ("This server enables LLMs to query Postgres databases.", "query Postgres databases"),
        (
            "The official Stripe MCP Server: create invoices, refund payments.",
            "Stripe: create invoices, refund payments",
        ),
        (
            "A powerful, comprehensive TypeScript-based MCP server which allows AI assistants to "
            "book train tickets",
            "book train tickets",
        ),
        (
            "# Title\n\n[![ci](https://a/b.svg)](https://a) ![x](y.png)\n\nTrack **parcels** of "
            "[DHL](https://d) 📦🚚.",
            "Track parcels of DHL",
        ),
        (
            "<p align='center'><img src='logo.png'/></p>\nTranscribes podcasts to text",
            "Transcribes podcasts to text",
        ),
        (
            "Manage Jira tickets and sprints through a simple API interface.",
            "Manage Jira tickets and sprints",
        ),
        ("一个基于 MCP (Model Context Protocol) 的火车票查询工具。", "火车票查询工具"),
        ("这是一个 MCP 服务器，用于查询股票行情。", "查询股票行情"),
        ("郵便番号から住所を検索するMCPサーバーです。", "郵便番号から住所を検索"),
    ],
)
def test_what_every_server_says_of_itself_is_left_out(text: str, said: str) -> None:
    assert purpose(server("acme", description=text), []) == said


def test_a_name_is_not_said_twice() -> None:
    assert purpose(
        server("parcel-radar", "Parcel Radar is an MCP server that tracks shipments by carrier."),
        [],
    ) == ("tracks shipments by carrier")


def test_instructions_are_rules_until_one_says_what_it_is_for() -> None:
    rules = (
        "# Rules\n\nAlways log in first. Never share the token.\n\nUse this server to plan "
        "bicycle tours in the Alps."
    )
    assert purpose(server("tours", instructions=rules), []) == "plan bicycle tours in the Alps"


def test_a_server_that_says_nothing_is_told_by_its_tools() -> None:
    memory = tools(
        "graph",
        create_entities="Create multiple new entities in the knowledge graph",
        delete_entities="Delete entities from the knowledge graph",
        add_observations="Add observations to entities in the knowledge graph",
        read_graph="Read the entire knowledge graph",
        search_nodes="Search for nodes in the knowledge graph",
    )
    assert purpose(server("graph"), memory) == "knowledge graph, entities, observations, nodes"
    hub = tools(
        "hub",
        create_pull_request="",
        merge_pull_request="",
        listIssues="",
        getIssue="",
        fork_repository="",
    )
    assert purpose(server("hub"), hub) == "pull request, issues, merge, fork, repository"
    assert (
        purpose(server("clock"), tools("clock", get_current_time="", convert_time=""))
        == "current time, convert time"
    )
    assert purpose(server("web"), tools("web", fetch="Fetches a page from the internet.")) == (
        "Fetches a page from the internet"
    )


def test_a_description_that_says_little_is_joined_by_the_tools() -> None:
    offers = tools("money", get_rates="", convert_currency="", list_banks="", get_history="")
    assert (
        purpose(server("money", "MCP server for money"), offers)
        == "rates, currency, banks, history"
    )


def test_rivals_that_say_the_same_are_told_apart() -> None:
    about = "A Model Context Protocol server that provides weather data for any place on earth."
    services = [server("weather-a", about), server("weather-b", about)]
    offers = {
        "weather-a": tools(
            "weather-a", get_forecast="", get_alerts="", list_stations="", get_radar=""
        ),
        "weather-b": tools(
            "weather-b", get_forecast="", get_tides="", list_stations="", get_pollen=""
        ),
    }
    found = at_once(purposes(services, offers))
    assert found["weather-a"].startswith("alerts, radar; ")
    assert found["weather-b"].startswith("tides, pollen; ")


@pytest.mark.parametrize("tokens", range(3, 20))
def test_a_phrase_is_cut_at_the_end_of_a_word(tokens: int) -> None:
    said = (
        "creating, reading and manipulating presentations (with charts, tables) for offices; "
        "slide, layout"
    )
    cut = fitting(said, "ppt", tokens)
    assert cut and set(cut.replace(",", "").split()) <= set(
        said.replace(",", "").replace(";", "").split()
    )
    assert not cut.endswith((" and", " for", ",", ";", "(with"))


def test_chinese_is_cut_at_the_end_of_a_clause() -> None:
    assert (
        fitting("查询全国火车票余票，支持中转换乘，还可以查询车站编码", "x", 12)
        == "查询全国火车票余票"
    )


def test_any_text_gives_a_bounded_line_soon() -> None:
    chance = random.Random(3)
    pieces = [
        "[",
        "](",
        ")",
        "![",
        "<a ",
        ">",
        "*",
        "_",
        "`",
        "# ",
        "\n",
        " ",
        "MCP ",
        "server ",
        "that ",
        "。",
        "一个",
        "(",
        "based on ",
        "http://",
        ", ",
    ]
    for _ in range(2_000):
        text = "".join(chance.choices(pieces, k=60))
        for service in (server("x", description=text), server("x", instructions=text)):
            said = purpose(service, tools("x", a=text, b=text, c="", d=""))
            assert len(said) <= LONGEST and said.isprintable()
            for tokens in (3, 8, 20):
                fitting(said, "x", tokens)
    began = time.perf_counter()
    for piece in pieces:
        purpose(server("x", description=piece * 500_000), [])
    assert time.perf_counter() - began < 5
