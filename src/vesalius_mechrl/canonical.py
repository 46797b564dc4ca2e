"""The heads that Tables 2 and 3 look for: published ones for GPT-2 small, detected ones for any other model.

Published heads mean nothing in another model. There a set is the heads with most attention on the target it is named
after, on training rows, as many as the published set has. Four of the seven categories of IOI were told apart by path
patching, which no attention target replaces: in another model they have no heads.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from vesalius.discovery.known_heads import PUBLISHED, is_gpt2_small, published_heads, recognised_by
from vesalius.model.specimen import Specimen
from vesalius_mechrl.clean_features import ATTENTION_TARGETS
from vesalius_mechrl.suite import Suite

IOI = "ioi"
INDUCTION_HEADS = 5
#: The categories in the published order: the role in `known_heads`, and the attention target that tells it (or None).
CATEGORIES = {
    "S-Inhibition": ("S-inhibition head", None),
    "Induction-in-IOI": ("induction head", "after copy"),
    "Backup Name Movers": ("backup name mover", None),
    "Name Movers": ("name mover", None),
    "Negative Name Movers": ("negative name mover", None),
    "Duplicate Token": ("duplicate-token head", "copy"),
    "Previous Token": ("previous-token head", "previous"),
}


@dataclass(frozen=True)
class Category:
    """A category of heads; `heads` is None where it can only be told by path patching."""

    name: str
    size: int
    heads: tuple[str, ...] | None


@dataclass(frozen=True)
class Canonical:
    """The heads of Table 2 on one task, the categories of Table 3 on another, and where each set comes from."""

    ranked: tuple[str, ...]
    ranked_from: str
    categories: tuple[Category, ...]
    categories_from: str

    @property
    def sources(self) -> dict[str, str]:
        """Where the heads of each table come from."""
        return {"table2": self.ranked_from, "table3": self.categories_from}


def canonical_heads(suite: Suite, specimen: Specimen | None = None) -> Canonical:
    """The heads for the first training task (Table 2) and the categories for the last one (Table 3).

    They are the published ones where the specimen has GPT-2 small's shape and they exist for the task.
    """
    first, last = suite.train.names[0], suite.train.names[-1]
    gpt2 = specimen is not None and is_gpt2_small(specimen.model.config)
    recognised = recognised_by(specimen.source) if specimen is not None and gpt2 else ""
    published = published_heads(specimen.model.config, first) if specimen is not None and gpt2 else None
    if published is not None:
        ranked = tuple(str(head) for heads in published.roles.values() for head in heads)
        ranked_from = f"published ({published.source}); {recognised}"
    else:
        ranked = tuple(heads_by_attention(suite, first, "after copy", INDUCTION_HEADS))
        ranked_from = f"detected: most attention on what came after an earlier copy, {first} prompts"
    if gpt2 and last == IOI:
        roles, categories_from = PUBLISHED[IOI].roles, f"published ({PUBLISHED[IOI].source}); {recognised}"
        sets: Mapping[str, tuple[str, ...] | None] = {
            name: tuple(map(str, roles[role])) for name, (role, _) in CATEGORIES.items()
        }
    else:
        categories_from = f"detected: most attention on what the name says, {last} prompts"
        sets = {
            name: None if target is None else tuple(heads_by_attention(suite, last, target, published_size(role)))
            for name, (role, target) in CATEGORIES.items()
        }
    categories = [Category(name, published_size(role), sets[name]) for name, (role, _) in CATEGORIES.items()]
    return Canonical(ranked, ranked_from, tuple(categories), categories_from)


def published_size(role: str) -> int:
    """How many heads of GPT-2 small have a role in IOI."""
    return len(PUBLISHED[IOI].roles[role])


def heads_by_attention(suite: Suite, task: str, target: str, size: int) -> list[str]:
    """The heads with most attention on a target, on training rows."""
    assert suite.train.features is not None
    scores = suite.train.features.attention[task].mean(0)[:, ATTENTION_TARGETS.index(target)]
    return [suite.train.heads[i] for i in np.argsort(-scores, kind="stable")[:size]]
