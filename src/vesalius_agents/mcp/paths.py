"""Which models and files an agent may name: what ships, and what lies below the directory of `--root`."""

from pathlib import Path
from typing import Any

from vesalius.errors import BadInput, quoted

#: Where the core and its wings lie: in a checkout the folder of sources.
_PACKAGES = [path.parent for path in Path(__file__).resolve().parents[2].glob("vesalius*/__init__.py")]
_BEHAVIOURS = (".jsonl", ".json", ".csv", ".toml")
_CIRCUIT = "circuit "


def blind_name(specimen: Any) -> str:
    """The name of a specimen as agents see it: that of a benchmark circuit would tell its task."""
    return f"{_CIRCUIT}{specimen.id}" if specimen.kind == "benchmark" else specimen.name


class Names:
    """Reads names of specimens and behaviours; `root` is the only directory from which files are read by path."""

    def __init__(self, root: Path, *, known: set[str], behaviours: set[str], hub: bool = False) -> None:
        if not root.is_dir():
            raise BadInput(f"`root` {root}: no such directory")
        self.root, self._known, self._behaviours, self._hub = root.resolve(), known, behaviours, hub

    def specimen(self, name: str) -> str:
        """What `api.load` is given for a name: a specimen that ships, by id or blind name, or a path below the root."""
        if (listed := name.removeprefix(_CIRCUIT)) in self._known:
            return listed
        place = self._below(name, "specimen")
        if place is not None:
            return str(place)
        if "/" in name and self._hub and not name.startswith((".", "/", "~")) and name.count("/") == 1:
            return name
        raise BadInput(
            f"specimen {quoted(name, 80)} is not known; use an id of list_specimens (circuits go by "
            "number, since their names would tell their tasks) or a path below the server's root"
        )

    def behaviour(self, name: str | None) -> Any:
        """A behaviour by name, or a file of rows below the root."""
        if name is None or name in self._behaviours or name.partition(":")[0] in self._behaviours:
            return name
        place = self._below(name, "behaviour")
        if place is None or place.suffix not in _BEHAVIOURS or not place.is_file():
            known = ", ".join(sorted(self._behaviours))
            raise BadInput(f"behaviour {quoted(name, 80)} does not exist; use {known}, or a file below the root")
        if any((near / "specimen.json").is_file() for near in (place.parent, place.parent.parent)):
            raise BadInput(f"behaviour {quoted(name, 80)}: a file of a specimen is not one of prompts; give another")
        return str(place)

    def _below(self, name: str, what: str) -> Path | None:
        """A path below the root that exists; None where there is none. Links are followed before it is decided."""
        try:
            place = (self.root / name).resolve()
            exists = place.is_relative_to(self.root) and place.exists()
        except (OSError, ValueError, RuntimeError):
            return None
        # Said of any such path, so that no caller learns what exists outside.
        if not place.is_relative_to(self.root):
            raise BadInput(f"{what} {quoted(name, 80)}: lies outside the server's root, which is all that is read")
        if not exists or place == self.root:
            return None
        if any(map(place.is_relative_to, _PACKAGES)):
            raise BadInput(f"{what} {quoted(name, 80)}: lies in the package itself; use a name of list_specimens")
        return place
