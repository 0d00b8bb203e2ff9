"""Builds the documentation as a site into `site/`, from the Markdown of `docs/` and what it links
to.

uv run --group docs python scripts/site_pages.py [FOLDER]

The pages are written for whoever reads them in the repository, so links go to
`../examples/guard.yaml`. Here they are laid out in a folder of their own, with those files below
it, and each link is written anew for where things are then. Beside the pages stand their texts,
`config.schema.json` (for editors), `openapi.json` and `llms.txt`. A link that leads nowhere ends
the build, and so does a page that would load anything from another host.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parents[1]
BESIDE = (
    "examples",
    "bench/README.md",
    "src/mcpx/clients/programs.toml",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
)
"""What pages link to outside of docs/, and what comes along with it."""
PICTURE = re.compile(
    r'<picture>\s*<source[^>]*srcset="([^"]+)">\s*<img alt="([^"]+)" src="([^"]+)">\s*</picture>'
)
"""The repository's way of a dark picture follows the system; that of the site follows its own
switch."""
LINK = re.compile(r"(?<=\]\()([^)\s]+)(?=\))")
SUMMARY = re.compile(
    r"^(?!\*\*English|\[English|\*Gen|\*Check|```|[#<|!-]|\s*$).+(?:\n.+)*", re.MULTILINE
)
"""The first paragraph of a page."""
LOADS = {"script": "src", "img": "src", "source": "srcset", "iframe": "src", "link": "href"}
"""Elements that a browser fetches by itself; `link` only as a style sheet, an icon or the like."""


def lay_out(folder: Path) -> None:
    """All pages and files as the site has them, with links that fit."""
    shutil.copytree(ROOT / "docs", folder)
    for name in BESIDE:
        source = ROOT / name
        if source.is_dir():
            # Not those with a dot: the site has no place for them, and somebody's .env may be among
            # them.
            shutil.copytree(
                source, folder / name, ignore=shutil.ignore_patterns("__pycache__", ".*")
            )
        elif source.is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, folder / name)
    for below in (folder / "examples").rglob("*"):
        if below.is_dir() and not (below / "README.md").exists():
            files = sorted(path.name for path in below.iterdir() if path.is_file())
            listed = "".join(f"* [{name}]({name})\n" for name in files)
            (below / "README.md").write_text(f"# {below.name}\n\n{listed}", encoding="utf-8")
    for page in folder.rglob("*.md"):
        text = PICTURE.sub(
            r"![\2](\3#only-light)\n![\2](\1#only-dark)", page.read_text(encoding="utf-8")
        )
        page.write_text(LINK.sub(partial(_moved, page, folder), text), encoding="utf-8")


def _moved(page: Path, folder: Path, found: re.Match[str]) -> str:
    """A link of a page of the repository, as it reads in the folder."""
    target = found[0]
    path, mark, anchor = target.partition("#")
    if not path or urlsplit(target).scheme:
        return target
    inside = page.relative_to(folder)
    home = ROOT / "docs" / inside if (ROOT / "docs" / inside).exists() else ROOT / inside
    named = Path(os.path.normpath(home.parent / path))
    if not named.is_relative_to(ROOT):
        return target
    there = named.relative_to(ROOT)
    there = there.relative_to("docs") if there.parts[:1] == ("docs",) else there
    at = folder / there
    if at.is_dir():
        at /= "README.md"
    return os.path.relpath(at, page.parent).replace(os.sep, "/") + mark + anchor


def settings() -> str:
    """The file of the generator, with a page for each client program in its navigation."""
    text = (ROOT / "zensical.toml").read_text(encoding="utf-8")
    pages = [
        path
        for path in sorted((ROOT / "docs" / "clients").glob("*.md"))
        if path.name != "README.md"
    ]
    listed = "".join(f'    "clients/{path.name}",\n' for path in pages)
    first = re.search(r'^    \{"All of them".*\n', text, re.MULTILINE)
    assert first is not None, "zensical.toml has lost its list of client programs"
    return text[: first.end()] + listed + text[first.end() :]


def titles() -> list[tuple[str, list[tuple[str, str]]]]:
    """The sections of the site with their pages, as the navigation has them."""
    nav = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]["nav"]
    sections: list[tuple[str, list[tuple[str, str]]]] = []
    for entry in nav:
        ((section, inside),) = entry.items()
        if isinstance(inside, list):
            pages = [
                next(iter(page.items())) if isinstance(page, dict) else ("", page)
                for page in inside
            ]
            sections.append((section, pages))
    return sections


def llms(folder: Path, made: Mapping[str, str]) -> str:
    """What there is to read, for programs that read: https://llmstxt.org. `made`: pages that are
    not written yet."""
    lines = [
        "# mcpx",
        "",
        "> One MCP gateway for all of your tools: many MCP servers behind one endpoint.",
        "",
    ]
    for section, pages in titles():
        lines += [f"## {section}", ""]
        for title, name in pages:
            text = re.sub(
                r"^```.*?^```",
                "",
                made.get(name) or _text(folder, name),
                flags=re.DOTALL | re.MULTILINE,
            )
            found = SUMMARY.search(text)
            words = (
                re.sub(r"\[([^]]+)\]\([^)]+\)|\*\*", r"\1", found[0].replace("\n", " "))
                if found
                else ""
            )
            sentence = re.split(r"(?<=[.?])(?:\s|$)|(?<=。)|:\s*$", words, maxsplit=1)[0]
            lines.append(f"- [{title}]({name}): {sentence}".rstrip(": "))
        lines.append("")
    return "\n".join(lines)


def _text(folder: Path, name: str) -> str:
    """Of a page in docs/, or of what comes along with it."""
    return (folder / name if (folder / name).exists() else ROOT / name).read_text(encoding="utf-8")


class Page(HTMLParser):
    """What a built page is named at, links to and loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if (
            tag in LOADS
            and LOADS[tag] in given
            and given.get("rel") not in {"canonical", "next", "prev"}
        ):
            self.loads.append(given[LOADS[tag]])


def mistakes(site: Path) -> list[str]:
    """Links of the built pages that lead nowhere, and what they would fetch from other hosts."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    found: list[str] = []
    for path, page in pages.items():
        for target in (*page.links, *page.loads):
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                if target in page.loads and parts.scheme != "data":
                    found.append(f"{path.relative_to(site)} loads {target}")
                continue
            at = Path(os.path.normpath(path.parent / unquote(parts.path))) if parts.path else path
            at = site / parts.path.lstrip("/") if parts.path.startswith("/") else at
            at = at / "index.html" if at.is_dir() else at
            if not at.exists():
                found.append(f"{path.relative_to(site)} links to {target}, which is not there")
            elif (
                parts.fragment
                and at in pages
                and unquote(parts.fragment) not in pages[at].anchors | {"__top"}
            ):
                found.append(
                    f"{path.relative_to(site)} links to {target}: there is no such heading"
                )
    for path in site.rglob("*.css"):
        found += [
            f"{path.relative_to(site)} loads {url}"
            for url in re.findall(r"url\(['\"]?(https?:[^)]+)", path.read_text())
        ]
    return sorted(set(found))


def build(site: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="mcpx-docs-") as made:
        work = Path(made)
        lay_out(work / "docs")
        (work / "zensical.toml").write_text(settings(), encoding="utf-8")
        shutil.copy(
            ROOT / "src" / "mcpx" / "admin" / "openapi.json", work / "docs" / "openapi.json"
        )
        zensical = Path(sys.executable).with_name("zensical")
        done = subprocess.run(
            [zensical, "build", "--strict"],
            cwd=work,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        if done.returncode:
            raise SystemExit(done.stdout.decode(errors="replace"))
        for page in (work / "docs").rglob(
            "*.md"
        ):  # for programs that read: the text of each page beside it
            target = work / "site" / page.relative_to(work / "docs")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(page, target)
        shutil.rmtree(site, ignore_errors=True)
        shutil.copytree(work / "site", site)
    if found := mistakes(site):
        raise SystemExit("\n".join(found))


def main() -> int:
    site = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT / "site"
    build(site)
    sys.stdout.write(f"{site}: {len(list(site.rglob('*.html')))} pages\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
