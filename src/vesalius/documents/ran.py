"""How a foreign program ran: in which confinement, and what it was given beyond that. Results of programs carry it."""

from collections.abc import Iterable

from vesalius.documents.base import Record


class Ran(Record):
    """How a foreign program ran. `isolation` names what the kernel enforced; `contained` is False only where the caller
    accepted the risk. `passed` are the environment variables it was given, by name, `read` the paths it could read
    beyond its own files, and `network` whether it had one.
    """

    contained: bool
    isolation: str
    passed: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    network: bool = False

    @property
    def word(self) -> str:
        """One word for a table."""
        return "confined" if self.contained else "unconfined"

    @property
    def sentence(self) -> str:
        """For a page and the terminal."""
        given = [f"the variables {', '.join(self.passed)}"] if self.passed else []
        given += [f"read access to {', '.join(self.read)}"] if self.read else []
        given += ["the network"] if self.network else []
        beyond = f", with {' and '.join(given)}" if given else ""
        if self.contained:
            return f"The program ran confined ({self.isolation}){beyond}."
        return f"The program ran UNCONFINED ({self.isolation}){beyond}: it could read files and keys of its caller."


def least_confined(runs: Iterable[Ran | None]) -> Ran | None:
    """Of several runs, one that was not contained if there is one, for a sentence about all; None without any."""
    known = [one for one in runs if one is not None]
    return min(known, key=lambda one: one.contained, default=None)
