"""The options of verbs and commands, each declared once as a field of a record.

Where verbs differ in a default, the record is given with that default (`Draw(n=16)`), never declared a second time.
"""

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from vesalius.components import split_names
from vesalius.errors import BadInput, quoted, require_whole
from vesalius.options.records import Configured, OptionRecord, flag

#: A directory; True for one under `vesalius-runs`, named after the request; None or False to write nothing.
Out = str | Path | bool | None
MOST_PROMPTS = 100_000
NEURON_RULES = ("gradient", "relp", "relp-qk")
#: Seeds of controls and held-out prompts are larger than the one requested, and all must fit 64 bits.
LARGEST_SEED = 2**62


def require_drawable(n: int, seed: int) -> None:
    """Refuse numbers of prompts and seeds that are none, or out of range."""
    require_whole(n=n, seed=seed)
    if not 1 <= n <= MOST_PROMPTS:
        raise BadInput(f"an experiment on {n} prompts is not possible; request 1 to {MOST_PROMPTS:,}")
    if not 0 <= seed <= LARGEST_SEED:
        raise BadInput(f"seed {seed} cannot be used; choose one from 0 to {LARGEST_SEED}")


class Read(OptionRecord, kw_only=True):
    """How a model is read. A request takes these from the loaded specimen."""

    tokenizer: Annotated[Any, flag("Directory of a tokenizer for a natural model. Default: its own.", rare=True)] = None
    revision: Annotated[str | None, flag("Revision of a hub id.", rare=True)] = None
    dtype: Annotated[
        Any,
        flag(
            "Number format of a natural model: auto (as stored, or float32 where that is slow), float32, bfloat16, "
            "float16.",
            rare=True,
        ),
    ] = "auto"
    device: Annotated[
        Any,
        flag(
            "cpu, cuda, mps, or several over which layers are spread: cuda:0,cuda:1. auto: for natural models a GPU "
            "where there is one, several where the model does not fit one.",
            rare=True,
        ),
    ] = "auto"


class Load(Read):
    """How a specimen is read, and what it is studied for."""

    behaviour: Annotated[
        Any,
        flag(
            "What a natural model is studied for: induction, ioi, ..., addition:high=99,shots=0, a plug-in, or a file "
            "of rows (.jsonl, .json, .csv), of templates (.toml), or a dataset's directory.",
            "--behaviour",
            "-b",
        ),
    ] = None
    metric: Annotated[
        Any,
        flag(
            "What is measured of the answers: logit-difference, probability, probability-difference, "
            "log-probability, loss or kl. Default: logit-difference, or log-probability without wrong answers.",
            rare=True,
        ),
    ] = None


class Sample(OptionRecord):
    """How many prompts, and which."""

    n: Annotated[int, flag("Prompts.", least=1, asked="always", word="n{}")] = 16
    seed: Annotated[int, flag("Seed of the prompts and of what is drawn at random.", asked="always", word="seed{}")] = 0

    def __post_init__(self) -> None:
        require_drawable(self.n, self.seed)


class Draw(Sample):
    """Which prompts of a behaviour."""

    split: Annotated[
        str,
        flag("Pool of names, templates and fillers: train, validation or test.", rare=True, word="split{}"),
    ] = "test"


class Parts(OptionRecord):
    """Where parts of the work run."""

    engine: Annotated[
        str | None,
        flag("Run parts elsewhere: local (processes) or ray. Default: all in this process.", rare=True, asked="never"),
    ] = None
    jobs: Annotated[
        int | None,
        flag(
            "Parts at a time. Default: 2 with --engine; alone it means --engine local.",
            least=1,
            rare=True,
            asked="never",
        ),
    ] = None


class Knockout(OptionRecord):
    """What a sweep replaces, and by what."""

    kind: Annotated[
        Any,
        flag(
            "zero, mean, resample (from the counterfactual prompt) or value-bias; several with commas are compared. "
            "Default: resample for natural models, as in `discover`; zero for others.",
            "--kind",
            "-k",
            asked="always",
            word="{}",
        ),
    ] = None
    pairs: Annotated[bool, flag("Replace every pair of components instead of each alone.", "--pairs", word="pairs")] = (
        False
    )
    components: Annotated[
        Any,
        flag(
            "Only these, comma-separated, in any notation: L1H2,a0.h1,m3, or any site: L12.resid,L0H1->L5H3.k. "
            "Default: all.",
            "--components",
            "-c",
        ),
    ] = None
    sites: Annotated[
        Any,
        flag(
            "Instead of components every activation of a kind, several with commas: resid_pre, resid_mid, resid, "
            "attn_out, mlp_out, mlp_pre, mlp_post, q, k, v, z, pattern; or features: the 64 latents of --features with "
            "the largest attributions.",
            word="{}",
        ),
    ] = None
    by: Annotated[
        str | None,
        flag("Replace each at one position at a time, for a map: position, or role (of the prompts).", word="by-{}"),
    ] = None

    def __post_init__(self) -> None:
        if self.kind is not None:  # an ablation, such as `Mean()`, goes by its name
            object.__setattr__(self, "kind", str(self.kind))
        if self.sites is not None:
            object.__setattr__(self, "sites", ",".join(map(str, split_names(self.sites))))
        if self.by not in (None, "position", "role"):
            raise BadInput(f"`by` {quoted(self.by, 40)} does not exist; choose position or role")
        if self.sites is not None and self.components is not None:
            raise BadInput("`sites` and `components` both say what is replaced; give one of them")
        if self.pairs and (self.sites is not None or self.by is not None):
            raise BadInput("`pairs` are of components; leave out `sites` and `by`")


class Edit(OptionRecord):
    """What takes the place of components in one question: values of which kind, where, and on which prompt."""

    kind: Annotated[
        Any,
        flag(
            "zero, mean, resample (from the counterfactual) or patch (--source). Default: as in `sweep`; patch with "
            "--source; zero on a prompt without one.",
            "--kind",
            "-k",
            asked="always",
            word="{}",
        ),
    ] = None
    at: Annotated[
        str | int | None,
        flag("Only at this position: a role of the prompts, end, a number from 0, or one below 0 from the end."),
    ] = None
    prompt: Annotated[Any, flag("One prompt of your own: a text, or a JSON list of tokens.")] = None
    source: Annotated[Any, flag("The prompt that values are taken from, of as many tokens.")] = None

    def __post_init__(self) -> None:
        if self.prompt is None and self.source is not None:
            raise BadInput("`source` is what `prompt` is patched from; give `prompt` too")
        if self.kind is None and self.prompt is not None:
            object.__setattr__(self, "kind", "zero" if self.source is None else "patch")
        if self.kind is not None:
            object.__setattr__(self, "kind", str(self.kind))
        if self.prompt is None and self.kind == "patch":
            raise BadInput("kind 'patch' takes values from a prompt of yours; give `prompt` and `source`")
        if self.prompt is not None and self.source is None and self.kind != "zero":
            raise BadInput(
                f"kind {self.kind!r} on one prompt takes values from another; give `source`, or use kind 'zero'"
            )


class Continuing(OptionRecord):
    """What a prompt is continued under: sites replaced, and a direction added at one of them."""

    prompt: Annotated[str | None, flag("The text that is continued.")] = None
    edits: Annotated[
        Any, flag("Sites that are replaced, comma-separated: L1H2,L3.resid@2. At every position but those after @.")
    ] = None
    kind: Annotated[
        str | None,
        flag(
            "By what: zero, or patch (--source, at the prompt's positions). Default: patch with --source.",
            "--kind",
            "-k",
        ),
    ] = None
    source: Annotated[str | None, flag("The text that values are taken from, of as many tokens.")] = None
    steer: Annotated[
        Any, flag("The site that a direction is added to, at every position or those after @: L12.resid.")
    ] = None
    toward: Annotated[
        Sequence[str],
        flag("Steer toward this text: the mean of the site's values at the last token of each such text, less --away."),
    ] = ()
    away: Annotated[Sequence[str], flag("Steer away from this text; may be given several times, as --toward.")] = ()
    direction: Annotated[
        Any, flag("Instead of texts: a safetensors file with one tensor, the direction.", rare=True)
    ] = None
    strength: Annotated[float, flag("How many times the direction is added; below 0 against it.")] = 1.0
    tokens: Annotated[int, flag("Tokens to write, the likeliest each time.", least=1, most=1000, word="t{}")] = 20
    seed: Annotated[
        int, flag("Seed of the random directions that steering is compared with.", rare=True, word="seed{}")
    ] = 0

    def __post_init__(self) -> None:
        require_drawable(1, self.seed)
        for name in ("edits", "steer"):
            if (sites := getattr(self, name)) is not None:
                object.__setattr__(self, name, ",".join(map(str, split_names(sites))))
        for name in ("toward", "away"):
            texts = getattr(self, name)
            object.__setattr__(self, name, (texts,) if isinstance(texts, str) else tuple(texts))
        if self.edits is None and (self.kind is not None or self.source is not None):
            raise BadInput("`kind` and `source` say what takes the place of `edits`; give those too")
        kind = self.kind or (None if self.edits is None else "zero" if self.source is None else "patch")
        if kind not in (None, "zero", "patch") or (kind == "patch") != (self.source is not None):
            raise BadInput(f"kind {kind!r}: sites of one prompt are replaced by zero, or by patch with a `source`")
        object.__setattr__(self, "kind", kind)
        if self.steer is None and (self.toward or self.away or self.direction is not None):
            raise BadInput("a direction is added at a site; give `steer`, such as L12.resid")
        if self.steer is not None and (self.direction is None) == (not self.toward):
            raise BadInput("`steer` needs one direction: give `toward` (and `away`) texts, or `direction`")
        if self.direction is not None and self.away:
            raise BadInput("`away` belongs to `toward`; leave it out beside `direction`")
        if not isinstance(self.strength, int | float) or not math.isfinite(self.strength) or not self.strength:
            raise BadInput(f"strength={self.strength} adds no direction; give a number other than 0, such as 1 or -2")

    def require_question(self) -> None:
        """Refuse a question without a prompt, or in which nothing is changed."""
        if not self.prompt:
            raise BadInput("`prompt` is missing; give the text that is continued")
        if self.edits is None and self.steer is None:
            raise BadInput("nothing is replaced or added; give `edits` (sites), or `steer` (a site) with a direction")


class Sparse(OptionRecord):
    """Sparse dictionaries whose latents are sites."""

    features: Annotated[
        Any,
        flag(
            "Directory of sparse autoencoders or transcoders (SAELens, circuit-tracer); their latents are sites: "
            "L12F4711. In `discover`: which latents, heads and error terms keep the behaviour.",
        ),
    ] = None

    def __post_init__(self) -> None:
        if self.features is not None:
            object.__setattr__(self, "features", str(self.features))


class Force(OptionRecord):
    """Whether work goes on where there may be nothing to find."""

    force: Annotated[
        bool, flag("Continue although the model does not perform the behaviour, or the contrast is empty.", "--force")
    ] = False


class Selected(OptionRecord):
    """By which rule a circuit is cut to a size."""

    select: Annotated[
        str | Sequence[str] | None,
        flag(
            "Cut the circuit by a rule: top, greedy, exact, bootstrap or positive-ratio; others after a comma are "
            "compared with it.",
            rare=True,
            word="{}",
        ),
    ] = None
    size: Annotated[
        int | None,
        flag(
            "Edges (or components) that --select keeps at most. Default: enough to keep 0.9.",
            least=1,
            rare=True,
            word="size{}",
        ),
    ] = None


class Cut(Selected):
    """How small a circuit is looked for, or by which rule it is cut to a size."""

    keep: Annotated[
        float | None,
        flag(
            "Share of the behaviour that the circuit keeps on prompts which chose nothing. Default: 0.8, or 0.95 for a "
            "listed vocabulary.",
            word="keep{}",
        ),
    ] = None
    most: Annotated[
        int | None,
        flag("Components that the circuit has at most. Default: a fifth of the model.", least=1, word="most{}"),
    ] = None


class Checked(Sparse):
    """How what was found is checked, and which other circuits are searched beside it: of latents, and rivals."""

    checks: Annotated[
        bool,
        flag("Leave out the checks: faithfulness, stability, specificity, detectors.", "--quick", off="quick"),
    ] = True
    rivals: Annotated[
        int,
        flag(
            "Search so many other circuits as faithful, with little overlap.",
            least=0,
            most=10,
            rare=True,
            word="rivals{}",
        ),
    ] = 0
    rivals_by: Annotated[str, flag("What rivals are made of: components or edges.", rare=True, word="rivals_by{}")] = (
        "components"
    )


def require_share(keep: float) -> None:
    """Refuse a share that a circuit cannot keep."""
    if not 0 < keep <= 1:
        raise BadInput(f"keep={keep:g} is not a share of the behaviour; give a number above 0, at most 1")


class Scoring(OptionRecord):
    """How neurons are scored, and how much of the behaviour they keep."""

    method: Annotated[
        str,
        flag(
            "How neurons are scored: relp, relp-qk or gradient.",
            "--method",
            "-m",
            method_of=("neurons",),
            asked="always",
            word="{}",
        ),
    ] = "relp-qk"
    keep: Annotated[
        float, flag("Share of the behaviour to keep, above 0, at most 1.", asked="always", word="keep{:g}")
    ] = 0.8

    def __post_init__(self) -> None:
        if self.method not in NEURON_RULES:
            raise BadInput(f"method {self.method!r} does not score neurons; choose one of {', '.join(NEURON_RULES)}")
        require_share(self.keep)


class Charted(OptionRecord):
    """How the atlas of a model is made."""

    seed: Annotated[int, flag("Seed of the random tokens.", word="seed{}")] = 0
    words: Annotated[
        Sequence[str],
        flag(
            "A word that heads are asked about, with its leading space: which tokens does each write where it reads "
            "it? May be given several times. Default: four words.",
            "--word",
        ),
    ] = ()

    def __post_init__(self) -> None:
        require_drawable(1, self.seed)


class Aligned(OptionRecord):
    """Which algorithm is aligned with a model, on how many prompts, and where is looked."""

    algorithm: Annotated[
        str | Path | None,
        flag(
            "A program file (.py) whose functions are the variables, or one that ships: arithmetic, ioi, ioi-by-name, "
            "greater-than, capitals, induction, ... Default: that of the behaviour.",
            word="{}",
        ),
    ] = None
    against: Annotated[
        str | Path | None, flag("A rival algorithm, compared on the pairs where the two predictions differ.")
    ] = None
    at: Annotated[
        Sequence[str],
        flag("A place to grade as well: resid19@S2, L19H2+L20H0@end, L12_MLP@end. May be given several times.", "--at"),
    ] = ()
    roles: Annotated[
        Sequence[str], flag("A role to look at (the last position is one always). Default: all.", "--role")
    ] = ()
    layers: Annotated[
        str | None,
        flag("Look before these layers only: 15..25, 0..30/2 (every second), or 3,7,12.", word="layers{}"),
    ] = None
    together: Annotated[
        int,
        flag(
            "Where a variable has no place: try sets of up to so many positions.",
            least=1,
            most=6,
            rare=True,
            word="together{}",
        ),
    ] = 1
    directions: Annotated[
        int,
        flag(
            "Find so many directions (DAS) within the best place of each variable; 0: none.",
            word="k{}",
            least=0,
            rare=True,
        ),
    ] = 0
    held_out: Annotated[
        int,
        flag(
            "Prompts of held-out templates and words on which places are graded.", least=1, rare=True, word="held-out{}"
        ),
    ] = 64

    def __post_init__(self) -> None:
        require_drawable(self.held_out, 0)
        for name in ("algorithm", "against"):
            if (given := getattr(self, name)) is not None:
                object.__setattr__(self, name, str(given))
        for name in ("at", "roles"):
            given = getattr(self, name)
            object.__setattr__(self, name, (given,) if isinstance(given, str) else tuple(map(str, given)))
        if self.layers is not None and not re.fullmatch(r"(\d{1,4}(\.\.\d{1,4}(/[1-9]\d{0,3})?)?(,|$))+", self.layers):
            raise BadInput(f"layers {quoted(self.layers)} cannot be read; write 15..25, 0..30/2 or 3,7,12")
        for name, least, most in (("together", 1, 6), ("directions", 0, None)):
            given = getattr(self, name)
            if given < least or (most is not None and given > most):
                limits = f"{least} or more" if most is None else f"{least} to {most}"
                raise BadInput(f"{name}={given} cannot be used; give {limits}")


class Pruned(OptionRecord):
    """What of a circuit is measured, what takes the place of everything else, and how much has to stay."""

    least: Annotated[float, flag("Prune what scores less than this, by magnitude.", least=0.0)] = 0.0
    pin: Annotated[Any, flag("Components and edges that stay whatever they score: L1H2,a0.h1->m1.")] = None
    prune: Annotated[Any, flag("Components and edges to prune as well.")] = None
    kind: Annotated[Any, flag("resample, zero, mean or value-bias; edges are resampled.", "--kind", "-k")] = "resample"
    keep: Annotated[float, flag("Share of the behaviour that the circuit has to keep, above 0, at most 1.")] = 0.8

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", str(self.kind))
        require_share(self.keep)


class HowFound(OptionRecord):
    """The discovery method, and the options of methods."""

    method: Annotated[
        str | None,
        flag(
            "best, sweep, eap, eap-ig, relp, relp-qk, gim, masks, edge-masks, ensemble, elimination, acdc, bandit, rl, "
            "or a plug-in; options behind it: masks:steps=300. Default: best, or sweep for a listed vocabulary.",
            "--method",
            "-m",
            method_of=("discover",),
        ),
    ] = None
    budget: Annotated[int | None, flag("bandit, rl: heads to pay for (default 50, or all).", rare=True)] = None
    paper: Annotated[bool, flag("rl: as published, quirks included; says which.", "--paper", rare=True)] = False
    seeds: Annotated[
        int | None, flag("bandit, rl: searches, each with its own random seed (1).", least=1, rare=True)
    ] = None
    steps: Annotated[
        int | None,
        flag(
            "eap-ig, best: gradients taken (5). masks: steps of Adam (150). rl: train a policy here for so many steps "
            "(0: the packaged one).",
            least=0,
            rare=True,
        ),
    ] = None


class CircuitMethod(OptionRecord):
    """Which method finds the circuit that is explained."""

    circuit_from: Annotated[
        str | None,
        flag("Discover the circuit by this method first: sweep, eap, eap-ig, relp, acdc or a plug-in.", rare=True),
    ] = None


class CircuitFrom(CircuitMethod):
    """Which circuit is explained, where it is not given by its components."""

    circuit: Annotated[
        Any,
        flag(
            "A circuit (MIB JSON), a discovery.json, a directory of `vesalius discover`, or a run of `bench discovery` "
            "(--circuit-from names its method): explain what scores at least a tenth of the largest."
        ),
    ] = None


class Who(OptionRecord):
    """Who explains."""

    scientist: Annotated[
        Any,
        flag(
            "Who explains: builtin, hyve with a language model, hybrid (built in, then a language model for the rest), "
            "a plug-in, command:PROGRAM that speaks JSON lines, or package.module:function. Default: hyve with "
            "--backbone.",
            method_of=("explain", "bench circuits"),
        ),
    ] = None
    seed: Annotated[int, flag("Seed of all inputs; the same seed, the same explanation.")] = 0
    leave_out: Annotated[
        str | None, flag("A family of hypotheses that the built-in scientist must do without.", rare=True)
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.scientist, str | Configured | None):
            raise BadInput(f"scientist={quoted(self.scientist, 40)} is not a text; give a name, or a scientist")


class Explaining(Who):
    """Who explains, and how much of the model."""

    n: Annotated[
        int | None,
        flag(
            "The most held-out prompts that a claim draws until it is decided, for natural models. Default: 128.",
            least=4,
        ),
    ] = None
    top: Annotated[
        int | None,
        flag(
            "At most this many components are explained, of a natural model. Default: as many as the behaviour needs, "
            "up to a fifth of the model; the 24 strongest are described.",
            least=1,
            rare=True,
        ),
    ] = None
    no_ladder: Annotated[
        bool,
        flag(
            "Fit no attention programs and do not run the explanation in the model's place, of a natural model.",
            rare=True,
        ),
    ] = False


#: The prompts of each verb, where they are not `Draw()`.
SWEPT, DISCOVERED = Draw(n=16), Draw(n=32)
NEURONS, FAITHFUL = Draw(n=16), Draw(n=12, split="validation")
ALIGNED = Sample(n=32)
