"""The profile of a natural model's component as bars: where a head looks, and what replacing the component costs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

EFFECTS = {
    "solo": "replaced alone",
    "at_answer": "only at the answer position",
    "direct": "only on its path to the logits",
    "lens": "logit lens: what it writes by itself",
    "restored": "what it alone restores",
    "joint": "replaced with its group",
    "joint_without": "its group without it",
    "gain": "its cost once the group is out, beyond alone",
}
PLACES = {"answer": "From the answer position", "everywhere": "From every position that has such a key"}


@dataclass(frozen=True)
class Bar:
    """One value on a scale of 100: the bar runs from `zero` to `value`, the whisker from `low` to `high`."""

    label: str
    figures: tuple[float, ...]
    zero: float
    value: float
    low: float
    high: float

    @property
    def left(self) -> float:
        """Where the bar begins."""
        return min(self.zero, self.value)

    @property
    def width(self) -> float:
        """How long the bar is."""
        return abs(self.value - self.zero)


@dataclass(frozen=True)
class Bars:
    """A titled table of bars on one scale."""

    title: str
    caption: str
    rows: tuple[Bar, ...]


def draw_profile(profile: Mapping[str, Any]) -> tuple[Bars, ...]:
    """The bar tables of a profile; figures that are missing are left out."""
    attention = profile.get("attention") or {}
    tables = [
        bars_of(f"{title}, attention on", "Share of attention with its 95 % interval over prompts.", attention[where])
        for where, title in PLACES.items()
        if attention.get(where)
    ]
    effects, counts = profile.get("effects") or {}, profile.get("n") or {}
    named = {words + _fewer(name, counts): effects[name] for name, words in EFFECTS.items() if name in effects}
    group = profile.get("group") or {}
    clean = profile.get("clean")
    caption = "" if clean is None else f"Shares of the clean logit difference, {clean:.2f} logits. "
    if len(group.get("members", ())) > 1:
        caption += f"Group: {group['name']} ({', '.join(group['members'])}). "
    tables.append(bars_of("What it is worth", f"{caption}Replaced by its value on the counterfactual prompt.", named))
    return tuple(table for table in tables if table.rows)


def _fewer(name: str, counts: Mapping[str, int]) -> str:
    """After a figure's words: how many prompts it rests on, where others rest on more."""
    n, most = counts.get(name, 0), max(counts.values(), default=0)
    return f", on {n} of {most} prompts" if 0 < n < most else ""


def bars_of(title: str, caption: str, values: Mapping[str, Sequence[float | None]]) -> Bars:
    """Values given as (mean, low, high) on one scale that holds 0 and 1; those with a figure missing are left out."""
    known: dict[str, tuple[float, ...]] = {}
    for label, (mean, low, high) in values.items():
        if mean is not None and low is not None and high is not None:
            known[label] = tuple(round(x, 2) + 0.0 for x in (mean, low, high))  # + 0.0: no minus in front of zero
    bottom = min([0.0, *(low for _, low, _ in known.values())])
    top = max([1.0, *(high for _, _, high in known.values())])

    def place(value: float) -> float:
        return round(100 * (value - bottom) / (top - bottom), 1)

    rows = [Bar(label, figures, place(0.0), *map(place, figures)) for label, figures in known.items()]
    return Bars(title, caption, tuple(rows))


def short_role(role: str) -> str:
    """The first half of a role, short enough for a box of the circuit."""
    return role.split(",")[0].split(" but ")[0]
