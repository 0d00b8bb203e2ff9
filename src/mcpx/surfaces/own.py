"""The server that is ourselves, and its one tool: it reads results that were kept back (SUR-11)."""

from mcpx.model.offer import Offer
from mcpx.surfaces.large import reading

BUILT_IN = "mcpx"
READER = Offer("tools", BUILT_IN, "result", "mcpx.result", reading.TOOL)
OWN_NAMES = (READER.public, f"{BUILT_IN}_{READER.name}", f"{BUILT_IN}/{READER.name}")
