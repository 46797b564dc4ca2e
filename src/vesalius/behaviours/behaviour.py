"""A behaviour: something natural models do, as a seeded source of prompts.

A behaviour is its name and a function that, given one split's material, returns a `draw`: random numbers and the
index of the prompt in, one row out. The index is there so that things can be balanced exactly (prompt 0 one way,
prompt 1 the other) rather than by luck. Rows come out shuffled, no two alike.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass

from vesalius.behaviours.material import Material, split_index
from vesalius.behaviours.prompts import Prompt, Prompts
from vesalius.errors import BadInput
from vesalius.model.tokenizer import Tokenizer

Draw = Callable[[random.Random, int], Prompt | None]
PATIENCE = 1000


@dataclass(frozen=True)
class Behaviour:
    """`prepare(material)` gives a draw; a draw returning None is asked again. `variant_of` names the behaviour that
    this one asks for in another way.
    """

    name: str
    description: str
    prepare: Callable[[Material], Draw]
    variant_of: str | None = None

    @property
    def family(self) -> str:
        """The behaviour that is really asked for: the name, or that of what it is a variant of."""
        return self.variant_of or self.name

    def sample(
        self, tokenizer: Tokenizer, n: int, *, seed: int, split: str = "train", n_ctx: int, d_vocab: int
    ) -> Prompts:
        """`n` different prompts, the same ones on every machine for the same seed and split."""
        split_index(split)
        if n < 1:
            raise BadInput(f"behaviour {self.name}: {n} prompts were asked for; ask for at least 1")
        draw = self.prepare(Material(self.name, tokenizer, split, d_vocab))
        rng = random.Random(f"{self.name}/{split}/{seed}")  # a string seeds by SHA-512: no dependence on hash()
        rows = _different_rows(draw, rng, n)
        if len(rows) < n:
            raise BadInput(
                f"behaviour {self.name}: {len(rows)} different prompts were found in the {split} split with this "
                f"tokenizer and {n} were asked for; {'ask for fewer' if rows else 'choose another behaviour'}"
            )
        rng.shuffle(rows)
        return Prompts.from_rows(rows, pad=tokenizer.bos or 0, n_ctx=n_ctx, d_vocab=d_vocab)


def _different_rows(draw: Draw, rng: random.Random, n: int) -> list[Prompt]:
    """Up to `n` rows, giving up after a long run of draws without a new one."""
    rows: list[Prompt] = []
    seen: set[object] = set()
    fruitless = 0
    while len(rows) < n and fruitless < PATIENCE:
        row = draw(rng, len(rows))
        if row is None or row.key in seen:
            fruitless += 1
            continue
        fruitless = 0
        seen.add(row.key)
        rows.append(row)
    return rows
