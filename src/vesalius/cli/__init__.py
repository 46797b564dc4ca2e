"""The `vesalius` command.

Commands are declared here with light imports only, so that `--help` never loads torch; each command's work lives in
a module of its own that is imported when it runs. Results go to stdout, progress and logs to stderr. Exit codes: 0
done, 1 failed, 2 bad usage or bad input, each with one clear line.
"""

import os
import sys
from typing import Annotated, Any, Optional

import typer

from vesalius.errors import BadInput, Failed
from vesalius.version import __version__

app = typer.Typer(
    name="vesalius",
    help="Find, explain and check the circuits inside transformer language models.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    add_completion=False,
    pretty_exceptions_enable=False,
)

bench = typer.Typer(
    name="bench", help="Run a benchmark and print its scorecard.", no_args_is_help=True, rich_markup_mode="rich"
)
app.add_typer(bench)

functions = typer.Typer(
    name="functions",
    help="Black-box functions with known answers: 1,000 numeric, 1,000 on strings, 200 entities, 75 relations.\n\n"
    "Each hides a rule: a formula with noise or a corrupted interval, operations on text, a concept that words are "
    "scored by, a fact about the world with an exception. [bold]vesalius functions sample[/bold] shows some of them "
    "with their truth; [bold]vesalius bench functions[/bold] lets somebody find the rules from questions alone and "
    "grades the answers; [bold]vesalius report RUN[/bold] draws them.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)
app.add_typer(functions)

#: What every complaint about the command line derives from, whichever copy of click typer brings along.
_USAGE_ERROR: Any = typer.BadParameter.__base__
#: The exit code typer gives to Ctrl-C.
INTERRUPTED = 130

SpecimenArgument = Annotated[
    str,
    typer.Argument(
        help="A benchmark circuit by id or name (3, frac_prevs), a directory made by `vesalius train`, "
        "or a natural model: smollm2-135m, a model directory, a GGUF file, a hub id.",
        metavar="SPECIMEN",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else.")]
BehaviourOption = Annotated[
    Optional[str],  # noqa: UP045 - typer reads this form on every version
    typer.Option("--behaviour", "-b", help="What a natural model is dissected for: induction, ioi, docstring, ..."),
]
DeviceOption = Annotated[str, typer.Option("--device", help="cpu, cuda or mps.")]
SpecimensOption = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--specimens", help="A directory of specimens made by `vesalius train`, instead of the 84."),
]
IdsOption = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--ids", help="Only these benchmark circuits, by id or name, comma-separated: 3,4,8."),
]
LimitOption = Annotated[Optional[int], typer.Option("--limit", min=1, help="Only the first N of them.")]  # noqa: UP045
CategoryOption = Annotated[str, typer.Option("--category", help="numeric, strings, entities or relations.")]
FunctionsSeedOption = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option("--seed", min=0, help="Seed of the draw. Default: 2309, the reported suite."),
]
DatasetOption = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--dataset", help="A folder of the published dataset, instead of drawing afresh."),
]
ModeOption = Annotated[str, typer.Option("--mode", help="fixed, or published with the published benchmark's faults.")]
JobsOption = Annotated[int, typer.Option("--jobs", min=1, help="Cases at a time; the results do not depend on it.")]
EngineOption = Annotated[str, typer.Option("--engine", help="Where cases run: local processes, or ray.")]
MaxCostOption = Annotated[
    Optional[float],  # noqa: UP045
    typer.Option("--max-cost", help="Spend at most this many dollars, over all jobs and resumptions."),
]
PricesOption = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--prices", help="A JSON file of prices that replace or join the package's table."),
]
RunOption = Annotated[str | None, typer.Option("--out", help="Directory of the run. Default: vesalius-runs/...")]


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and leave.")] = False,
) -> None:
    if version:
        print(__version__)
        raise typer.Exit()


@app.command()
def specimens(json: JsonOption = False) -> None:
    """List the specimens that need no download: name, components, shape.

    Example: vesalius specimens --json
    """
    from vesalius.cli import catalogue as command

    command.list_specimens(as_json=json)


@app.command()
def show(specimen: SpecimenArgument, behaviour: BehaviourOption = None, json: JsonOption = False) -> None:
    """Show one specimen: its shape, vocabulary and a few examples.

    Example: vesalius show smollm2-135m --behaviour ioi
    """
    from vesalius.cli import catalogue as command

    command.show(specimen, behaviour=behaviour, as_json=json)


@app.command()
def predict(
    specimen: SpecimenArgument,
    input: Annotated[
        str, typer.Option("--input", "-i", help="A JSON list of inputs (token lists, or texts), @FILE, or - for stdin.")
    ],
    json: JsonOption = False,
) -> None:
    """Run the model on inputs and print its decoded outputs.

    Example: vesalius predict smollm2-135m --input '["The capital of France is"]'
    """
    from vesalius.cli import catalogue as command

    command.predict(specimen, input, as_json=json)


@app.command()
def behaviours(
    specimen: Annotated[Optional[str], typer.Argument(help="Measure whether this model performs each of them.")] = None,  # noqa: UP045
    n: Annotated[int, typer.Option("--n", min=1, help="Prompts per behaviour.")] = 32,
    seed: Annotated[int, typer.Option(help="Seed of the prompts.")] = 0,
    json: JsonOption = False,
) -> None:
    """List the behaviours; with a model, say whether it performs each one.

    Example: vesalius behaviours smollm2-135m --n 32
    """
    from vesalius.cli import catalogue as command

    command.behaviours(specimen, n=n, seed=seed, as_json=json)


@app.command()
def sweep(
    specimen: SpecimenArgument,
    behaviour: BehaviourOption = None,
    kind: Annotated[
        str, typer.Option("--kind", "-k", help="zero, mean, resample (from the counterfactual prompt) or value-bias.")
    ] = "zero",
    pairs: Annotated[
        bool, typer.Option("--pairs", help="Replace every pair of components instead of each alone.")
    ] = False,
    components: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--components", "-c", help="Only these, comma-separated, in any notation: L1H2,a0.h1,m3. Default: all."
        ),
    ] = None,
    n: Annotated[int, typer.Option("--n", min=1, help="Prompts.")] = 16,
    seed: Annotated[int, typer.Option(help="Seed of the prompts and of the bootstrap.")] = 0,
    split: Annotated[
        str, typer.Option(help="Pool of names, templates and fillers: train, validation or test.")
    ] = "test",
    top: Annotated[int, typer.Option(min=1, help="Rows of the printed table.")] = 12,
    out: Annotated[
        str | None, typer.Option(help="Directory for the picture and the numbers. Default: vesalius-runs/...")
    ] = None,
    device: DeviceOption = "cpu",
    json: JsonOption = False,
) -> None:
    """Measure how much each head and MLP matters, with intervals and a picture.

    Replaces each component on every prompt and reports clean minus edited score: positive means removing it hurts.
    An interrupted sweep goes on where it stopped when the same command is given again.

    Example: vesalius sweep smollm2-135m --behaviour induction --kind zero
    """
    from vesalius.cli import sweeping as command

    named = _listed(components)
    request = command.Request(specimen, behaviour, kind, pairs, named, n, seed, split)
    command.run(request, out=out, top=top, device=device, as_json=json)


@app.command()
def discover(
    specimen: SpecimenArgument,
    behaviour: BehaviourOption = None,
    method: Annotated[
        str, typer.Option("--method", "-m", help="sweep, eap, eap-ig, acdc, bandit, rl, sets.")
    ] = "sweep",
    n: Annotated[int, typer.Option("--n", min=1, help="Prompts.")] = 32,
    seed: Annotated[int, typer.Option(help="Seed of the prompts.")] = 0,
    budget: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="bandit, rl: heads to pay for (default 50, or all); sets: sets to pay for (all of 1 or 2)."),
    ] = None,
    paper: Annotated[bool, typer.Option("--paper", help="rl: as published, quirks included; says which.")] = False,
    seeds: Annotated[int, typer.Option(min=1, help="bandit, rl: searches, each with luck of its own.")] = 1,
    steps: Annotated[
        int, typer.Option(min=0, help="rl: train a policy here for so many steps. 0: the packaged one.")
    ] = 0,
    force: Annotated[
        bool, typer.Option("--force", help="Go on although the model does not perform the behaviour.")
    ] = False,
    top: Annotated[int, typer.Option(min=1, help="Rows of the printed table.")] = 12,
    out: Annotated[str | None, typer.Option(help="Directory for circuit.json. Default: vesalius-runs/...")] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Leave out the checks: faithfulness, stability, specificity, detectors.")
    ] = False,
    search: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="With --method sets: group, greedy, beam, prune, rl or pairs. Default: group."),
    ] = None,
    pool: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="With --method sets: the heads to choose among, comma-separated. Default: all."),
    ] = None,
    kind: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="With --method sets: zero, mean, resample or value-bias. Default: mean."),
    ] = None,
    least: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(help="With --method sets: smallest synergy that counts, as a share of the clean score."),
    ] = None,
    device: DeviceOption = "cpu",
    json: JsonOption = False,
) -> None:
    """Score the components and edges of a model by how much a behaviour needs them.

    Writes circuit.json in the format of the MIB benchmark and discovery.html with pictures. Where the true circuit is
    known the scores are graded. With --method sets it looks for heads that matter together and back each other up, and
    writes sets.json.

    Example: vesalius discover frac_prevs --method eap-ig
    """
    if method == "sets":
        from vesalius.cli import sets as sets_command

        named = _listed(pool)
        least = 0.1 if least is None else least
        request = sets_command.Request(
            specimen, behaviour, method, search or "group", budget, named, kind or "mean", least, n, seed
        )
        return sets_command.run(request, out=out, top=top, device=device, as_json=json, force=force)
    if any(given is not None for given in (search, pool, kind, least)):
        raise BadInput("--search, --pool, --kind and --least go with --method sets; add it or leave them out")
    from vesalius.cli import discovering as command

    options = command.SearchOptions(budget, paper, seeds, steps)
    request = command.Request(specimen, behaviour, method, n, seed, options)
    command.discover_one(request, out=out, top=top, device=device, as_json=json, force=force, quick=quick)
    return None


@app.command()
def explain(
    specimen: SpecimenArgument,
    behaviour: BehaviourOption = None,
    components: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--components", "-c", help="The circuit, comma-separated. Default: the specimen's own, or chosen."
        ),
    ] = None,
    circuit: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--circuit",
            help="A circuit.json of `vesalius discover`: explain what scores at least a tenth of the largest.",
        ),
    ] = None,
    n: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(min=4, help="Held-out prompts, for natural models. Default: 16."),
    ] = None,
    top: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(min=1, help="Components taken by effect, for natural models. Default: 12."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Go on although the model does not perform the behaviour.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Seed of all inputs; the same seed, the same explanation.")] = 0,
    out: Annotated[str | None, typer.Option(help="Directory for the explanation and its page.")] = None,
    device: DeviceOption = "cpu",
    scientist: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            help="Who explains: builtin, or hyve with a language model. Default: hyve if --backbone is given."
        ),
    ] = None,
    backbone: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="The language model, as PROVIDER:MODEL, such as openai:gpt-5.4.", metavar="P:M"),
    ] = None,
    protocol: Annotated[
        str, typer.Option(help="typed: claims that the engine decides. paper: free code that the model judges itself.")
    ] = "typed",
    base_url: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Address of a server of your own, for compatible and local models."),
    ] = None,
    max_cost: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(help="The most to spend, in dollars."),
    ] = None,
    max_tokens: Annotated[int, typer.Option(help="The longest reply of the language model.")] = 4096,
    prices: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Your own price table (JSON)."),
    ] = None,
    record: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Where to record the calls, and to find those made before. Default: the run's directory."),
    ] = None,
    replay: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Serve every call from this record; nothing is asked or paid."),
    ] = None,
    unsafe_sandbox: Annotated[
        bool, typer.Option("--unsafe-sandbox", help="Run the model's code even where it cannot be contained.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Say what each component of a circuit does, with the experiments behind every sentence.

    Works from the model alone: programs for specimens with a listed vocabulary, the causal profile (roles of heads and
    MLPs) for natural models with --behaviour. With --backbone a language model proposes (HyVE). It writes
    explanation.json and report.html, the evidence page; HyVE also trace.json.

    Example: vesalius explain frac_prevs
    """
    from vesalius.cli import explaining as command

    named = _listed(components)
    request = command.Request(specimen, behaviour, named, circuit, n, top, force, seed)
    asked = command.Asked(
        scientist, backbone, protocol, base_url, max_cost, max_tokens, prices, record, replay, unsafe_sandbox
    )
    command.explain(request, out=out, device=device, as_json=json, asked=asked)


@app.command()
def report(
    run: Annotated[
        str, typer.Argument(help="A directory made by `vesalius explain`, `discover` or `bench`.", metavar="RUN")
    ],
    json: JsonOption = False,
) -> None:
    """Render the pages of a run again and print the path of the evidence page, or of a benchmark's index page.

    Example: vesalius report vesalius-runs/explain-frac_prevs-seed0
    """
    from vesalius.cli import explaining as command

    command.report(run, as_json=json)


@app.command()
def train(
    specs: Annotated[
        list[str],
        typer.Argument(help="Python files, each defining program(), vocab, max_len and causal.", metavar="SPEC.py..."),
    ],
    out: Annotated[str, typer.Option(help="Directory for the specimen; of many, each gets one under it.")],
    seed: Annotated[int, typer.Option(help="First seed; every further try takes the next.")] = 0,
    attempts: Annotated[int, typer.Option(min=1, help="Tries before giving up; later ones are longer and wider.")] = 4,
    device: DeviceOption = "cpu",
    json: JsonOption = False,
) -> None:
    """Train a transformer that implements a RASP program in known components, and check that it does.

    The specimen is accepted only if every figure of the gate holds on fresh inputs. An interrupted training goes on
    where it stopped when the same command is given again. Several files are trained together, in stacks of like shape,
    one try each; on a GPU that costs little more than one.

    Example: vesalius train examples/frac_prevs.py --out specimens/frac_prevs
    """
    from vesalius.cli import making as command

    command.train(specs, out=out, seed=seed, attempts=attempts, device=device, as_json=json)


@app.command()
def generate(
    seed: Annotated[int, typer.Option(help="The same seed gives the same tasks.")],
    out: Annotated[str, typer.Option(help="Directory for the SPEC.py files.")],
    count: Annotated[int, typer.Option(min=1, help="How many tasks.")] = 20,
    depth: Annotated[int, typer.Option(min=1, max=5, help="Longest chain of operators.")] = 4,
    json: JsonOption = False,
) -> None:
    """Make up fresh RASP tasks over renamed vocabularies, ready for `vesalius train`.

    Example: vesalius generate --seed 7 --count 20 --depth 4 --out tasks
    """
    from vesalius.cli import making as command

    command.make_tasks(seed=seed, count=count, depth=depth, out=out, as_json=json)


@bench.command("circuits")
def bench_circuits(
    scientist: Annotated[
        str, typer.Option("--scientist", help="Who explains: builtin, hyve, or your own as package.module:function.")
    ] = "builtin",
    backbone: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--backbone", help="The language model of the hyve scientist, as in openai:gpt-5.4."),
    ] = None,
    protocol: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--protocol", help="typed (claims checked by the engine; default) or paper (code, as published)."),
    ] = None,
    judge: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option("--judge", help="A language model that judges the texts; give it twice for two judges."),
    ] = None,
    specimens: SpecimensOption = None,
    ids: IdsOption = None,
    limit: LimitOption = None,
    circuit_from: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--circuit-from",
            help="Discover the circuit by this method (sweep, eap, eap-ig, acdc) instead of taking the given one.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the scientist; grading has one of its own.")] = 0,
    jobs: JobsOption = 2,
    engine: EngineOption = "local",
    max_cost: MaxCostOption = None,
    prices: PricesOption = None,
    unsafe_sandbox: Annotated[
        bool, typer.Option("--unsafe-sandbox", help="Run generated code even where the kernel offers no isolation.")
    ] = False,
    out: RunOption = None,
    leave_out: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--leave-out", help="A family of hypotheses that the built-in scientist must do without."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Explain circuits with known answers, grade tags and programs, and print the scorecard.

    Every metric comes with its interval, its n and its baseline, beside what null explanations earn. An interrupted run
    goes on where it stopped when the same command is given again; only the cap, the jobs and the engine may change.

    Example: vesalius bench circuits --limit 5 --json
    """
    from vesalius.cli import benching as command

    request = command.Request(
        scientist=scientist,
        specimens=specimens,
        ids=_listed(ids),
        limit=limit,
        circuit_from=circuit_from,
        seed=seed,
        leave_out=leave_out,
        backbone=backbone,
        protocol=protocol,
        judges=tuple(judge or ()),
        prices=prices,
        max_cost=max_cost,
        unsafe_sandbox=unsafe_sandbox,
    )
    command.circuits(request, jobs=jobs, engine=engine, out=out, as_json=json)


@bench.command("discovery")
def bench_discovery(
    methods: Annotated[str, typer.Option("--methods", help="Which, comma-separated.")] = "sweep,eap,eap-ig,acdc",
    specimens: SpecimensOption = None,
    ids: IdsOption = None,
    limit: LimitOption = None,
    n: Annotated[int, typer.Option("--n", min=2, help="Prompts per circuit.")] = 32,
    seed: Annotated[int, typer.Option(help="Seed of the prompts.")] = 0,
    jobs: JobsOption = 2,
    out: RunOption = None,
    json: JsonOption = False,
) -> None:
    """Find circuits with known answers by each method; print how well scores tell the true parts, and at what cost.

    An interrupted run goes on where it stopped when the same command is given again.

    Example: vesalius bench discovery --methods sweep,eap --limit 5
    """
    from vesalius.cli import discovering as command

    wanted = tuple(name.strip() for name in _listed(methods) or [])
    request = command.BenchRequest(wanted, specimens, _listed(ids), limit, n, seed)
    command.bench(request, jobs=jobs, out=out, as_json=json)


@bench.command("mechrl")
def bench_mechrl(
    specimen: SpecimenArgument = "smollm2-135m",
    paper: Annotated[bool, typer.Option("--paper", help="As published, quirks included; says which.")] = False,
    seeds: Annotated[int, typer.Option(min=1, help="Policies trained of each kind, and sets of episodes.")] = 5,
    steps: Annotated[int, typer.Option(min=1, help="Training steps of each policy.")] = 200_000,
    episodes: Annotated[int, typer.Option(min=1, help="Test episodes per seed.")] = 30,
    size: Annotated[
        str, typer.Option(help="laptop: 8 rows per episode, half an hour of one core; full: 32 rows, wants a GPU.")
    ] = "laptop",
    training: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Behaviours to train on. Default: induction,ioi; with --paper induction-out,ioi."),
    ] = None,
    held_out: Annotated[
        str, typer.Option(help="Behaviours to search that no policy is trained on.")
    ] = "docstring,greater-than,capitals",
    matrices: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Directory of measured effect matrices. Default: measured into the run's directory."),
    ] = None,
    out: RunOption = None,
    device: DeviceOption = "cpu",
    json: JsonOption = False,
) -> None:
    """Print the tables of MechRL for a natural model, with intervals, beside searches that learn nothing.

    Measures effect matrices, trains policies, and plays; each goes on where it stopped when the same command is given
    again.

    Example: vesalius bench mechrl smollm2-135m --seeds 5
    """
    from vesalius.cli import searching as command

    tasks = tuple(_listed(training) or ()), tuple(_listed(held_out) or ())
    request = command.Request(specimen, paper, seeds, steps, episodes, size, *tasks)
    command.bench(request, matrices=matrices, out=out, device=device, as_json=json)


@functions.command("sample")
def functions_sample(
    category: CategoryOption,
    seed: FunctionsSeedOption = None,
    count: Annotated[
        int, typer.Option("--count", min=1, help="How many; the first of a longer draw are the same.")
    ] = 5,
    mode: ModeOption = "fixed",
    dataset: DatasetOption = None,
    json: JsonOption = False,
) -> None:
    """Draw black-box functions and show what they are, with a few inputs and outputs.

    Example: vesalius functions sample --category strings --count 3
    """
    from vesalius.cli import interpreting as command

    command.sample(category, seed=seed, count=count, mode=mode, dataset=dataset, as_json=json)


@bench.command("functions")
def bench_functions(
    category: CategoryOption,
    interpreter: Annotated[
        str,
        typer.Option(
            "--interpreter",
            help="builtin, oracle (the ceiling), table (numeric), aia, milan, aia+milan, or package.module:function.",
        ),
    ] = "builtin",
    backbone: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--backbone", help="The language model of aia and milan, as in openai:gpt-5.4.", metavar="P:M"),
    ] = None,
    evaluator: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--evaluator", help="A language model that takes the unit tests of descriptions.", metavar="P:M"),
    ] = None,
    dataset: DatasetOption = None,
    seed: FunctionsSeedOption = None,
    count: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option("--count", min=1, help="How many functions. Default: 1000, 1000, 200 or 75, by category."),
    ] = None,
    mode: ModeOption = "fixed",
    budget: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option("--budget", min=1, help="Queries per function. Default: as many as the interpreter wants."),
    ] = None,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Commands a language model may send.")] = 20,
    jobs: JobsOption = 2,
    engine: EngineOption = "local",
    max_cost: MaxCostOption = None,
    prices: PricesOption = None,
    unsafe_sandbox: Annotated[
        bool, typer.Option("--unsafe-sandbox", help="Run submitted code even where the kernel offers no isolation.")
    ] = False,
    out: RunOption = None,
    json: JsonOption = False,
) -> None:
    """Find the rules of black-box functions from questions alone, grade the answers, and print the scorecard.

    An interrupted run goes on where it stopped when the same command is given again; only the cap, the jobs and the
    engine may change. Code of an answer runs in the sandbox only.

    Example: vesalius bench functions --category numeric --count 20 --json
    """
    from vesalius.cli import interpreting as command

    request = command.Request(
        category, interpreter, backbone, evaluator, dataset, seed, count, mode, budget, rounds, prices
    )
    command.bench(request, max_cost, unsafe_sandbox, jobs=jobs, engine=engine, out=out, as_json=json)


@app.command()
def replay(
    run: Annotated[str, typer.Argument(help="A finished run of `vesalius bench`.", metavar="RUN")],
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Cases at a time.")] = 2,
    json: JsonOption = False,
) -> None:
    """Do a run again from its recorded calls, without network or key, and compare the scorecards.

    Exit code 0 if the stored scorecard is reproduced, 1 if not, with what differs.

    Example: vesalius replay vesalius-runs/bench-circuits-builtin-first5-seed0
    """
    from vesalius.cli import comparing as command

    command.replay_run(run, jobs=jobs, as_json=json)


@app.command()
def compare(
    runs: Annotated[list[str], typer.Argument(help="Finished runs of `vesalius bench circuits`.", metavar="RUN...")],
    json: JsonOption = False,
) -> None:
    """Print the published tables of the circuits benchmark with these runs beside the published rows.

    Example: vesalius compare vesalius-runs/bench-circuits-builtin-seed0
    """
    from vesalius.cli import comparing as command

    command.compare_runs(runs, as_json=json)


def _listed(names: str | None) -> list[str] | None:
    """The names of a comma-separated option; None where it was not given."""
    return None if names is None else [name for name in names.split(",") if name.strip()]


def main() -> None:
    """Entry point: turns refusals and failures into one line and an exit code."""
    try:
        code = app(prog_name="vesalius", standalone_mode=False)
    except _USAGE_ERROR as error:
        _stop(error.format_message() or "a command is missing", 2)
    except BadInput as error:
        _stop(error, 2)
    except Failed as error:
        _stop(error, 1)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        _stop(f"{error.filename or 'system'}: {error.strerror or error}", 1)
    except MemoryError:
        _stop("out of memory; use fewer prompts (--n) or a smaller model", 1)
    else:
        if code == INTERRUPTED:
            _stop("interrupted; what was finished is kept, the same command goes on from there", INTERRUPTED)
        sys.exit(code or 0)


def _stop(reason: object, code: int) -> None:
    if os.environ.get("VESALIUS_DEBUG") and isinstance(reason, BaseException):
        raise reason
    print(f"vesalius: {' '.join(str(reason).split())}", file=sys.stderr)
    sys.exit(code)
