"""Masks of secrets, without the names of their secrets."""

import json
import re
from typing import Any

from mcpx.config.masking import MASK


def plain_masks(value: Any) -> Any:
    """A copy of a text or a tree in which each mask is `MASK`."""
    text = json.dumps(value, ensure_ascii=False)
    return json.loads(re.sub(f"(?<={MASK})[0-9a-f]{{8}}", "", text))
