"""The description that a package index shows: the README with links that lead somewhere outside the checkout.

Links to files of the repository become absolute with the address under `Repository` in `[project.urls]`. Without one
they become plain text, and pictures are left out with their captions.
"""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

#: A target that is a file of the repository, not an address.
FILE = r"\((?![a-z]+:|#)([^)\s]+)\)"
PICTURE = re.compile(rf"!\[([^\]]*)\]{FILE}")
CAPTIONED = re.compile(rf"{PICTURE.pattern}\n\n(?:\*[^*]+\*\n\n)?")
LINK = re.compile(rf"\[([^\]]*)\]{FILE}")


def description(readme: str, repository: str | None) -> str:
    """The README as an index shows it."""
    if repository is None:
        return LINK.sub(r"\1", CAPTIONED.sub("", readme))
    base = repository.rstrip("/")
    return LINK.sub(rf"[\1]({base}/blob/HEAD/\2)", PICTURE.sub(rf"![\1]({base}/raw/HEAD/\2)", readme))


class Description(MetadataHookInterface):
    """Sets the project's description when a wheel or an sdist is built."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        """Fill in `readme`."""
        readme = Path(self.root, "README.md").read_text(encoding="utf-8")
        text = description(readme, metadata.get("urls", {}).get("Repository"))
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
