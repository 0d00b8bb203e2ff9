"""Search over tools: which of them a query in English or Chinese asks for."""

from mcpx.catalog.search.index import Document, Hit, Hits, Index

__all__ = ["Document", "Hit", "Hits", "Index"]
