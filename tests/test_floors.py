"""The floors of the house: a lower one never imports a higher one, the core imports no package beside it, and no two
files import each other, not even for their type annotations.
"""

import ast
import inspect
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest

import vesalius
from tests.models import small_config
from vesalius.model import Transformer

ROOT = Path(vesalius.__file__).parent
SOURCE = ROOT.parent

#: What each room may import, apart from itself and the ground. Order of the floors, bottom to top.
GROUND = {
    *("components", "errors", "files", "json_lines", "plugins", "progress", "sealing", "statistics", "values"),
    *("consent", "options", "private", "sites", "version"),
}
FLOORS = [
    {"documents"},
    {"model", "sandbox"},
    {"intervene"},
    {"behaviours", "rasp"},
    {"circuits"},
    {"discovery"},
    {"explanations"},
    {"runs"},
    {"report"},
    {"api"},
    {"cli"},
    {"__main__"},
]
#: Rooms that stand apart from the stairs: these are all they may import.
ALONE: dict[str, set[str]] = {"sandbox": set()}
#: The command line parses, calls the composer and shows: what it may import of the package, apart from its own room.
FACES = {"cli"}
OPEN_TO_FACES = {"api", "consent", "documents", "errors", "options", "plugins", "report", "version"}
HEIGHT = {room: height for height, floor in enumerate(FLOORS) for room in floor}

#: The packages beside the core, each with those below it that it may import.
WINGS: dict[str, set[str]] = {
    "vesalius_backbones": set(),
    "vesalius_serving": set(),
    "vesalius_programs": set(),
    "vesalius_session": {"vesalius_programs"},
    "vesalius_truth": {"vesalius_session"},
    "vesalius_functions": {"vesalius_backbones", "vesalius_truth"},
    "vesalius_mechrl": {"vesalius_truth"},
    "vesalius_features": set(),
    "vesalius_bench": {
        "vesalius_backbones",
        "vesalius_functions",
        "vesalius_mechrl",
        "vesalius_session",
        "vesalius_truth",
    },
    "vesalius_agents": {
        "vesalius_backbones",
        "vesalius_bench",
        "vesalius_functions",
        "vesalius_programs",
        "vesalius_serving",
        "vesalius_session",
        "vesalius_truth",
    },
    "vesalius_workbench": {"vesalius_backbones", "vesalius_bench", "vesalius_functions", "vesalius_serving"},
}
#: Rooms of the core that every package beside it may use, as plug-ins may.
OPEN = GROUND | {"", "api", "cli", "documents", "report", "runs", "sandbox"}
#: Further rooms: those that a wing measures, explains or grades with.
MEASURES = {"behaviours", "circuits", "discovery", "intervene", "model"}
OPEN_TO = {
    "vesalius_backbones": {"explanations"},
    "vesalius_functions": {"model"},
    "vesalius_mechrl": MEASURES,
    "vesalius_features": MEASURES,
    "vesalius_bench": MEASURES | {"explanations", "rasp"},
    "vesalius_agents": {"circuits", "discovery", "explanations", "model", "rasp"},
    "vesalius_serving": set(),
    "vesalius_programs": {"explanations", "intervene", "model", "rasp"},
    "vesalius_session": {"behaviours", "discovery", "explanations", "intervene", "model", "rasp"},
    "vesalius_truth": MEASURES | {"explanations", "rasp"},
    "vesalius_workbench": set(),
}

Import = tuple[str, str, int]


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")


def every_file() -> list[Path]:
    """The files of the core, then those of the packages beside it."""
    return [path for name in ("vesalius", *WINGS) for path in sorted((SOURCE / name).rglob("*.py"))]


@cache
def imports(path: Path) -> list[Import]:
    """Every module that a file imports, wherever in it: (importing module, imported module, line)."""
    return imports_of(module_of(path), path.read_text(encoding="utf-8"))


def imports_of(module: str, source: str) -> list[Import]:
    """The imports of a source: those at its top, in functions and for types, and `import_module("its.name")`."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [(module, alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}:{node.lineno}: relative import; write the whole name"
            found += [(module, f"{node.module}.{alias.name}", node.lineno) for alias in node.names]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            named = [one.value for one in node.args[:1] if isinstance(one, ast.Constant)]
            found += [(module, str(name), node.lineno) for name in named]
    return found


@cache
def every_import() -> tuple[Import, ...]:
    return tuple(found for path in every_file() for found in imports(path))


def package(module: str) -> str:
    return module.partition(".")[0]


def circles(arrows: dict[str, set[str]]) -> list[list[str]]:
    """Groups of files that all import one another, directly or through others."""
    reached = {file: set(targets) for file, targets in arrows.items()}
    for through in arrows:
        for targets in reached.values():
            if through in targets:
                targets |= reached[through]
    mutual = {tuple(sorted(b for b in reached[a] if a in reached[b])) for a in arrows if a in reached[a]}
    return sorted(list(group) for group in mutual)


def file_arrows() -> dict[str, set[str]]:
    """Which file imports which, wherever in the file and whatever for; `from package import name` is an arrow to the
    file of that name where there is one, else to the package's own.
    """
    modules = {module_of(path) for path in every_file()}
    arrows: dict[str, set[str]] = {module: set() for module in modules}
    for importer, imported, _ in every_import():
        target = next((name for name in (imported, imported.rpartition(".")[0]) if name in modules), None)
        if target is not None and target != importer:
            arrows[importer].add(target)
    return arrows


def room(module: str) -> str:
    """The floor, or the top-level module, that a module of the package belongs to ('' for the package itself)."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


def offence(importer: str, imported: str) -> str | None:
    """Why an import breaks the floors, or None."""
    here, there = room(importer), room(imported)
    if here == there or there in GROUND:
        return None
    if here in GROUND:
        return "the ground imports nothing but the ground"
    if here in ALONE and there not in ALONE[here]:
        return f"{here} stands apart"
    if there not in HEIGHT:
        return f"{there!r} is on no floor"
    if HEIGHT[here] <= HEIGHT[there]:
        return f"{here} is not above {there}"
    if here == "rasp" and not imported.startswith("vesalius.components"):
        return "rasp knows a model's component names and nothing else of it"
    return None


def test_no_floor_imports_a_higher_one() -> None:
    inside = [found for found in every_import() if {package(found[0]), package(found[1])} == {"vesalius"}]
    inside = [found for found in inside if room(found[0])]
    assert len(inside) > 100
    broken = [f"{a}:{line} imports {b}: {why}" for a, b, line in inside if (why := offence(a, b))]
    assert not broken, "\n".join(broken)


def test_no_circle_of_files() -> None:
    arrows = file_arrows()
    assert sum(map(len, arrows.values())) > 1000
    assert circles(arrows) == []


@pytest.mark.parametrize(
    "source",
    [
        "from vesalius.cli import app",
        "def names():\n    import vesalius.cli",
        "def names():\n    return import_module('vesalius.cli').app",
        "names = importlib.import_module('vesalius.cli.options')",
    ],
)
def test_an_import_upwards_is_seen_wherever_it_stands(source: str) -> None:
    ((importer, imported, _),) = imports_of("vesalius.api.plugin_listing", source)
    assert offence(importer, imported) == "api is not above cli"


def face_offences(arrows: Iterable[Import]) -> list[str]:
    """Imports by which a face reaches past the composer."""
    return [
        f"{importer}:{line} imports {imported}; faces import only {', '.join(sorted(OPEN_TO_FACES))}"
        for importer, imported, line in arrows
        if package(importer) == package(imported) == "vesalius"
        and room(importer) in FACES
        and room(imported) not in OPEN_TO_FACES | {"", room(importer)}
    ]


def test_faces_reach_the_house_through_the_composer() -> None:
    arrows = every_import()
    assert {room(importer) for importer, _, _ in arrows} & FACES >= {"cli"}
    assert face_offences(arrows) == []


@pytest.mark.parametrize("imported", ["vesalius.discovery.discover.CORE", "vesalius.files", "vesalius.runs"])
def test_a_face_that_reaches_past_the_composer_is_seen(imported: str) -> None:
    assert face_offences([("vesalius.cli.commands.bench", imported, 1)])
    assert not face_offences([("vesalius.api.benchmarks", imported, 1)])


def wing_offence(importer: str, imported: str) -> str | None:
    """Why an import breaks the order of the packages, or None."""
    here, there = package(importer), package(imported)
    if here == there or not there.startswith("vesalius"):
        return None
    if here == "vesalius":
        return "the core knows no package beside it; let it register an entry point"
    if there != "vesalius":
        return None if there in WINGS[here] else f"{here} is not above {there}"
    allowed = OPEN | OPEN_TO[here]
    return None if room(imported) in allowed else f"{here} may import of the core {', '.join(sorted(allowed))}"


def test_the_core_imports_no_package_beside_it_and_they_use_what_is_open_to_them() -> None:
    arrows = every_import()
    assert {package(importer) for importer, _, _ in arrows} == {"vesalius", *WINGS}
    broken = [f"{a}:{line} imports {b}: {why}" for a, b, line in arrows if (why := wing_offence(a, b))]
    assert not broken, "\n".join(broken)


@pytest.mark.parametrize(
    ("importer", "imported"),
    [
        ("vesalius.runs.listing", "vesalius_bench.survey.documents.Survey"),
        ("vesalius.cli", "vesalius_workbench.cli"),
        ("vesalius_functions.bench.benchmark", "vesalius_bench.papers.published"),
        ("vesalius_workbench.store", "vesalius.explanations.claims"),
        ("vesalius_functions.box", "vesalius.circuits.specimens"),
    ],
)
def test_the_order_of_the_packages_catches(importer: str, imported: str) -> None:
    assert wing_offence(importer, imported)


def test_a_circle_is_seen_through_any_number_of_files() -> None:
    arrows = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}, "e": set()}
    assert circles(arrows) == [["a", "b", "c"]]
    assert circles(arrows | {"c": {"e"}}) == []


#: Where a model's layers are run: the model itself, the interventions, and training, which runs stacks of copies.
RUNS_LAYERS = {"model", "intervene"}
#: What the others may use of a transformer; its weights, its blocks and the steps of its pass are what is left.
FRONT = {"components", "config", "device", "devices", "run_with_cache", "run_with_hooks"}
#: Names that only code running the layers itself imports.
LAYER_NAMES = {"Attention", "Block", "Heads", "Layout", "Mlp", "NormLayer", "Tap", "rotate", "take_positions"}
#: They write or copy weights and run nothing.
HANDLES_WEIGHTS = {
    "vesalius.circuits.originals",
    "vesalius_bench.natural.planted",
    "vesalius_mechrl.sets.planted",
    "vesalius_truth.grading.plans",
    "vesalius_truth.planted",
}


@cache
def internals() -> tuple[set[str], set[str]]:
    """The attributes of a transformer that lead to its weights, and the methods that are steps of its pass."""
    model = Transformer(small_config(rotary=None))
    weights = {name.split(".")[0] for name, _ in model.named_parameters()}
    own = {name for name in vars(Transformer) if not name.startswith("_")} - FRONT - {"forward"}
    steps = {name for name in own if inspect.isfunction(vars(Transformer)[name])}
    return weights | (own - steps), steps


def layers_run_in(source: str) -> list[str]:
    """What in a source reaches behind the front of a transformer, with its line."""
    weights, steps = internals()
    reached = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and node.attr in weights:
            reached.append(f"{node.lineno}: .{node.attr}")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in steps:
            reached.append(f"{node.lineno}: .{node.func.attr}()")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "getattr":
            reached += [
                f"{node.lineno}: getattr {argument.value!r}"
                for argument in node.args[1:2]
                if isinstance(argument, ast.Constant) and argument.value in weights | steps
            ]
        elif isinstance(node, ast.ImportFrom) and str(node.module).startswith("vesalius.model"):
            reached += [f"{node.lineno}: import {alias.name}" for alias in node.names if alias.name in LAYER_NAMES]
    return reached


def test_only_the_model_the_interventions_and_training_run_layers() -> None:
    """Every other floor calls a model as a whole, with hooks, or the primitives of `intervene`."""
    reached = []
    for path in every_file():
        module = module_of(path)
        if package(module) != "vesalius" and "model" not in OPEN_TO[package(module)]:
            continue
        if package(module) == "vesalius_functions" and ".evaluators" not in module:
            continue  # the spaces of numeric functions have blocks of their own
        if module.startswith("vesalius_truth.training."):
            continue
        # Rooms that stand apart cannot import a model at all.
        if room(module) in RUNS_LAYERS | set(ALONE) or module in HANDLES_WEIGHTS:
            continue
        reached += [f"{module}:{what}" for what in layers_run_in(path.read_text(encoding="utf-8"))]
    assert not reached, "\n".join(reached)


def test_what_handles_weights_is_still_there_and_still_does() -> None:
    for module in HANDLES_WEIGHTS:
        path = SOURCE.joinpath(*module.split(".")).with_suffix(".py")
        assert layers_run_in(path.read_text(encoding="utf-8")), f"{module} needs no exception any more"


@pytest.mark.parametrize(
    "source",
    [
        "z = model.blocks[0].attn.W_O",
        "x = self.specimen.model.ln_final(resid, tap)",
        "logits = model.unembed(resid, None, tap)",
        "resid = model.embed(ids, model.layout(ids), tap)",
        "rows = model.unembed_weight[tokens]",
        "blocks = getattr(model, 'blocks')",
        "from vesalius.model.hooks import Cache, Tap",
        "from vesalius.model.transformer import take_positions",
    ],
)
def test_a_private_pass_is_seen(source: str) -> None:
    assert layers_run_in(source)


def test_calling_a_model_is_no_private_pass() -> None:
    source = "from vesalius.model.hooks import HookPoint\nmodel.run_with_hooks(tokens, fwd_hooks=[])\nvalues.embed[0]"
    assert layers_run_in(source) == []
    weights, steps = internals()
    assert weights == {"W_E", "W_pos", "W_U", "b_U", "blocks", "ln_final", "unembed_weight"}
    assert steps == {"embed", "layout", "mean_unembedding", "unembed"}


def test_every_room_is_on_a_floor() -> None:
    rooms = {path.stem for path in ROOT.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert rooms - {"__init__"} <= GROUND | set(HEIGHT)


@pytest.mark.parametrize(
    ("importer", "imported"),
    [
        ("vesalius.model.hooks", "vesalius.intervene.Batch"),
        ("vesalius.intervene.plan", "vesalius.behaviours.trial"),
        ("vesalius.rasp.placement", "vesalius.model.transformer.Transformer"),
        ("vesalius.rasp.placement", "vesalius.behaviours.builtin"),
        ("vesalius.errors", "vesalius.model.config"),
        ("vesalius.discovery.sweep", "vesalius.runs.ledger"),
        ("vesalius.sandbox.fork", "vesalius.model.config"),
        ("vesalius.report.plots", "vesalius.api.load"),
        ("vesalius.api", "vesalius.cli.console"),
        ("vesalius.model.states", "vesalius.utils.io"),
    ],
)
def test_the_rule_catches(importer: str, imported: str) -> None:
    assert offence(importer, imported)


def test_the_package_front_imports_lazily() -> None:
    """`import vesalius` reaches only the ground at run time; the rest is for type checkers or on demand."""
    tree = ast.parse((ROOT / "__init__.py").read_text(encoding="utf-8"))
    eager = {node.module for node in tree.body if isinstance(node, ast.ImportFrom)}
    assert {name for name in eager if str(name).startswith("vesalius")} == {"vesalius.errors", "vesalius.version"}


#: Libraries that talk to language models, each behind an extra, and the packages that may import them.
CLIENTS = {"anthropic", "google", "inspect_ai", "langchain", "litellm", "mcp", "openai", "xllamacpp"}
ASKING = {"vesalius_agents", "vesalius_backbones"}


def asks_a_language_model(imported: str) -> bool:
    """Whether an imported module is a client of language models, one of our backbones, or the agent on them."""
    return package(imported).partition("_")[0] in CLIENTS or package(imported) in ASKING


def test_the_core_knows_no_language_model() -> None:
    """It imports no backbone, no provider and no HyVE, for types neither, and no file of it names their modules in
    code: they are found by entry points.
    """
    asking = {package(a) for a, b, _ in every_import() if package(b).partition("_")[0] in CLIENTS}
    assert asking == ASKING
    core = [path for path in every_file() if package(module_of(path)) == "vesalius"]
    assert [found for path in core for found in imports(path) if asks_a_language_model(found[1])] == []
    named = [
        f"{module_of(path)}: {text}" for path in core for text in module_texts(path) if asks_a_language_model(text)
    ]
    assert named == []
    assert not {"backbones", "hyve", "judges"} & {name for path in core for name in module_of(path).split(".")}


def module_texts(path: Path) -> list[str]:
    """Texts in a file's code that could be names of modules: `import_module` would take them."""
    constants = [node.value for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Constant)]
    texts = [text.partition(":")[0] for text in constants if isinstance(text, str) and ("." in text or ":" in text)]
    return [text for text in texts if all(part.isidentifier() for part in text.split("."))]


@pytest.mark.parametrize(
    "imported",
    ["vesalius_backbones.records", "vesalius_agents.hyve", "langchain_openai", "openai.types", "google.genai"],
)
def test_a_language_model_in_the_core_is_seen(imported: str, tmp_path: Path) -> None:
    assert asks_a_language_model(imported)
    (tmp_path / "file.py").write_text(f"module = import_module('{imported}:name')")
    assert module_texts(tmp_path / "file.py") == [imported]


def test_other_peoples_model_code_is_never_needed() -> None:
    foreign = {"transformers", "transformer_lens"}
    # One module loads transformers, by name, where it is installed: to compare with, and to wrap.
    importers = {importer for importer, imported, _ in every_import() if package(imported) in foreign}
    assert importers == {"vesalius.model.huggingface"}


def test_only_grading_opens_the_answer_key() -> None:
    key, allowed = "vesalius_truth.key", ("vesalius_truth.key", "vesalius_truth.grading")
    readers = {a for a, b, _ in every_import() if b == key or b.startswith(key + ".")}
    assert {a for a in readers if not (a + ".").startswith(tuple(name + "." for name in allowed))} == set()
