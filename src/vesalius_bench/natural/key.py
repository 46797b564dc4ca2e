"""What was planted in the models of `planted`: the answer key, which `grading` alone opens.

Heads are known by what they read at the position that matters, as roles of the behaviour's prompts, so that a program
in other words that looks at the same token is right.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Look:
    """At which role a head looks from which."""

    query: str
    key: str


@dataclass(frozen=True)
class PlantedAnswer:
    """The planted components: where heads look, and the MLPs; the algorithm with the place of what is worked out on the
    way; and which components stand in for each other.
    """

    heads: dict[str, Look]
    mlps: tuple[str, ...] = ()
    algorithm: str | None = None
    variables: tuple[tuple[str, str], ...] = ()
    stand_ins: tuple[tuple[str, ...], ...] = ()

    @property
    def components(self) -> frozenset[str]:
        """Every planted component."""
        return frozenset([*self.heads, *self.mlps])


_BEFORE, _REPEATS = Look("B", "first A"), Look("end", "B")
ANSWERS: dict[str, PlantedAnswer] = {
    "planted-1": PlantedAnswer({"L0H0": _BEFORE, "L1H1": _REPEATS}),
    "planted-2": PlantedAnswer({"L0H0": _BEFORE, "L1H0": _REPEATS, "L1H2": _REPEATS}, stand_ins=(("L1H0", "L1H2"),)),
    "planted-3": PlantedAnswer(
        {
            "L0H0": Look("operand B", "operand A"),
            "L1H0": Look("end", "operand B"),
            "L1H1": Look("end", "operand C"),
        },
        ("L0_MLP", "L1_MLP"),
        "arithmetic",
        (("difference", "resid1@B"),),
    ),
    "planted-4": PlantedAnswer(
        {
            "L0H0": Look("operand C", "operand A"),
            "L1H0": Look("end", "operand C"),
            "L1H1": Look("end", "operand B"),
        },
        ("L0_MLP", "L1_MLP"),
        "arithmetic-sum-first",
        (("total", "resid1@C"),),
    ),
}
