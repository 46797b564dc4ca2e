"""Heads of GPT-2 small that publications name for a behaviour, to compare a discovered circuit with.

A model counts as GPT-2 small by its shape, since weights have no name: for other weights of that shape (a fine-tuned or
a random model) the figures only say how far its circuit agrees with the published one.

| behaviour      | source                                                                                           |
|----------------|--------------------------------------------------------------------------------------------------|
| `ioi`          | Wang et al. 2022, arXiv 2211.00593: 26 heads in seven roles                                      |
| `induction`    | the five heads that MechRL takes as canonical                                                    |
| `greater-than` | Hanna et al. 2023, arXiv 2305.00586, heads as the ACDC authors list them (arXiv 2304.14997)      |
"""

from collections.abc import Mapping
from dataclasses import dataclass

from vesalius.components import Component
from vesalius.model.config import Config

GPT2_SMALL = {"n_layers": 12, "n_heads": 12, "n_kv_heads": 12, "d_model": 768, "d_vocab": 50257}


@dataclass(frozen=True)
class PublishedHeads:
    """The published heads of a behaviour by role, and the publication."""

    source: str
    roles: Mapping[str, tuple[Component, ...]]

    @property
    def heads(self) -> frozenset[Component]:
        """All heads of all roles."""
        return frozenset(head for heads in self.roles.values() for head in heads)

    def role_of(self, head: Component) -> str | None:
        """The role that the publication gives a head."""
        return next((role for role, heads in self.roles.items() if head in heads), None)


def _heads(names: str) -> tuple[Component, ...]:
    return tuple(Component.parse(name) for name in names.split())


_INDUCTION = PublishedHeads(
    "MechRL's canonical induction heads of GPT-2 small", {"induction head": _heads("5.1 5.5 6.9 7.2 7.10")}
)
PUBLISHED: Mapping[str, PublishedHeads] = {
    "ioi": PublishedHeads(
        "Wang et al. 2022, arXiv 2211.00593",
        {
            "name mover": _heads("9.6 9.9 10.0"),
            "negative name mover": _heads("10.7 11.10"),
            "backup name mover": _heads("9.0 9.7 10.1 10.2 10.6 10.10 11.2 11.9"),
            "S-inhibition head": _heads("7.3 7.9 8.6 8.10"),
            "induction head": _heads("5.5 5.8 5.9 6.9"),
            "duplicate-token head": _heads("0.1 0.10 3.0"),
            "previous-token head": _heads("2.2 4.11"),
        },
    ),
    "induction": _INDUCTION,
    "induction-out": _INDUCTION,
    "greater-than": PublishedHeads(
        "Hanna et al. 2023, arXiv 2305.00586, as listed with arXiv 2304.14997",
        {"reads the year": _heads("0.1 0.3 0.5"), "brings the year to the end": _heads("5.5 6.1 6.9 7.10 8.11 9.1")},
    ),
}


def published_heads(config: Config, behaviour: str | None) -> PublishedHeads | None:
    """The published heads for a behaviour if the model has GPT-2 small's shape, else None."""
    if any(getattr(config, name) != value for name, value in GPT2_SMALL.items()):
        return None
    return PUBLISHED.get(behaviour or "")
