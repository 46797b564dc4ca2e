"""What there is to study: list it, look at it, run it, ask what it can do."""

import json as json_format
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from vesalius import api
from vesalius.cli.console import output, print_line, resumable
from vesalius.cli.options import (
    BehaviourOption,
    DeviceOption,
    DtypeOption,
    JsonOption,
    MetricOption,
    OneDeviceOption,
    OnePrompt,
    RevisionOption,
    SpecimenArgument,
    TokenizerOption,
    command,
    names,
)
from vesalius.errors import BadInput
from vesalius.options import Load, Read

commands = typer.Typer()


@command(commands)
def specimens(json: JsonOption = False) -> None:
    """List the specimens that are known by name: the benchmark circuits and two natural models.

    SmolLM2-135M is fetched from the package index on first use; the others come with the package.

    Example: vesalius specimens --json
    """
    output(api.specimens(), as_json=json)


@command(commands)
def show(specimen: SpecimenArgument, behaviour: BehaviourOption = None, json: JsonOption = False) -> None:
    """Show one specimen: its shape, vocabulary and a few examples.

    Example: vesalius show smollm2-135m --behaviour ioi
    """
    output(api.show(specimen, behaviour=behaviour), as_json=json)


@command(commands)
def predict(
    specimen: SpecimenArgument,
    input: Annotated[
        str, typer.Option("--input", "-i", help="A JSON list of inputs (token lists, or texts), @FILE, or - for stdin.")
    ],
    top: Annotated[
        int | None,
        typer.Option("--top", min=1, help="Also the likeliest next tokens with probabilities."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Run the model on inputs and print its decoded outputs.

    A natural model reads its beginning-of-sequence token, where it has one, before every text. The text of a special
    token is read as that token.

    Example: vesalius predict smollm2-135m --input '["The capital of France is"]'
    """
    inputs = _read_inputs(input)
    loaded = api.load(specimen)
    document = {"outputs": api.predict(loaded, inputs), "bos": api.bos_text(loaded)}
    if top is not None:
        document["top"] = api.next_tokens(loaded, inputs, top=top)
    output(document, lambda document: _print_outputs(inputs, document), as_json=json)


@command(commands)
def look(
    specimen: Annotated[str, typer.Argument(help="An id, a name, a natural model or a path.")],
    prompt: Annotated[str, typer.Option("--prompt", help="A text, or for a listed vocabulary a JSON list of tokens.")],
    head: Annotated[
        str | None, typer.Option("--head", help="Say why this head attends where it does, and what it carries: L18H6.")
    ] = None,
    query: Annotated[int, typer.Option("--query", help="The position it attends from; -1 is the last token.")] = -1,
    key: Annotated[
        int | None, typer.Option("--key", help="The position it attends to. Default: the one with most attention.")
    ] = None,
    source: Annotated[
        str | None,
        typer.Option("--source", help="Path patching takes values from this prompt, of as many tokens, not zeros."),
    ] = None,
    *,
    load: Load,
    top: Annotated[int, typer.Option("--top", min=1, help="Next tokens, or pairs of sources, that are listed.")] = 10,
    json: JsonOption = False,
) -> None:
    """Look at one prompt: its tokens, what comes next, or why a head attends from one token to another.

    With --head the attention score is an exact sum over pairs of upstream components, tokens and biases at the query
    and at the key; the leading pairs are confirmed by path patching. Then what the head carries from there: its value
    by upstream component, and the tokens that it raises.

    Example: vesalius look arithmetic --prompt "12 - 3 + 4 =" --head L1H0
    """
    text, other = (
        _read_inputs(f"[{one}]")[0] if one is not None and one.lstrip().startswith("[") else one
        for one in (prompt, source)
    )
    if head is None:
        return output(api.look(specimen, text, load, top=top), as_json=json)
    shown = api.why_attends(specimen, text, head, load, query=query, key=key, source=other, top=top)
    return output(shown, as_json=json, top=top)


@command(commands)
def behaviours(
    specimen: Annotated[str | None, typer.Argument(help="Measure whether this model performs each of them.")] = None,
    behaviour: BehaviourOption = None,
    *,
    read: Read,
    one: OnePrompt,
    metric: MetricOption = None,
    n: Annotated[
        int | None, typer.Option("--n", min=1, help="Prompts per behaviour, or per split. Default: 32, or every row.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the prompts.")] = 0,
    propose: Annotated[
        str | None, typer.Option("--propose", help="Write rows with proposed counterfactuals to this new .jsonl file.")
    ] = None,
    words: Annotated[
        str | None, typer.Option("--words", help="Candidates of your own for --propose, comma-separated.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """List the behaviours; with a model, say whether it performs each one.

    With --behaviour: can it be explained? Which rows the model can be asked and why others are dropped, how often it
    prefers the right answer and how often it says it, and whether replacing everything breaks it. Exit code 2 if no row
    can be used. With --propose, counterfactuals for rows that have none are written to a new file for you to read.

    Example: vesalius behaviours smollm2-135m --behaviour examples/antonyms.jsonl
    """
    studied = one.studied(Load(behaviour=behaviour)).behaviour
    candidates = names(words) or ()
    document = api.behaviours(
        specimen, read, behaviour=studied, metric=metric, n=n, seed=seed, propose=propose, words=candidates
    )
    output(document, as_json=json, flags=("--metric",))
    if studied is not None and not document["n_kept"]:
        raise BadInput(f"{specimen}: none of the rows can be used with this model; the reasons are above")


@command(commands)
def models(json: JsonOption = False) -> None:
    """List the families of models that are read, and how exactly.

    Example: vesalius models --json
    """
    output(api.models(), as_json=json)


@command(commands)
def check(
    model: Annotated[str, typer.Argument(help="A model directory, a GGUF file or a hub id.", metavar="MODEL")],
    n: Annotated[int, typer.Option("--n", min=1, help="Prompts.")] = 8,
    seed: Annotated[int, typer.Option(help="Seed of random token ids.")] = 0,
    dtype: DtypeOption = "auto",
    device: DeviceOption = "auto",
    tokenizer: TokenizerOption = None,
    revision: RevisionOption = None,
    json: JsonOption = False,
) -> None:
    """Compare a model's logits with those of transformers' own module.

    Exit code 0 if rounding explains the largest difference, 1 if it does not, or if nothing could be compared.

    Example: vesalius check path/to/model
    """
    reading = {"tokenizer": tokenizer, "revision": revision, "dtype": dtype, "device": device}
    agreement = api.check(model, n=n, seed=seed, **reading)
    output(agreement, as_json=json)
    if not agreement.agrees:
        raise typer.Exit(1)


def _read_inputs(given: str) -> list[object]:
    """A JSON list from the command line, @FILE or stdin."""
    text = given
    if given == "-":
        text = sys.stdin.read()
    elif given.startswith("@"):
        try:
            text = Path(given[1:]).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(f"{given[1:]}: cannot be read ({error})") from None
    try:
        inputs = json_format.loads(text)
    except (json_format.JSONDecodeError, RecursionError) as error:
        raise BadInput(f'--input is not JSON ({error}); write for example \'[["a", "b"]]\'') from None
    if not isinstance(inputs, list) or not inputs:
        raise BadInput('--input must be a non-empty JSON list of inputs, for example \'[["a", "b"]]\'')
    return inputs


def _print_outputs(inputs: list[Any], document: dict[str, Any]) -> None:
    """What the model made of each input, and the likeliest tokens after it where they were asked for."""
    top: list[list[dict[str, Any]]] | None = document.get("top")
    if document["bos"] is not None:
        print_line(f"before every text the model reads {document['bos']}")
    for place, (source, row) in enumerate(zip(inputs, document["outputs"], strict=True)):
        print_line(f"{source!r} -> {row!r}")
        for one in top[place] if top else ():
            print_line(f"  {one['probability']:.4f}  {one['token']!r}")


# Specimens with a known answer: train a program into a model, generate programs to train.


@command(commands)
def train(
    specs: Annotated[
        list[str],
        typer.Argument(
            help="Python files, each defining program(), vocab, max_len and causal. They are run.", metavar="SPEC.py..."
        ),
    ],
    out: Annotated[str, typer.Option(help="Directory for the specimen; of many, each gets one under it.")],
    seed: Annotated[int, typer.Option(help="First seed; every further try takes the next.")] = 0,
    attempts: Annotated[int, typer.Option(min=1, help="Tries before giving up; later ones are longer and wider.")] = 4,
    device: OneDeviceOption = "cpu",
    json: JsonOption = False,
) -> None:
    """Train a transformer that implements a RASP program in known components, and check that it does.

    A SPEC.py is a program: training runs it with your permissions. Read other people's files first.
    The specimen is accepted only if every figure of the gate holds on fresh inputs. An interrupted training continues
    when the same command is given again. Several files are trained together, in stacks of similar shape, one try each;
    on a GPU that costs little more than one.

    Example: vesalius train examples/frac_prevs.py --out specimens/frac_prevs
    """
    with resumable():
        document = api.train(specs, out=out, seed=seed, attempts=attempts, device=device)
    output(document, as_json=json)


@command(commands)
def generate(
    seed: Annotated[int, typer.Option(help="The same seed gives the same tasks.")],
    out: Annotated[str, typer.Option(help="Directory for the SPEC.py files.")],
    count: Annotated[int, typer.Option(min=1, help="How many tasks.")] = 20,
    depth: Annotated[int, typer.Option(min=1, max=5, help="Longest chain of operators of plain tasks.")] = 4,
    kind: Annotated[list[str] | None, typer.Option(help="Kind of tasks; give several and they take turns.")] = None,
    json: JsonOption = False,
) -> None:
    """Generate fresh RASP tasks over renamed vocabularies, ready for `vesalius train`.

    Kinds: plain (the free grammar, without --kind), redundant (two heads hold the same value), rare (a condition that
    fewer than 2 % of the positions meet), pointer (the token says where to look), induction (what followed earlier
    copies of the token), sort (sorting, ranks, the k-th smallest), mean (means of numbers), two (two tasks in one
    model), deep (six to ten components).

    Example: vesalius generate --seed 7 --count 20 --depth 4 --out tasks

    Of some kinds: vesalius generate --seed 7 --kind pointer --kind induction --count 10 --out tasks
    """
    kinds = tuple(kind or ("plain",))
    output(api.generate(seed=seed, out=out, count=count, depth=depth, kinds=kinds), as_json=json)
