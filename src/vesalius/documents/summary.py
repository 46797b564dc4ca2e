"""The explanation of a natural model in short: what carries the behaviour, how it flows, and what is not established.

Everything is taken from the claims and the measured edges of the document; nothing is added. The summary is built here
once. The command line, the page and notebooks only lay it out.

The paths of the circuit are supported compositions (one component writes the queries or keys of a head) and measured
edges, from the tokens to the logits. A component is *joined* if such paths lead from the tokens to it and from it to
the logits. The main path is the one through the necessary components whose replacement costs most.
"""

import html
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from vesalius.components import Component
from vesalius.documents.claims import LOGITS, NOT_DEFINED, TOKENS, ComponentExplanation, Composition, Evidence
from vesalius.documents.view import cut_text, join_first
from vesalius.errors import BadInput, visible

ARROW, GAP = " -> ", " ... ? ... "
PATHS_HEADING = "How it flows, by supported paths (figures: share of the score the path alone is worth)"
GAPS_HEADING = "Not established"
#: Names listed in one sentence.
LISTED = 8
#: Characters of one sentence that a notebook shows.
SHOWN_SENTENCE = 400
#: Components named with their figures.
CARRIERS = 4
#: The claim that zeros, or its mean, at every position can stand in for a component.
SPARED = "not_needed_alone"
#: What a refuted claim would have said, by its kind.
REFUTED = {
    "necessary": "necessary alone",
    "small_part": "a small part, neither nothing nor much",
    "attends": "most of its attention where it was suspected",
    "uses": "needs the keys it looks at",
    "acts_at_answer": "acts mostly at the answer position",
    "acts_at": "acts mostly at one role",
    "acts_directly": "acts mostly on the logits directly",
    "needs_input": "needs an input that was suspected",
    "few_neurons": "works by a few of its neurons",
    "carries": "carries a role or the answer",
    "looks_up": "looks the answer up",
    "writes_answer": "writes the answer by itself",
    "suppresses": "pushes an answer down",
    "backup_of": "acts only once others are gone",
    "redundant": "mutually redundant with others",
    "inhibits": "works against the answer",
    "composes": "its queries or keys come from the suspected component",
    "feeds": "a direct path from it matters",
    "hinders": "a direct path from it works against the answer",
    "reads_from": "copies from the previous token",
    "moves_role": "moves a role to the answer position",
    "primary": "the primary mover of a role",
    "together": "matters together with others",
    "reads_role": "reads a role",
    SPARED: "not needed alone",
    "lens_only": "shown by the logit lens alone",
}


@dataclass(frozen=True)
class Summary:
    """One screen: `sentences` say what was found, `main_path` and `paths` how information flows where that is
    established, `gaps` what is not established. `broken_path` is there instead of a main path where there is a gap.
    """

    title: str
    sentences: tuple[str, ...]
    main_path: str | None
    broken_path: str | None
    paths: tuple[str, ...]
    gaps: tuple[str, ...]
    verdicts: str

    def html(self) -> str:
        """The summary for a notebook."""
        title, *sentences = map(_escaped, (self.title, *self.sentences))
        blocks = [f"<p><b>{title}</b></p>", *(f"<p>{sentence}</p>" for sentence in sentences)]
        for heading, lines in ((PATHS_HEADING, self.path_lines), (GAPS_HEADING, self.gaps)):
            items = "".join(f"<li>{_escaped(line)}</li>" for line in lines)
            blocks.append(f"<p><b>{heading}</b></p><ul>{items}</ul>" if items else "")
        return "".join(blocks)

    @property
    def path_lines(self) -> tuple[str, ...]:
        """The main path, then what each sender writes to."""
        broken = (f"with a gap: {self.broken_path}",) if self.broken_path else ()
        return (*((f"main path: {self.main_path}",) if self.main_path else broken), *self.paths)


def _escaped(text: str) -> str:
    return html.escape(visible(cut_text(text, SHOWN_SENTENCE)))


def summarise(
    parts: Sequence[ComponentExplanation],
    *,
    edges: Sequence[tuple[str, str, float]],
    compositions: Sequence[Composition],
    title: str,
    description: str,
) -> Summary:
    """The summary of an explanation from its components and the paths between them."""
    flow = Flow(parts, edges, compositions)
    return Summary(
        title=title,
        sentences=(description, *_carriers(parts), *_patterns(parts)),
        main_path=flow.main_path,
        broken_path=flow.broken_path,
        paths=tuple(flow.lines()),
        gaps=(*flow.gaps(), *_undecided(parts)),
        verdicts=verdict_counts(sum((part.decided for part in parts), Counter())),
    )


def verdict_counts(verdicts: Iterable[str]) -> str:
    """How many are supported, refuted and undecided, and how many untested where there are some."""
    counts = Counter(verdicts)
    words = ["supported", "refuted", "undecided", *(["untested"] if counts["untested"] else [])]
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in words)


#: Why questions have no claim, as people say it.
NOT_ASKED = {
    "close": "not asked, since other prompts leave them too close to the bar to call",
    "narrower": "tested and open, with a narrower claim decided instead",
}


class Flow:
    """The paths of a circuit that were established, and where they end."""

    def __init__(
        self,
        parts: Sequence[ComponentExplanation],
        edges: Sequence[tuple[str, str, float]],
        compositions: Sequence[Composition],
    ) -> None:
        self.parts = {part.id: part for part in parts}
        self.effects: dict[tuple[str, str], float] = {(a, b): strength for a, b, strength in edges}
        self.ports: dict[tuple[str, str], list[str]] = defaultdict(list)
        for link in compositions:
            self.ports[link.sender, link.receiver].append(link.port)
        links = {**self.effects, **self.ports}
        self.links = sorted(
            (link for link in links if _place(link[0]) < _place(link[1])),
            key=lambda link: (_place(link[0]), _place(link[1])),
        )

    @cached_property
    def reached(self) -> set[str]:
        """What paths from the tokens lead to."""
        return _closure({TOKENS}, self.links)

    @cached_property
    def reaching(self) -> set[str]:
        """What paths to the logits lead from."""
        return _closure({LOGITS}, [(b, a) for a, b in reversed(self.links)])

    @cached_property
    def joined(self) -> list[str]:
        """The components on a path from the tokens to the logits, in order of computation."""
        return sorted(self.reached & self.reaching - {TOKENS, LOGITS}, key=_place)

    @cached_property
    def main_path(self) -> str | None:
        """The path from the tokens to the logits through the components whose replacement costs most."""
        return self._heaviest(self.reached & self.reaching, LOGITS)

    @cached_property
    def broken_path(self) -> str | None:
        """Where no path leads through: the heaviest stretch from the tokens, a gap, the heaviest one to the logits."""
        ends = self._heaviest(self.reached), self._heaviest(self.reaching, LOGITS)
        return None if self.main_path or not any(ends) else GAP.join((ends[0] or TOKENS, ends[1] or LOGITS))

    def _heaviest(self, within: set[str], end: str | None = None) -> str | None:
        """The path among these names through the components whose replacement costs most, to an end if one is given."""
        best: dict[str, tuple[float, tuple[str, ...]]] = {}
        links = [link for link in self.links if set(link) <= within]
        for a, b in sorted(links, key=lambda link: (_place(link[1]), _place(link[0]))):
            weight, path = best.get(a, (self._weight(a), (a,)))
            candidate = (weight + self._weight(b), (*path, b))
            if b not in best or candidate[0] > best[b][0]:
                best[b] = candidate
        if not best or (end is not None and end not in best):
            return None
        path = best[end or max(best, key=lambda name: best[name][0])][1]
        return ARROW.join([path[0], *(self._named(a, b) for a, b in pairwise(path))])

    def _weight(self, name: str) -> float:
        """What replacing it costs, if it was shown to be necessary."""
        part = self.parts.get(name)
        return max(0.0, solo_effect(part) or 0.0) if part is not None and _supports(part, "necessary") else 0.0

    def _named(self, sender: str, receiver: str) -> str:
        ports = self.ports.get((sender, receiver))
        return f"{' and '.join(ports)} of {receiver}" if ports else receiver

    def lines(self) -> Iterator[str]:
        """What each sender writes to, those on a path from the tokens to the logits first."""
        joined = {TOKENS, LOGITS, *self.joined}
        senders = sorted({a for a, _ in self.links}, key=_place)
        for inside in (True, False):
            for sender in senders:
                receivers = [b for a, b in self.links if a == sender and (a in joined and b in joined) == inside]
                if receivers:
                    yield f"{self._sender(sender)}{ARROW}{self._receivers(sender, receivers)}"

    def _sender(self, name: str) -> str:
        role = self.parts[name].role if name in self.parts else None
        if not role or self.parts[name].verdict != "supported":
            return name
        return f"{name} ({_without_paths(role).replace(' (', ', ').replace(')', '')})"

    def _receivers(self, sender: str, receivers: Sequence[str]) -> str:
        by_port: dict[str, list[str]] = defaultdict(list)
        for receiver in receivers:
            by_port[" and ".join(self.ports.get((sender, receiver), ()))].append(self._figure(sender, receiver))
        return "; ".join(
            f"{f'{port} of ' if port else ''}{join_first(names, LISTED)}" for port, names in by_port.items()
        )

    def _figure(self, sender: str, receiver: str) -> str:
        effect = self.effects.get((sender, receiver))
        return receiver if effect is None else f"{receiver} {effect:.2f}"

    def gaps(self) -> Iterator[str]:
        """Where the established paths end before the logits, begin after the tokens, or are missing."""
        named = sorted((part.id for part in self.parts.values() if part.verdict == "supported"), key=_place)
        linked = {name for link in self.links for name in link}
        if not self.joined:
            why = "the supported paths do not join" if self.links else "no path was established"
            yield f"a path from the tokens to the answer: {why}"
        for words, names in (
            ("how these reach the answer", self.reached - self.reaching),
            ("what these read", self.reaching - self.reached),
            ("how these connect to the tokens and to the answer", {*named, *linked} - self.reached - self.reaching),
        ):
            shown = sorted(names - {TOKENS, LOGITS}, key=_place)
            if shown:
                yield f"{words}: {join_first(shown, LISTED)}"


def solo_effect(part: ComponentExplanation | None) -> float | None:
    """The share of the score that is lost if the component alone has its values from counterfactual prompts; None where
    that was not measured.
    """
    effects = (part.profile or {}).get("effects") if part is not None else None
    return (effects or {}).get("solo", (None,))[0]


def _carriers(parts: Sequence[ComponentExplanation]) -> Iterator[str]:
    """Which components are necessary, and which work against the answer."""
    measured = {part.id: part for part in parts if solo_effect(part) is not None}
    ranked = sorted(measured, key=lambda name: -(solo_effect(measured[name]) or 0.0))
    if any(NOT_DEFINED in str((part.profile or {}).get("unit", "")) for part in parts):
        yield f"Effects as shares of the clean score are {NOT_DEFINED}."
    costs = {part.id: cost for part in parts if (cost := _necessity(part)) is not None}
    necessary = sorted(costs, key=lambda name: -(costs[name].value or 0.0))
    if necessary:
        shown, more = necessary[:CARRIERS], necessary[CARRIERS:]
        figures = {name: (costs[name].value, costs[name].low, costs[name].high) for name in shown}
        n = max(costs[name].n for name in shown)
        yield (
            f"Necessary: {', '.join(f'{name} {_share(figures[name])}' for name in shown)} (lost by the "
            f"strongest replacement made on {n} prompt{'s' * (n != 1)}, as a share of the {_unit(parts)}, not of the "
            f"range)"
            f"{f'; also {join_first(more, LISTED)}' if more else ''}."
        )
    elif ranked:
        yield (
            f"No component was shown to be necessary alone; the largest effects measured are "
            f"{_with_effects(ranked[:CARRIERS], measured)} of the {_unit(parts)}, which is not the range."
        )
    if general := [part for part in parts if part.specificity is not None and part.specificity.specific is False]:
        named = [f"{part.id} ({part.specificity.elsewhere})" for part in general if part.specificity]
        yield f"Not specific, replacing it breaks as much elsewhere: {join_first(named, CARRIERS)}."
    if spared := [part.id for part in parts if _supports(part, SPARED)]:
        yield (
            f"Not needed alone (zeros or the mean at every position in its place cost next to nothing): "
            f"{join_first(spared, LISTED)}."
        )
    if against := [name for name in reversed(ranked) if _supports(measured[name], "inhibits")]:
        yield f"Against the answer: {_with_effects(against[:CARRIERS], measured)}."


def _patterns(parts: Sequence[ComponentExplanation]) -> Iterator[str]:
    """Which heads attend where, as far as it was established."""
    by_pattern: dict[str, list[str]] = defaultdict(list)
    for part in parts:
        pattern = (part.profile or {}).get("pattern")
        if pattern:
            by_pattern[pattern].append(part.id)
    if by_pattern:
        kinds = [f"{_plural(kind, names)} {join_first(names, LISTED)}" for kind, names in by_pattern.items()]
        yield f"By attention: {'; '.join(kinds)}."


def _undecided(parts: Sequence[ComponentExplanation]) -> Iterator[str]:
    """Components without a role, refuted claims by kind, and how many claims were not decided."""
    if nameless := [part.id for part in parts if part.verdict != "supported"]:
        yield f"a role: {join_first(nameless, LISTED)}"
    refuted: dict[str, list[str]] = defaultdict(list)
    for part in parts:
        for claim in part.claims:
            if claim.verdict == "refuted" and part.id not in refuted[claim.kind]:
                refuted[claim.kind].append(part.id)
    for kind, names in sorted(refuted.items(), key=lambda item: (item[0] != "necessary", -len(item[1]))):
        if names:
            yield f"refuted, {REFUTED.get(kind, kind.replace('_', ' '))}: {join_first(names, LISTED)}"
    undecided = [claim for part in parts for claim in part.claims if claim.verdict in ("undecided", "untested")]
    if undecided:
        n = max((evidence.n for claim in undecided for evidence in claim.evidence), default=0)
        prompts = "1 prompt, which has no interval" if n == 1 else f"{n} prompts" if n else "what was measured"
        claims = "1 claim is" if len(undecided) == 1 else f"{len(undecided)} claims are"
        yield f"{claims} undecided on {prompts}; more prompts decide more"
    yield from _not_asked(parts)


def _not_asked(parts: Sequence[ComponentExplanation]) -> Iterator[str]:
    """How many questions have no claim, why, and of which kinds they are; with them, what share is not decided."""
    left = [one for part in parts for one in part.not_asked]
    open_ = sum(claim.verdict in ("undecided", "untested") for part in parts for claim in part.claims)
    whole = sum(len(part.claims) for part in parts) + len(left)
    for why, words in NOT_ASKED.items():
        kinds = Counter(one.kind.replace("_", " ") for one in left if one.why == why)
        if n := kinds.total():
            listed = join_first([f"{kind} {count}" for kind, count in kinds.most_common()], LISTED)
            yield f"{n} question{'s' * (n != 1)} {words}: {listed}"
    if left:
        share = (open_ + len(left)) / whole
        yield f"with these {open_ + len(left)} of {whole} questions ({share:.0%}) are not decided"


def _necessity(part: ComponentExplanation) -> Evidence | None:
    """What the strongest replacement that decided costs; None where necessity was not supported."""
    for claim in part.claims:
        if claim.kind == "necessary" and claim.verdict == "supported" and claim.evidence:
            return claim.evidence[0]
    return None


def _supports(part: ComponentExplanation, kind: str) -> bool:
    return any(claim.kind == kind and claim.verdict == "supported" for claim in part.claims)


def _with_effects(names: Sequence[str], parts: Mapping[str, ComponentExplanation]) -> str:
    return ", ".join(f"{name} {_share((parts[name].profile or {})['effects']['solo'])}" for name in names)


def _share(figures: Sequence[float | None]) -> str:
    """A mean with its interval, if it has one."""
    value, low, high = (None if x is None else round(x, 2) + 0.0 for x in figures)
    interval = "" if low is None or high is None else f" [{low:.2f}, {high:.2f}]"
    return "not measured" if value is None else f"{value:.2f}{interval}"


def _unit(parts: Sequence[ComponentExplanation]) -> str:
    """What effects are shares of."""
    unit = next((part.profile["unit"] for part in parts if part.profile and "unit" in part.profile), "score")
    return unit.removeprefix("share of the ")


def _plural(kind: str, names: Sequence[str]) -> str:
    return f"{kind}s" if len(names) > 1 and kind.endswith(("head", "sink")) else kind


def _place(name: str) -> tuple[int, int, str]:
    """The order of computation: tokens, heads and MLP of each layer, logits."""
    if name in (TOKENS, LOGITS):
        return (-1, 0, name) if name == TOKENS else (1 << 30, 0, name)
    try:
        part = Component.parse(name)
    except BadInput:
        return -1, 1, name
    return part.layer, part.head if part.is_head and part.head is not None else 1 << 20, name


def _closure(starts: set[str], links: Sequence[tuple[str, str]]) -> set[str]:
    """Everything that links lead to from the starts; the links are in an order in which one pass suffices."""
    known = set(starts)
    for a, b in links:
        if a in known:
            known.add(b)
    return known


def _without_paths(role: str) -> str:
    """A role without what the component reads and feeds, which the paths show."""
    return role.partition(", reads ")[0].partition(", feeds ")[0]
