"""The published InterpBench models, from a local copy or from the hub.

One folder per case holds `ll_model.pth` (weights), `ll_model_cfg.pkl` (shape), `edges.pkl` (the circuit as pairs of
hook names) and `meta.json` (training settings). Both pickles are parsed by a reader that executes nothing.

The files do not say which token has which id. The models were trained on the ids of Tracr's encoder: the tokens and the
two markers "BOS" and "PAD", sorted together. Numbers sort before the markers and lower-case words after them, so BOS is
sometimes second to last and sometimes first. The embedding's rows are therefore reordered to this package's order
(tokens, then BOS, then PAD): the same function under other ids. The models were trained on the longest inputs only, so
inputs are drawn with that length.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cmp_to_key
from pathlib import Path
from typing import Any

from vesalius.circuits.specimens import Inputs, as_examples, benchmark_cards, draw_inputs, load_specimen
from vesalius.components import Component
from vesalius.errors import BadInput, choices
from vesalius.files import read_json
from vesalius.model.lens_files import Inert, load_lens, read_pickle_inert
from vesalius.model.sources import download
from vesalius.model.specimen import FiniteVocabulary, Specimen, Token, Value
from vesalius.model.states import build, to_state
from vesalius.model.transformer import Transformer
from vesalius.values import JsonObject, from_json

WEIGHTS, SHAPE, EDGES, META = "ll_model.pth", "ll_model_cfg.pkl", "edges.pkl", "meta.json"
#: What the id of a published model begins with.
ORIGINAL = "interpbench/"
BOS, PAD = "BOS", "PAD"
N_EXAMPLES = 5

_VOCAB_FIELDS = ("vocab", "vocabulary", "input_vocab", "tokens")
_OUTPUT_FIELDS = ("outputs", "output_vocab", "output_labels", "labels")
#: Deeper than any published edge object; bounds the search in an object that contains itself.
_MAX_DEPTH = 6

_INDEX = r"(?:\[(?P<index>[^\]]*)\])?"
_HEAD_HOOK = re.compile(
    r"blocks\.(?P<layer>\d+)\."
    r"(?:attn\.hook_(?:result|z|q|k|v|rot_q|rot_k|attn_scores|pattern)|(?:attn\.)?hook_[qkv]_input|hook_attn_in)"
    + _INDEX
)
_MLP_HOOK = re.compile(r"blocks\.(?P<layer>\d+)\.(?:mlp\.hook_(?:in|pre|post|out)|hook_mlp_(?:in|out))" + _INDEX)
_NO_COMPONENT = re.compile(
    r"(?:(?:blocks\.\d+\.)?hook_resid_(?:pre|mid|post)|(?:hook_)?(?:tok_|pos_)?embed(?:\.hook_\w+)?"
    r"|(?:hook_)?unembed(?:\.hook_\w+)?|input|output|logits|tokens)" + _INDEX
)


def load_original(
    source: str | Path,
    case: str | int | None = None,
    *,
    vocab: Sequence[Token] | None = None,
    outputs: Sequence[Value] | None = None,
    revision: str | None = None,
) -> Specimen:
    """Load one published model as a specimen whose components are those named in `edges.pkl`.

    `source` is a directory with one folder per case, such a folder itself, or a hub id
    (`cybershiptrooper/InterpBench`), of which only this case's files are fetched. `vocab` lists the input tokens in any
    order; if it contains "BOS" and "PAD", its order is the order of the ids. `outputs` lists the output values in the
    order of the logits. Both default to `meta.json`, then to the specimen of the same case in this package. Without
    outputs a categorical output is the index of its logit. The examples show the model's own outputs.
    """
    folder, name = _folder(source, None if case is None else str(case).strip(), revision)
    meta = read_json(folder / META) if (folder / META).is_file() else {}
    model = load_lens(_present(folder / WEIGHTS), _present(folder / SHAPE))
    card = next((card for card in benchmark_cards() if card.id == name), None)
    vocab = _first(vocab, _meta_list(meta, _VOCAB_FIELDS, folder), None if card is None else card.vocab)
    ids = _token_ids(vocab, model, folder)
    tokens = tuple(token for token in ids if token not in (BOS, PAD))
    model = _reorder_ids(model, [ids.index(token) for token in (*tokens, BOS, PAD)], folder)
    of_card = None if card is None or card.outputs is None else tracr_order(v for v in card.outputs if v is not None)
    fits = of_card is not None and len(of_card) == model.config.d_vocab_out
    outputs = _first(outputs, _meta_list(meta, _OUTPUT_FIELDS, folder), of_card if fits else None)
    values = _output_values(outputs, model, folder)
    inputs = Inputs(tokens, model.config.n_ctx - 1)

    def draw(n: int, seed: int) -> list[list[Token]]:
        codes, _ = draw_inputs(inputs, n, seed=seed, min_length=inputs.max_len)
        return [[tokens[code] for code in row] for row in codes.tolist()]

    specimen = Specimen(
        id=f"{ORIGINAL}{name}",
        name=f"{ORIGINAL}{name}",
        kind="benchmark",
        model=model,
        vocabulary=FiniteVocabulary(tokens, values, inputs.max_len),
        components=original_components(folder, model),
        examples=(),
        draw=draw,
    )
    sample = specimen.sample(N_EXAMPLES)
    return replace(specimen, examples=as_examples(list(zip(sample, specimen.predict(sample), strict=True))))


def load_directory(directory: Path) -> Specimen:
    """Load a specimen directory, or the folder of a published case."""
    return load_original(directory) if (directory / WEIGHTS).is_file() else load_specimen(directory)


def original_folders(source: str | Path, ids: Sequence[str] | None = None) -> list[Path]:
    """The folders of published cases (with `ids`, of these): in a directory, the directory itself if it is one, or in
    a repository of the hub, of which only they are fetched. Refused where a case lacks one of its files.
    """
    root = Path(source).expanduser()
    if not root.exists():
        cases = ["*"] if ids is None else ids
        names = (WEIGHTS, SHAPE, EDGES, META)
        root = download(str(source), allow=[f"{case}/{name}" for case in cases for name in names])
    folders = [root] if (root / WEIGHTS).is_file() else [path for path in root.iterdir() if (path / WEIGHTS).is_file()]
    found = {folder.resolve().name: folder for folder in sorted(folders, key=_case_order)}
    for case in ids or ():
        if case not in found:
            raise BadInput(f"{source}: there is no case {case!r}; it holds {choices(found) or f'no {WEIGHTS}'}")
    for folder in found.values():
        for name in (SHAPE, EDGES):
            _present(folder / name)
    return [folder for case, folder in found.items() if ids is None or case in ids]


def holds_originals(folder: Path) -> bool:
    """Whether a directory is, or has in it, the folder of a published case."""
    return folder.is_dir() and any((path / WEIGHTS).is_file() for path in (folder, *folder.iterdir()))


def _case_order(folder: Path) -> tuple[int, str]:
    name = folder.resolve().name
    return (len(name) if name.isdecimal() else 10**6, name)


def original_edges(directory: str | Path) -> list[tuple[str, str]]:
    """The circuit of one case as (writer, reader) hook names, as published; nothing in the pickle is executed."""
    path = _present(Path(directory).expanduser() / EDGES)
    edges = _edge_list(read_pickle_inert(path))
    if not edges:
        raise BadInput(f"{path}: holds no list of edges; expected pairs of hook names, so download it again")
    pairs = []
    for place, edge in enumerate(edges):
        names = list(_node_names(edge))
        if len(names) != 2:
            raise BadInput(f"{path}: edge {place} names {len(names)} nodes; expected a writer and a reader")
        pairs.append((names[0], names[1]))
    return pairs


def original_components(directory: str | Path, model: Transformer) -> tuple[Component, ...]:
    """Heads and MLPs named at either end of an edge, in order of computation."""
    edges, path = original_edges(directory), Path(directory).expanduser() / EDGES
    try:
        named = {component for edge in edges for name in edge if (component := hook_component(name))}
        components = sorted(component.within(model.config) for component in named)
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from None
    if not components:
        raise BadInput(f"{path}: no edge touches a head or an MLP; download the file again")
    return tuple(components)


def hook_component(name: str) -> Component | None:
    """The head or MLP that a hook belongs to (`blocks.1.hook_q_input[:, :, 2, :]` is in `L1H2`); None for the residual
    stream, the embedding and the output.
    """
    text = name.strip()
    if _NO_COMPONENT.fullmatch(text):
        return None
    if match := _HEAD_HOOK.fullmatch(text):
        heads = re.findall(r"\d+", match["index"] or "")
        if len(heads) != 1:
            raise BadInput(f"hook {text!r} does not say which head; expected an index such as [2] or [:, :, 2, :]")
        return Component(int(match["layer"]), int(heads[0]))
    if match := _MLP_HOOK.fullmatch(text):
        return Component(int(match["layer"]))
    try:
        return Component.parse(text)
    except BadInput:
        names = "blocks.1.attn.hook_result[2], blocks.1.hook_q_input[2], blocks.0.mlp.hook_post"
        raise BadInput(f"hook {text!r} belongs to no head or MLP; expected names such as {names}") from None


def tracr_order(values: Iterable[Value]) -> list[Value]:
    """Values in the order of Tracr's encoders: numerical or alphabetical, by `str` where two cannot be compared."""

    def precedes(a: Any, b: Any) -> bool:
        try:
            return a < b
        except TypeError:
            return str(a) < str(b)

    return sorted(values, key=cmp_to_key(lambda a, b: precedes(b, a) - precedes(a, b)))


def _first(*choices: object) -> Any:
    """The first that is not None."""
    return next((choice for choice in choices if choice is not None), None)


def _folder(source: str | Path, case: str | None, revision: str | None) -> tuple[Path, str]:
    """The folder of one case and the case's name."""
    root = Path(source).expanduser()
    if (root / WEIGHTS).is_file():
        return root, case or root.resolve().name
    if root.is_file():
        raise BadInput(f"{root}: not a directory; give the directory that holds one folder per case, or a hub id")
    if case is None or not re.fullmatch(r"\w[\w.-]*", case):
        raise BadInput(f"{source}: case {case!r} is not the name of a folder in it; name the case to load, such as 3")
    if not root.is_dir():
        root = download(
            str(source), revision=revision, allow=[f"{case}/{name}" for name in (WEIGHTS, SHAPE, EDGES, META)]
        )
    if not (root / case).is_dir():
        cases = sorted(path.name for path in root.iterdir() if (path / WEIGHTS).is_file())
        raise BadInput(
            f"{source}: there is no case {case!r}; it holds {choices(cases) or f'no folder with a {WEIGHTS}'}"
        )
    return root / case, case


def _present(path: Path) -> Path:
    if not path.is_file():
        raise BadInput(f"{path}: no such file; a case needs {WEIGHTS}, {SHAPE} and {EDGES}, so download it again")
    return path


def _meta_list(meta: JsonObject, fields: Sequence[str], folder: Path) -> Sequence[Any] | None:
    """The first of these fields of `meta.json`, which must be a list."""
    for field in fields:
        if (value := meta.get(field)) is not None:
            if not isinstance(value, list):
                raise BadInput(f"{folder / META}: {field} is {type(value).__name__}; expected a list")
            return value
    return None


def _token_ids(vocab: Sequence[Token] | None, model: Transformer, folder: Path) -> list[Token]:
    """Every token in the order of the published ids, including the two markers."""
    size = model.config.d_vocab
    if vocab is None:
        raise BadInput(f"{folder / META}: no list of input tokens; pass vocab= with the {size - 2} tokens of the task")
    for token in vocab:
        if isinstance(token, bool) or not isinstance(token, str | int | float):
            raise BadInput(f"{folder}: token {token!r} of the vocabulary is neither text nor number")
    has_markers = BOS in vocab and PAD in vocab
    needed = size if has_markers else size - 2
    if len(set(vocab)) != len(vocab) or len(vocab) != needed or (BOS in vocab) != (PAD in vocab):
        raise BadInput(
            f"{folder}: a vocabulary of {len(vocab)} tokens does not fit; this model takes {size - 2} distinct tokens, "
            f"or {size} with {BOS!r} and {PAD!r} among them in the order of their ids"
        )
    return list(vocab) if has_markers else tracr_order([*vocab, BOS, PAD])  # type: ignore[return-value]


def _reorder_ids(model: Transformer, order: list[int], folder: Path) -> Transformer:
    """The same model with row `order[i]` of the embedding at id i; its last two ids are BOS and PAD."""
    size = model.config.d_vocab
    config = model.config.model_copy(update={"bos_token": size - 2, "pad_token": size - 1})
    # Explicit, so that an unembedding tied to the embedding keeps its order.
    state = {**to_state(model), "unembed.W_U": model.W_U.detach().clone()}
    state["embed.W_E"] = state["embed.W_E"][order]
    return build(config, state, where=str(folder / WEIGHTS))


def _output_values(outputs: Sequence[object] | None, model: Transformer, folder: Path) -> tuple[Value, ...] | None:
    """The value of each logit; None where the one output is a number."""
    width = model.config.d_vocab_out
    if outputs is None:
        return None if width == 1 else tuple(range(width))
    if width == 1 or len(outputs) != width:
        needed = "none: its output is one number" if width == 1 else f"{width}, in the order of the logits"
        raise BadInput(f"{folder}: {len(outputs)} output values do not fit; this model needs {needed}")
    return from_json(list(outputs))


def _edge_list(parsed: object) -> list[object]:
    """The edges as a list, from any collection or an object that holds one collection."""
    if isinstance(parsed, Inert):
        collections = [part for part in _parts(parsed) if isinstance(part, list | tuple | set | dict)]
        return list(collections[0]) if len(collections) == 1 else []
    return list(parsed) if isinstance(parsed, list | tuple | set | frozenset | dict) else []


def _node_names(value: object, depth: int = 0) -> Iterator[str]:
    """Hook names in an edge: strings, or objects that hold one hook name and at most one head index."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | tuple | Inert) and depth < _MAX_DEPTH:
        parts = _parts(value)
        if isinstance(value, Inert):
            hooks = [part for part in parts if isinstance(part, str) and re.search("hook|embed|logits", part)]
            parts = [part for part in parts if not isinstance(part, str)]
            if hooks:
                yield from [_indexed(hooks[0], parts)] if len(hooks) == 1 else hooks
                return
        for part in parts:
            yield from _node_names(part, depth + 1)


def _indexed(hook: str, siblings: list[object]) -> str:
    """A hook name with the one head index found in the other parts of its object, if there is one."""
    heads = set(_numbers(siblings))
    return f"{hook}[{heads.pop()}]" if len(heads) == 1 and "[" not in hook else hook


def _numbers(value: object, depth: int = 0) -> Iterator[int]:
    if isinstance(value, int) and not isinstance(value, bool):
        yield value
    elif isinstance(value, list | tuple | Inert) and depth < _MAX_DEPTH:
        for part in _parts(value):
            yield from _numbers(part, depth + 1)


def _parts(value: Sequence[object] | Inert) -> list[object]:
    """The values of an object or a sequence; an object with slots keeps them in one sequence, its state."""
    if not isinstance(value, Inert):
        return list(value)
    state = value.fields.get("state")
    return [*value.arguments, *(state if isinstance(state, list | tuple) else value.fields.values())]
