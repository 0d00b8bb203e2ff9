"""The files of one configuration: read, edited, and validated as a whole, with or without a gateway.

Nothing here writes a file (`saving`) or changes a running gateway (`store`).
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from mcpx.config import Config
from mcpx.config.edits import Edit, EditError, Where
from mcpx.config.load import Texts
from mcpx.config.problems import Told
from mcpx.model.errors import ConfigError

if TYPE_CHECKING:
    from mcpx.config.written import Written

Read = Callable[[Texts | None], Config]
"""Reads the configuration. With texts, as if the files had these texts."""


class ConfigFiles:
    def __init__(self, where: Where | None, read: Read | None, *, is_new: bool = False) -> None:
        """`where` and `read` are None if the gateway has no config file.

        `is_new`: the file does not exist yet, and the first change creates it.
        """
        self._where = where
        self._read = read
        self.is_new = is_new
        self._seen: Written | None = None

    @property
    def where(self) -> Where | None:
        """The files that exist."""
        return None if self.is_new else self._where

    @property
    def destination(self) -> Where | None:
        """The file that the first change creates."""
        return self._where if self.is_new else None

    def look(self) -> "Written":
        from mcpx.config.written import nothing_written, read_written

        if self.where is None:
            return nothing_written()
        self._seen = read_written(self.where, known=self._seen)
        return self._seen

    def edited(self, written: "Written", edits: Edit | Sequence[Edit]) -> Texts:
        """The texts that differ after an edit. Raises `EditError`."""
        from mcpx.config.editing import edited
        from mcpx.config.written import read_written

        where = self._where
        if where is None:
            raise _no_file()
        new_file = where.path if self.is_new else None
        texts = edited(written, edits, lambda texts: read_written(where, texts), new_file)
        return changed_texts(written, texts)

    def judged(self, texts: Texts) -> Config:
        """The configuration with these texts. Raises `ConfigError`."""
        if self._read is None:
            raise _no_file()
        return self._read(texts)


def changed_texts(written: "Written", texts: Texts) -> Texts:
    current = {sheet.path: sheet.text for sheet in written.sheets}
    return {path: text for path, text in texts.items() if current.get(path) != text}


def told_of(error: ConfigError) -> tuple[Told, ...]:
    """The problems of a configuration, with their positions if they are known."""
    told: tuple[Told, ...] = getattr(error, "told", ())
    return told or tuple(Told(problem.removeprefix("error: ")) for problem in error.problems)


def _no_file() -> EditError:
    return EditError(
        "not_possible", "there is no config file to write to", hint="start mcpx with one"
    )
