"""Where mcpx keeps what is not configuration (RUN-6), for the commands."""

from mcpx.model.state import state_folder

__all__ = ["state_folder"]
