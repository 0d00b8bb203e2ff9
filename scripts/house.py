"""Draws docs/pictures/house-light.svg and house-dark.svg: the rooms a call passes, for
docs/design.md.

uv run python scripts/house.py
"""

from pathlib import Path

PICTURES = Path(__file__).resolve().parents[1] / "docs" / "pictures"
WIDTH, HEIGHT = 800, 498
_NAMES = ("paper", "ink", "soft", "line", "room", "middle", "edge", "beside", "brown")
_LIGHT = "#ffffff #1d2433 #5b6475 #c9d0dc #f4f6fa #e8f0fe #1f5fd0 #fbf7ec #8a5d0c"
_DARK = "#12161f #e8ecf4 #a4afc2 #39435a #1a202c #18263f #7aa8ff #2a2415 #e0b866"
THEMES = {
    name: dict(zip(_NAMES, found.split(), strict=True))
    for name, found in (("light", _LIGHT), ("dark", _DARK))
}
ROOMS = (
    ("FRONT", "speaks MCP to clients, in both eras; who comes in", "stdio, HTTP, SSE, WebSocket"),
    ("SURFACE", "what a client is shown of the catalog", "direct, inspect, describe, search, auto"),
    ("VIEW", "what this caller may see of it", "profiles, approved definitions"),
    ("RELAY", "the one way of every call", "rules, a person's yes, limits, kept answers"),
    ("UPSTREAM", "one server: its life, links, and leases", "starts, recovers, sleeps"),
)
CLIENTS = ("Claude", "Cursor", "VS Code", "Codex", "a program")
SERVERS = (
    ("npx …, uvx …", "stdio"),
    ("https://…/mcp", "HTTP"),
    ("https://…/sse", "SSE"),
    ("wss://…", "WebSocket"),
    ("an API", "command"),
    ("a script", "command"),
)
BESIDE = (
    ("config", "one file, read while it runs"),
    ("telemetry", "metrics, trail, traces"),
    ("admin", "web UI and REST API"),
)


def text(
    x: float,
    y: float,
    words: str,
    size: float,
    colour: str,
    *,
    weight: int = 400,
    anchor: str = "middle",
) -> str:
    style = f'font-size="{size}" font-weight="{weight}" fill="{colour}" text-anchor="{anchor}"'
    return f'<text x="{x}" y="{y}" {style}>{words}</text>'


def box(
    x: float, y: float, width: float, height: float, fill: str, stroke: str, radius: int = 9
) -> str:
    return (
        f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="{radius}" fill="{fill}" '
        f'stroke="{stroke}"/>'
    )


def arrow(x1: float, y1: float, x2: float, y2: float, colour: str) -> str:
    return (
        f'<path d="M{x1} {y1} L{x2} {y2}" stroke="{colour}" stroke-width="1.4" fill="none" '
        'marker-end="url(#tip)"/>'
    )


def picture(c: dict[str, str]) -> str:
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        'font-family="system-ui, -apple-system, Segoe UI, Noto Sans, sans-serif">',
        "<title>The house: clients, the rooms a call passes, servers</title>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto">'
        f'<path d="M0 0 L8 4 L0 8 z" fill="{c["soft"]}"/></marker></defs>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="{c["paper"]}" rx="12"/>',
        box(150, 14, 486, 392, c["middle"], c["edge"], 14),
        text(168, 40, "mcpx", 18, c["edge"], weight=700, anchor="start"),
        text(618, 40, "one value in, one JSON object back", 12, c["soft"], anchor="end"),
    ]
    for at, (name, what, more) in enumerate(ROOMS):
        y = 54 + at * 63
        parts += [box(168, y, 450, 50, c["paper"], c["line"])]
        parts += [text(182, y + 31, name, 14, c["edge"], weight=700, anchor="start")]
        parts += [
            text(290, y + 22, what, 13, c["ink"], anchor="start"),
            text(290, y + 40, more, 12, c["soft"], anchor="start"),
        ]
        if at:
            parts.append(arrow(230, y - 13, 230, y - 1, c["soft"]))
    parts.append(
        text(
            393,
            390,
            "both edges stand on WIRE: JSON-RPC, the rules of each revision",
            12,
            c["soft"],
        )
    )
    for at, name in enumerate(CLIENTS):
        y = 54 + at * 44
        parts += [box(14, y, 96, 32, c["room"], c["line"], 8), text(62, y + 21, name, 13, c["ink"])]
        parts.append(arrow(110, y + 16, 166, 79, c["soft"]))
    for at, (name, kind) in enumerate(SERVERS):
        y = 120 + at * 47
        parts += [
            box(676, y, 112, 38, c["room"], c["line"], 8),
            text(732, y + 17, name, 13, c["ink"]),
        ]
        parts += [text(732, y + 31, kind, 11, c["soft"]), arrow(618, 331, 674, y + 19, c["soft"])]
    for at, (name, what) in enumerate(BESIDE):
        x = 150 + at * 166
        parts += [
            box(x, 428, 154, 56, c["beside"], c["line"]),
            text(x + 77, 450, name, 13, c["brown"], weight=700),
        ]
        parts.append(text(x + 77, 470, what, 11, c["soft"]))
        parts.append(
            f'<path d="M{x + 77} 428 L{x + 77} 407" stroke="{c["soft"]}" stroke-dasharray="3 3"/>'
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


def main() -> None:
    for theme, colours in THEMES.items():
        (PICTURES / f"house-{theme}.svg").write_text(picture(colours), encoding="utf-8")


if __name__ == "__main__":
    main()
