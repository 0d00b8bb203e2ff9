"""Packs the bundle that clients install with a double click: `python packaging/mcpb/pack.py WHEEL
FILE.mcpb`.

A zip of the manifest, the icon, the wheel, and a project that asks for that wheel and for the
versions of everything else that the tests ran with. Made of the same files it is the same bytes:
names are sorted, times and modes are fixed. What it does not hold: Python and the other packages,
which uv fetches for the system it is opened on.
"""

import json
import re
import sys
import tomllib
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TAKEN = ("manifest.json", "server.py", "icon.png")
WHEEL = re.compile(r"mcpx_gateway-(?P<version>[^-]+)-py3-none-any\.whl")
MOMENT = (1980, 1, 1, 0, 0, 0)
"""The first that a zip can tell; the only one in all of them."""
MODE = 0o100644 << 16


def main() -> int:
    if len(sys.argv) != 3:
        raise SystemExit("say: python packaging/mcpb/pack.py WHEEL FILE.mcpb")
    wheel, out = Path(sys.argv[1]), Path(sys.argv[2])
    manifest = json.loads((HERE / "manifest.json").read_text(encoding="utf-8"))
    named = WHEEL.fullmatch(wheel.name)
    if named is None or named["version"] != manifest["version"]:
        told = (
            f"{wheel.name} is not the wheel of version {manifest['version']}, which "
            "manifest.json tells of"
        )
        raise SystemExit(f"{told}: run python packaging/versions.py, then build it again")
    files = {name: (HERE / name).read_bytes() for name in TAKEN}
    files["LICENSE"] = (ROOT / "LICENSE").read_bytes()
    files["pyproject.toml"] = project(wheel.name, manifest["version"]).encode()
    files[wheel.name] = wheel.read_bytes()
    with ZipFile(out, "w") as archive:
        for name in sorted(
            files, key=lambda name: (name != "manifest.json", name)
        ):  # it is looked for first
            entry = ZipInfo(name, MOMENT)
            entry.compress_type, entry.external_attr, entry.create_system = ZIP_DEFLATED, MODE, 3
            archive.writestr(entry, files[name])
    return 0


def project(wheel: str, version: str) -> str:
    """The bundle's pyproject.toml: nothing of its own but the wheel beside it."""
    ours = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    pins = "".join(
        f"  {json.dumps(pin)},\n" for pin in ours["tool"]["uv"]["constraint-dependencies"]
    )
    return f"""[project]
name = "mcpx-bundle"
version = "{version}"
requires-python = "{ours["project"]["requires-python"]}"
dependencies = ["mcpx-gateway"]

[tool.uv]
package = false
constraint-dependencies = [
{pins}]

[tool.uv.sources]
mcpx-gateway = {{ path = "{wheel}" }}
"""


if __name__ == "__main__":
    sys.exit(main())
