"""Hard models with known circuits, their weights written by hand: deeper chains with what misleads discovery.

The residual stream has one-hot subspaces for token, position, each variable and the output. The task is a chain: at
each layer one head copies the variable of the previous position, and the MLP joins it with the variable itself by a
random Latin square, which is the next variable; the last one is the output. Every value of either input changes the
result, so that all of the chain is needed. The seed draws depth, heads, squares and which of these are added:

- `split`: one copying head is two, each of which writes half. Both belong to the circuit.
- `backups`: three heads copy the result and an MLP takes what two of them say. Each alone can be spared.
- `negative`: a head takes 0.4 of the token's letter off the output, which the chain outweighs. It counts as
  part of the circuit.
- `position`: one position pushes a wrong letter and a head that reads the position alone removes it.
- `cancelling`: two heads write twice the token to the output, one with the opposite sign. Together they do nothing and
  are not in the circuit; each alone seems to matter.
- `second task`: another chain shares the first layer and adds 0.3 of its result to the output, which never wins.
- `noise`: normal noise of the stated size on all weights, so that idle parts write something. What counts is that the
  outputs of the model itself stay, also where noise makes it err.

The truth is which components the chain and its helpers stand in, and by which edges variables are read. Edges that
carry the position alone are the same on every prompt and are left out on both sides, as in `grading.discovery`.
"""

from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import torch
from torch import Tensor

from vesalius.circuits.specimens import KEY_FOLDER, Card, as_examples, write_specimen
from vesalius.components import Component, Edge, all_components
from vesalius.files import write_json
from vesalius.model.config import Config
from vesalius.model.transformer import Transformer

LETTERS = "abcd"
Q, SHORTEST, LONGEST, HEADS = len(LETTERS), 3, 8, 4
FEATURES = ("split", "backups", "negative", "position", "cancelling", "second task")
FEATURES_BY_LETTER = ("negative", "cancelling")
NOISE = (0.0, 0.002, 0.004)
SHARP, CONTRAST, PUSH = 80.0, 10.0, 2.0
TRUTH_FILE = "truth.json"
TOKEN = slice(0, Q)
POSITION = slice(Q, Q + LONGEST + 1)
_FIRST = POSITION.stop


@dataclass
class _Builder:
    """A model under construction: `free` heads by layer, variables by their writers, and the truth so far."""

    random: Random
    depth: int
    features: frozenset[str]
    model: Transformer
    free: list[list[int]]
    slots: int = 0
    units: list[int] = field(default_factory=list)
    components: set[Component] = field(default_factory=set)
    edges: set[Edge] = field(default_factory=set)
    constant: set[Edge] = field(default_factory=set)

    def slot(self) -> slice:
        """A new subspace for a variable."""
        self.slots += 1
        return slice(_FIRST + (self.slots - 1) * Q, _FIRST + self.slots * Q)

    def head(self, layer: int) -> Component:
        """A head of a layer without a job."""
        return Component(layer, self.free[layer].pop())

    def copy(self, head: Component, source: slice, target: slice, *, scale: float, shift: bool) -> None:
        """Let a head write a variable, of the previous position (BOS: its own) or of its own."""
        attention = self.model.blocks[head.layer].attn
        query, key, value, output = (w[head.head] for w in (attention.W_Q, attention.W_K, attention.W_V, attention.W_O))
        n = LONGEST + 1
        query[POSITION, :n] = SHARP * torch.eye(n)
        key[POSITION, :n] = torch.eye(n).roll(1, 1) if shift else torch.eye(n)
        if shift:
            key[POSITION.stop - 1] = 0
            key[POSITION.start, 0] = 1
        value[source, :Q] = torch.eye(Q)
        output[:Q, target] += scale * torch.eye(Q)

    def join(self, layer: int, left: slice, right: slice, target: slice, *, square: Tensor, scale: float) -> None:
        """Let an MLP look two variables up in a table."""
        mlp, first = self.model.blocks[layer].mlp, self.units[layer]
        for i in range(Q):
            for j in range(Q):
                unit = first + i * Q + j
                mlp.W_in[left.start + i, unit] = mlp.W_in[right.start + j, unit] = 1
                mlp.b_in[unit] = -1
                mlp.W_out[unit, target.start + int(square[i, j])] += scale
        self.units[layer] += Q * Q

    def read(self, sender: Component | None, receiver: Component | None, port: str) -> None:
        """Note that a variable is read by an edge of the circuit."""
        self.edges.add(Edge(sender, receiver, port))  # type: ignore[arg-type]

    def belongs(self, head: Component, source: Component | None) -> None:
        """Note a copying head of the circuit, which reads the position by q and k."""
        self.components.add(head)
        self.read(source, head, "v")
        self.constant |= {Edge(None, head, "q"), Edge(None, head, "k")}


@dataclass(frozen=True)
class PlantedCircuit:
    """A hard model, its features, and the truth about it."""

    seed: int
    model: Transformer
    features: tuple[str, ...]
    noise: float
    squares: tuple[Tensor, ...]
    components: frozenset[Component]
    edges: frozenset[Edge]
    constant: frozenset[Edge]
    by_letter: bool = False

    @property
    def name(self) -> str:
        """The features in one word."""
        return "_".join(
            (
                "letters" if self.by_letter else "chain",
                *(name.replace(" ", "-") for name in self.features),
                f"noise{self.noise:g}",
            )
        )

    def expected(self, letters: list[str]) -> list[str]:
        """The correct output of the task."""
        values = [0, *(LETTERS.index(letter) for letter in letters)]
        for square in self.squares:
            values = [int(square[values[max(0, p - 1)], value]) for p, value in enumerate(values)]
        return [LETTERS[value] for value in values[1:]]

    def write(self, directory: Path) -> Path:
        """Write a specimen directory with the truth in its answer key."""
        config = self.model.config
        examples: list[list[str]] = [list("abcd"), list("dcba"), list("aab"), list("bddca"), list("cacacaca")]
        card = Card(
            id=f"{'letters' if self.by_letter else 'hard'}-{self.seed}",
            name=self.name,
            kind="trained",
            vocab=tuple(LETTERS),
            max_len=LONGEST,
            min_len=SHORTEST,
            outputs=tuple(LETTERS),
            components=tuple(map(str, all_components(config))),
            layers=config.n_layers,
            heads=config.n_heads,
            d_model=config.d_model,
            examples=as_examples([(letters, self.expected(letters)) for letters in examples]),
            gate={},
            made_by=f"vesalius_truth.planted.plant_hard({self.seed}{', by_letter=True' * self.by_letter})",
        )
        write_specimen(directory, self.model, card)
        truth = {"components": sorted(map(str, self.components))}
        truth |= {name: sorted(map(str, getattr(self, name))) for name in ("edges", "constant")}
        (directory / KEY_FOLDER).mkdir(exist_ok=True)
        write_json(directory / KEY_FOLDER / TRUTH_FILE, truth)
        return directory


@torch.no_grad()
def plant_hard(seed: int, *, by_letter: bool = False) -> PlantedCircuit:
    """Build the hard model of a seed. `by_letter` makes small ones in which the head that copies tokens is two, one for
    each half of the letters: on inputs of one half the other head is idle, and a circuit found there fails elsewhere.
    """
    random = Random(f"{'letters' if by_letter else 'hard'}/{seed}")
    depth = random.choice((2, 3) if by_letter else (2, 3, 4))
    features = frozenset(name for name in (FEATURES_BY_LETTER if by_letter else FEATURES) if random.random() < 0.5)
    n_layers = depth + ("backups" in features)
    d_model = _FIRST + Q * (4 * depth + 4)
    config = Config(
        n_layers=n_layers,
        n_heads=HEADS,
        d_model=d_model,
        d_head=LONGEST + 1,
        d_mlp=2 * Q * Q + 2 * Q,
        d_vocab=Q + 2,
        d_vocab_out=Q,
        n_ctx=LONGEST + 1,
        activation="relu",
        bos_token=Q,
        pad_token=Q + 1,
    )
    free = [random.sample(range(HEADS), HEADS) for _ in range(n_layers)]
    built = _Builder(random, depth, features, Transformer(config), free, units=[0] * n_layers)
    output = built.slot()
    squares = _chain(built, output, by_letter=by_letter)
    _helpers(built, output)
    noise = random.choice(NOISE)
    generator = torch.Generator().manual_seed(seed)
    for weight in built.model.parameters():
        weight += noise * torch.randn(weight.shape, generator=generator)
    return PlantedCircuit(
        seed,
        built.model,
        tuple(name for name in FEATURES if name in features),
        noise,
        tuple(squares),
        frozenset(built.components),
        frozenset(built.edges),
        frozenset(built.constant),
        by_letter,
    )


def _chain(built: _Builder, output: slice, *, by_letter: bool) -> list[Tensor]:
    """Embeddings, the chain with its split head and backups, the second task, and the readout."""
    model, random = built.model, built.random
    assert model.W_pos is not None
    model.W_E[:Q, TOKEN] = torch.eye(Q)
    model.W_E[Q, 0] = 1  # BOS counts as the first letter
    model.W_pos[:, POSITION] = torch.eye(LONGEST + 1)
    model.unembed_weight[:, output] = CONTRAST * torch.eye(Q)
    split = random.randrange(built.depth) if "split" in built.features else None
    backups, squares = "backups" in built.features, []
    variable, writer = TOKEN, None
    other, shifted_first = TOKEN, TOKEN
    for layer in range(built.depth):
        last = layer == built.depth - 1
        shifted, following = built.slot(), output if last and not backups else built.slot()
        halves = by_letter and layer == 0
        heads = [built.head(layer) for _ in range(2 if layer == split or halves else 1)]
        for place, head in enumerate(heads):
            built.copy(head, variable, shifted, scale=1.0 if halves else 1 / len(heads), shift=True)
            if halves:
                model.blocks[layer].attn.W_V[head.head][TOKEN][Q // 2 * (1 - place) : Q // 2 * (2 - place)] = 0
            built.belongs(head, writer)
            built.read(head, Component(layer), "mlp")
        squares.append(_latin_square(random))
        built.join(layer, shifted, variable, following, square=squares[-1], scale=1.0)
        built.components.add(Component(layer))
        built.read(writer, Component(layer), "mlp")
        if "second task" in built.features:
            if layer == 0:
                shifted_first = shifted
            else:
                shifted_first = built.slot()
                built.copy(built.head(layer), other, shifted_first, scale=1.0, shift=True)
            target = output if last else built.slot()
            built.join(layer, shifted_first, other, target, square=_latin_square(random), scale=0.3 if last else 1.0)
            other = target
        variable, writer = following, Component(layer)
    if backups:
        writer = _backups(built, variable, writer, output)
    built.read(writer, None, "logits")
    return squares


def _backups(built: _Builder, variable: slice, writer: Component | None, output: slice) -> Component:
    """Three copies of the result, and an MLP that writes what at least two of them say."""
    layer, copied = built.depth, built.slot()
    mlp, first = built.model.blocks[layer].mlp, built.units[layer]
    for _ in range(3):
        head = built.head(layer)
        built.copy(head, variable, copied, scale=1.0, shift=False)
        built.belongs(head, writer)
        built.read(head, Component(layer), "mlp")
    for edge, sign in ((1.3, 2.0), (1.8, -2.0)):
        units = slice(first, first + Q)
        mlp.W_in[copied, units] = torch.eye(Q)
        mlp.b_in[units] = -edge
        mlp.W_out[units, output] = sign * torch.eye(Q)
        first += Q
    built.components.add(Component(layer))
    return Component(layer)


def _helpers(built: _Builder, output: slice) -> None:
    """The negative head, the one that holds a position, and the pair that cancels."""
    model, random, top = built.model, built.random, built.model.config.n_layers - 1
    assert model.W_pos is not None
    layers = [layer for layer in range(top + 1) for _ in built.free[layer]]
    if "negative" in built.features and built.free[built.depth - 1]:
        head = built.head(built.depth - 1)
        built.copy(head, TOKEN, output, scale=-0.4, shift=False)
        built.belongs(head, None)
        built.read(head, None, "logits")
    if "position" in built.features:
        place, letter = random.randint(1, SHORTEST), random.randrange(Q)
        layer = random.choice([layer for layer in range(top + 1) if built.free[layer]])
        head = built.head(layer)
        built.copy(head, TOKEN, output, scale=0.0, shift=False)
        attention = model.blocks[layer].attn
        attention.W_V[head.head][TOKEN] = 0
        attention.W_V[head.head][POSITION.start + place, 0] = 1
        attention.W_O[head.head][0, output.start + letter] = -PUSH
        model.W_pos[place, output.start + letter] = PUSH
        built.components.add(head)
        built.constant |= {
            Edge(None, head, "q"),
            Edge(None, head, "k"),
            Edge(None, head, "v"),
            Edge(head, None, "logits"),
        }
    if "cancelling" in built.features:
        roomy = [layer for layer in set(layers) if len(built.free[layer]) > 1]
        if roomy:
            layer = random.choice(sorted(roomy))
            for sign in (1.0, -1.0):
                built.copy(built.head(layer), TOKEN, output, scale=sign * PUSH, shift=False)


def _latin_square(random: Random) -> Tensor:
    """A table in which each row and each column holds every letter once."""
    rows, columns, letters = (random.sample(range(Q), Q) for _ in range(3))
    return torch.tensor([[letters[(row + column) % Q] for column in columns] for row in rows])
