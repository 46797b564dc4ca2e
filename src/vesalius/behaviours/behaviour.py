"""A behaviour: something natural models do, as a seeded source of prompts.

A behaviour is a name and a function that takes one split's material and returns a `draw` function. A draw takes a
random generator and the index of the prompt and returns one row. The index allows exact balancing (even prompts one
way, odd prompts the other). Rows are distinct and shuffled.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass

from vesalius.behaviours.material import Material, split_index
from vesalius.behaviours.prompts import Prompt, Prompts
from vesalius.errors import BadInput
from vesalius.model.tokenizer import Tokenizer

Draw = Callable[[random.Random, int], Prompt | None]
MAX_FAILED_DRAWS = 1000


@dataclass(frozen=True)
class Behaviour:
    """`prepare(material)` returns a draw; a draw that returns None is repeated. `variant_of` names the behaviour that
    this one measures in another way.
    """

    name: str
    description: str
    prepare: Callable[[Material], Draw]
    variant_of: str | None = None

    @property
    def family(self) -> str:
        """The name of the underlying behaviour: `variant_of` if set, else `name`."""
        return self.variant_of or self.name

    def sample(
        self, tokenizer: Tokenizer, n: int, *, seed: int, split: str = "train", n_ctx: int, d_vocab: int
    ) -> Prompts:
        """`n` distinct prompts, the same on every machine for the same seed and split."""
        split_index(split)
        if n < 1:
            raise BadInput(f"behaviour {self.name}: {n} prompts were requested; request at least 1")
        draw = self.prepare(Material(self.name, tokenizer, split, d_vocab))
        rng = random.Random(f"{self.name}/{split}/{seed}")  # a string seeds by SHA-512: no dependence on hash()
        rows = _distinct_rows(draw, rng, n)
        if len(rows) < n:
            raise BadInput(
                f"behaviour {self.name}: {n} prompts were requested, but the {split} split has only {len(rows)} "
                f"distinct ones with this tokenizer; {'request fewer' if rows else 'choose another behaviour'}"
            )
        rng.shuffle(rows)
        return Prompts.from_rows(rows, pad=tokenizer.bos or 0, n_ctx=n_ctx, d_vocab=d_vocab)


def _distinct_rows(draw: Draw, rng: random.Random, n: int) -> list[Prompt]:
    """Up to `n` distinct rows; stops after `MAX_FAILED_DRAWS` draws in a row without a new one."""
    rows: list[Prompt] = []
    seen: set[object] = set()
    failed_draws = 0
    while len(rows) < n and failed_draws < MAX_FAILED_DRAWS:
        row = draw(rng, len(rows))
        if row is None or row.key in seen:
            failed_draws += 1
            continue
        failed_draws = 0
        seen.add(row.key)
        rows.append(row)
    return rows
