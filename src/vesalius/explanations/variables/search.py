"""Align variables with places: choose on one split of the prompts, grade on another.

1. Exchange the residual stream before every chosen layer at every role: the map.
2. A variable's candidates are, role by role, the layers where the map is highest. Where none reaches the bar, outputs
   of whole layers and sets of roles are tried as well.
3. Grade candidates on held-out pairs, beside their controls. A place carries a variable by rule: at least `CARRIED` of
   the pairs come out as predicted, in the worst kind that changes and in the worst that stays, and the interval is
   clear of every control. With fewer that change it carries the variable in part. If none carries it, that is a result,
   and the best place is named with its share. Several positions that hold the inputs of a variable each at one of them
   carry those inputs, and nothing that is computed from them.
4. Say which components bring a variable to a role where it was not from the start.
5. Within a place, find directions that carry the variable alone, if asked.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import torch

from vesalius.components import Component
from vesalius.documents.alignment import VERDICTS, AlignedPlace, AlignedVariable, Carriers, KindShare
from vesalius.documents.answers import CARRIED
from vesalius.documents.metric import Metric
from vesalius.explanations.variables import directions
from vesalius.explanations.variables.algorithms import Algorithm
from vesalius.explanations.variables.pairs import CHANGES, STAYS, Graded, Pairs
from vesalius.intervene.exchanging import Place
from vesalius.progress import Progress

#: Roles whose best place is graded on held-out pairs, of a variable that has several.
MOST_ROLES = 4
#: The most components that are named as bringing a variable to a place, and what each must add of what all move.
MOST_CARRIERS, LEAST_GAIN = 4, 0.05
#: Below this share of its height at the place a variable has not arrived yet.
ARRIVING = 0.2

#: The grade of each variable at each place.
Grades = Mapping[Place, Mapping[str, Graded]]


@dataclass(frozen=True)
class Chosen:
    """A candidate place of a variable with its grade on the pairs that chose it, and the layers that carry it there."""

    place: Place
    graded: Graded
    span: tuple[int, int] | None = None


@dataclass(frozen=True)
class Search:
    """Where to look: `layers` of the residual stream, sets of up to `together` roles, `k` directions (0: none), and
    places given by the caller. The variables are those of `algorithm`; pairs may have its inputs besides.
    """

    fitting: Pairs
    held_out: Pairs
    layers: tuple[int, ...]
    together: int
    k: int
    given: Sequence[Place]
    seed: int
    algorithm: Algorithm

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles of the pairs."""
        return self.fitting.exchange.roles

    def variables(self, grades: Grades, progress: Progress) -> Iterator[AlignedVariable]:
        """Every variable with its places, from the grades of the map."""
        rest: dict[Place, dict[str, Graded]] | None = None
        for variable in self.algorithm.variables:
            candidates = self._candidates(variable, grades)
            tried = len(grades) + len(self.given)
            if candidates[0].graded.score < CARRIED:
                rest = self._all_graded(self.other_places(), "exchanging outputs", progress) if rest is None else rest
                tried += len(rest)
                best = max(rest, key=lambda place: rest[place][variable].score, default=None)
                if best is not None and rest[best][variable].score > candidates[0].graded.score:
                    candidates = [Chosen(best, rest[best][variable]), *candidates]
            known = [one.place for one in candidates]
            candidates += [
                Chosen(place, self._graded(self.fitting, variable, place)) for place in self.given if place not in known
            ]
            progress(f"grading {variable} on held-out pairs", 0, 0)
            places = [self._aligned(variable, one) for one in candidates]
            places += list(self._subspaces(variable, candidates, places))
            yield self._variable(variable, grades, candidates, places, tried)

    def _variable(
        self,
        variable: str,
        grades: Grades,
        candidates: Sequence[Chosen],
        places: list[AlignedPlace],
        tried: int,
    ) -> AlignedVariable:
        carried = [place for place in places if place.carries and place.directions is None]
        places.sort(key=lambda one: (VERDICTS.index(one.verdict), bool(one.inputs), one.directions is not None))
        first = carried[0] if carried else next(place for place in places if place.directions is None)
        places.sort(key=lambda one: one is not first)
        shares = {
            role: tuple(grades[Place((role,), layer=layer)][variable].score for layer in self.layers)
            for role in self.roles
        }
        chosen = {str(one.place): one for one in candidates}
        brought = [
            found for place in carried if (found := self._carriers(variable, chosen[place.place], shares)) is not None
        ]
        return AlignedVariable(
            name=variable,
            reads=self.algorithm.functions.get(variable, ()),
            place=first.place if carried else None,
            best=first.place,
            accuracy=first.accuracy,
            control=first.control,
            tried=tried,
            places=tuple(places),
            carriers=tuple(brought),
            map=shares,
        )

    def at(self, variable: str, place: Place) -> AlignedPlace:
        """A variable at a place that somebody named, on held-out pairs."""
        return self._aligned(variable, Chosen(place, self._graded(self.fitting, variable, place)))

    def map_places(self) -> list[Place]:
        """The residual stream before every layer at every role."""
        return [Place((role,), layer=layer) for role in self.roles for layer in self.layers]

    def map(self, progress: Progress) -> Grades:
        """The grade of every variable at every place of the map."""
        return self._all_graded(self.map_places(), "exchanging the residual stream", progress)

    def other_places(self) -> list[Place]:
        """Outputs of all heads of a layer, and of its MLP, at each role; the residual stream at several roles."""
        config = self.fitting.exchange.model.config
        layers = [layer for layer in self.layers if layer < config.n_layers]
        heads = {layer: tuple(Component(layer, head) for head in range(config.n_heads)) for layer in layers}
        sets = [heads[layer] for layer in layers] + [(Component(layer),) for layer in layers]
        places = [Place((role,), components=members) for role in self.roles for members in sets]
        # Before the first layer several roles together are the inputs themselves: nothing is computed there yet.
        for size in range(2, self.together + 1):
            places += [
                Place(roles, layer=layer) for roles in combinations(self.roles, size) for layer in layers if layer
            ]
        return places

    def _all_graded(self, places: Sequence[Place], what: str, progress: Progress) -> dict[Place, dict[str, Graded]]:
        rows, grades = self.fitting.graded_rows(), {}
        for done, place in enumerate(places):
            progress(what, done, len(places))
            answers = self.fitting.exchange.answers(place, rows)
            grades[place] = {name: self.fitting.grade(name, answers, rows) for name in self.fitting.variables}
        return grades

    def _candidates(self, variable: str, grades: Grades) -> list[Chosen]:
        """The best layer of each role that reaches the bar, the highest first; of none the best of all."""
        best = []
        for role in self.roles:
            scores = [grades[Place((role,), layer=layer)][variable].score for layer in self.layers]
            top = max(range(len(scores)), key=lambda i: (scores[i], -i))
            low = high = top
            while low > 0 and scores[low - 1] >= CARRIED:
                low -= 1
            while high + 1 < len(scores) and scores[high + 1] >= CARRIED:
                high += 1
            place = Place((role,), layer=self.layers[top])
            span = (self.layers[low], self.layers[high]) if scores[top] >= CARRIED else None
            best.append(Chosen(place, grades[place][variable], span))
        best.sort(key=lambda one: -one.graded.score)
        return [one for one in best if one.span is not None][:MOST_ROLES] or best[:1]

    def _graded(self, pairs: Pairs, variable: str, place: Place) -> Graded:
        return directions.graded(pairs, variable, place, pairs.graded_rows())

    def _aligned(
        self, variable: str, chosen: Chosen, *, how: str | None = None, controls: Mapping[str, Place] | None = None
    ) -> AlignedPlace:
        """A place on held-out pairs; `controls` are further places, each graded in the same way."""
        place, pairs = chosen.place, self.held_out
        graded = self._graded(pairs, variable, place)
        measured = self._controls(variable, place) | {
            name: self._graded(pairs, variable, other).accuracy for name, other in (controls or {}).items()
        }
        measured = {name: metric for name, metric in measured.items() if metric.value is not None}
        control = max(measured.values(), key=lambda metric: metric.value or 0.0, default=Metric.of_share(0, 0))
        accuracy, kept = graded.accuracy, graded.kept
        clear = accuracy.low is not None and accuracy.low > (control.high or 0.0)
        apart = clear and (kept.value is None or kept.value >= CARRIED)
        inputs = self._inputs_apart(variable, place) if apart else {}
        verdict = "no" if not apart or inputs else "carries" if (accuracy.value or 0.0) >= CARRIED else "in part"
        parts = ((CHANGES, graded.changes), (STAYS, graded.stays))
        return AlignedPlace(
            place=str(place),
            site=place.site,
            words=place.words(pairs.exchange.model.config.n_layers),
            accuracy=accuracy,
            kept=kept,
            fitted=chosen.graded.accuracy,
            control=control,
            controls=measured,
            kinds=tuple(
                KindShare(kind=kind, predicted=part, share=Metric.of_share(*counts[kind]))
                for part, counts in parts
                for kind in sorted(counts)
            ),
            verdict=verdict,
            first_layer=None if chosen.span is None else chosen.span[0],
            last_layer=None if chosen.span is None else chosen.span[1],
            directions=None if place.directions is None else place.directions.shape[1],
            how=how,
            inputs=inputs,
        )

    def _inputs_apart(self, variable: str, place: Place) -> dict[str, str]:
        """The role of a place at which each input of a variable stands by itself, where all do: exchanging them all is
        exchanging whatever is computed from them, wherever that is.
        """
        if place.layer is None or len(place.roles) < 2:
            return {}
        inputs = {one for one in self._inputs(variable) if len(self.held_out.rows(one, CHANGES))}
        if inputs <= {variable}:
            return {}
        alone = {role: Place((role,), layer=place.layer) for role in place.roles}
        found = {
            one: role
            for one in sorted(inputs)
            for role, at in alone.items()
            if self._graded(self.held_out, one, at).score >= CARRIED
        }
        return found if found.keys() == inputs else {}

    def _inputs(self, variable: str) -> set[str]:
        """The inputs that a variable is computed from; of an input itself."""
        reads = self.algorithm.functions.get(variable)
        return {variable} if reads is None else set().union(*map(self._inputs, reads))

    def _controls(self, variable: str, place: Place) -> dict[str, Metric]:
        """A source in which no variable differs, and another position."""
        pairs = self.held_out
        controls = {}
        same = torch.tensor(pairs.nothing_differs).nonzero()[:, 0]
        if len(same):
            answers = pairs.exchange.answers(place, same).tolist()
            changed = sum(answer != pairs.base_answers[row] for answer, row in zip(answers, same.tolist(), strict=True))
            controls["a source that does not differ"] = Metric.of_share(changed, len(same))
        elsewhere = [role for role in self.roles if role not in place.roles]
        near = sorted(elsewhere, key=lambda role: not role.startswith("after "))
        if near:
            other = Place((near[0],), layer=place.layer, components=place.components, directions=place.directions)
            controls[f"another position ({near[0]})"] = self._graded(pairs, variable, other).accuracy
        return controls

    def _subspaces(
        self, variable: str, candidates: Sequence[Chosen], places: Sequence[AlignedPlace]
    ) -> Iterator[AlignedPlace]:
        """Directions within the residual places that the caller gave, else within the best one, whether it carries the
        variable as a whole or not.
        """
        residual = [one for one in candidates if one.place.layer is not None and len(one.place.roles) == 1]
        if not self.k or not residual or not len(self.fitting.rows(variable, CHANGES)):
            return
        carried = {place.place for place in places if place.carries}
        given = [one for one in residual if one.place in self.given]
        for chosen in given or [next((one for one in residual if str(one.place) in carried), residual[0])]:
            yield self._subspace(variable, chosen)

    def _subspace(self, variable: str, chosen: Chosen) -> AlignedPlace:
        """Directions within a place, beside random ones and those trained on shuffled targets."""
        found = directions.fit(
            self.fitting, variable, chosen.place, self.k, enough=max(chosen.graded.score, CARRIED), seed=self.seed
        )
        d_model = self.fitting.exchange.model.config.d_model
        controls = {
            "random directions": chosen.place.within(directions.random_directions(d_model, self.k, seed=self.seed)),
            "shuffled targets": chosen.place.within(
                directions.shuffled(self.fitting, variable, chosen.place, self.k, seed=self.seed)
            ),
        }
        return self._aligned(variable, Chosen(found.place, found.fitted), how=found.how, controls=controls)

    def _carriers(self, variable: str, chosen: Chosen, shares: Mapping[str, tuple[float, ...]]) -> Carriers | None:
        """The components whose outputs bring the variable to a place; None where it is there from the start."""
        if chosen.span is None or chosen.span[0] == self.layers[0]:
            return None
        (role,) = chosen.place.roles
        scores = dict(zip(self.layers, shares[role], strict=True))
        before = [layer for layer in self.layers if layer < chosen.span[0]]
        arrived = ARRIVING * scores[chosen.place.layer or 0]
        first = max((layer for layer in before if scores[layer] <= arrived), default=before[0])
        assert chosen.place.layer is not None
        config = self.fitting.exchange.model.config
        parts = [
            Component(layer, head) for layer in range(first, chosen.span[0]) for head in (*range(config.n_heads), None)
        ]
        moved, whole = self._moves(variable, role, parts)
        best: tuple[Component, ...] = ()
        reached = 0.0
        for component in sorted(parts, key=lambda part: -moved(part))[: 2 * MOST_CARRIERS]:
            members = tuple(sorted((*best, component)))
            share = moved(*members) / whole if whole > 0 else 0.0
            if share >= reached + LEAST_GAIN:
                best, reached = members, share
            if len(best) == MOST_CARRIERS:
                break
        others = tuple(component for component in parts if component not in best)
        share, every, rest = (
            Metric.of_share(0, 0)
            if not members
            else self._graded(self.held_out, variable, Place((role,), components=members)).accuracy
            for members in (best, tuple(parts), others)
        )
        return Carriers(
            place=str(chosen.place),
            layers=(first, chosen.span[0] - 1),
            components=tuple(map(str, best)),
            share=share,
            every=every,
            others=rest,
        )

    def _moves(self, variable: str, role: str, parts: Sequence[Component]) -> tuple[Callable[..., float], float]:
        """How far components' outputs, exchanged together at a role, move the logits from the base's answer to the
        predicted one; and how far all of `parts` do.
        """
        pairs = self.fitting
        rows = pairs.rows(variable, CHANGES)
        wanted = torch.tensor([min(pairs.wanted[variable][row] or {0}) for row in rows.tolist()])
        instead = torch.tensor([pairs.base_answers[row] for row in rows.tolist()])
        clean = float(pairs.exchange.margins(None, rows, wanted, instead).mean())

        def moved(*members: Component) -> float:
            place = Place((role,), components=members)
            return float(pairs.exchange.margins(place, rows, wanted, instead).mean()) - clean

        return moved, moved(*parts)
