"""Make a league: fresh circuits, black-box functions, and a key that is locked away.

The seed makes the tasks, so it is part of the key; the order of the circuits is shuffled, since tasks are generated
with roles that take turns.
"""

import hashlib
import json
import os
import random
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vesalius.api.door import directory_for, verb
from vesalius.circuits.specimens import SPECIMEN_FILE, write_blind
from vesalius.errors import BadInput, Failed, note
from vesalius.files import write_json
from vesalius.model.states import weights_sha256
from vesalius.progress import Progress, silent
from vesalius.rasp import Program, roles_of
from vesalius.rasp.document import to_document
from vesalius_bench.league.documents import KEY_NAME, LEAGUE_FILE, SPECIMENS, League, LeagueCircuit, now, text_digest
from vesalius_bench.options import LeagueOptions
from vesalius_bench.sealing import cryptography_needed, seal_text
from vesalius_truth.fresh.generator import generate
from vesalius_truth.making import key_file, key_program, make_many
from vesalius_truth.training.trainer import StepReport

MAKING = "making"
#: Categories that need no data packages.
FUNCTION_CATEGORIES = ("numeric", "strings")
#: A smaller seed can be found by trying them all.
LEAST_SECRET_SEED = 2**64
#: Tasks beyond those wanted, since some are not learnt, and how often more are tried.
SPARE, ROUNDS = 0.2, 4


@verb
def make_league(
    *, made: LeagueOptions, out: str | Path, passphrase: str | None = None, progress: Progress = silent
) -> League:
    """Generate and train `circuits` fresh circuits, draw `functions` of each category, and lock their key away.

    The key is sealed with `passphrase`, or written as plain JSON to `key_out`, outside the league. Without a `seed` a
    secret one is drawn. `specimens` takes circuits that `vesalius train` made (on a GPU, say) instead. Without
    `circuits_given`, specimens do not say which components make up their circuit. A call that was killed continues.
    """
    if made.circuits < 1 or made.functions < 0:
        wanted = f"circuits={made.circuits}, functions={made.functions}"
        raise BadInput(f"{wanted}: give at least 1 circuit and 0 or more functions")
    directory, key_file_out = _places(out, passphrase, made.key_out)
    work = directory_for(directory / MAKING)
    seed = _secret_seed(work, made.seed)
    if made.specimens is not None:
        sources = sorted(path.parent for path in Path(made.specimens).glob(f"*/{SPECIMEN_FILE}"))
        for place in sources:
            key_file(place)
        if len(sources) < made.circuits:
            held = f"holds {len(sources)} specimens with a key"
            raise BadInput(f"`specimens` {made.specimens}: {held}; {made.circuits} are wanted")
        del sources[made.circuits :]
    else:
        sources = _train_fresh(work, made.circuits, made.depth, seed, progress)
    rng = random.Random(f"{seed}/order")
    rng.shuffle(sources)
    names = {f"c{number:02d}": source for number, source in enumerate(sources, 1)}
    entries = [_entry(name, source, directory, made.circuits_given) for name, source in names.items()]
    drawn = {category: {"seed": _drawn_seed(rng), "count": made.functions} for category in FUNCTION_CATEGORIES}
    key = _key_text(names, seed, made.depth, drawn if made.functions else {})
    if passphrase is not None:
        write_json(directory / KEY_NAME, seal_text(key, passphrase))
    else:
        assert key_file_out is not None
        _write_private(key_file_out, key)
    league = League(
        made=now(),
        circuits=tuple(entries),
        circuits_given=made.circuits_given,
        functions=dict.fromkeys(FUNCTION_CATEGORIES, made.functions) if made.functions else {},
        depth=None if made.specimens is not None else made.depth,
        key="apart" if passphrase is None else "sealed",
        key_sha256=text_digest(key),
    )
    shutil.rmtree(work)
    league.write(directory / LEAGUE_FILE)
    return league


def _places(out: str | Path, passphrase: str | None, key_out: str | Path | None) -> tuple[Path, Path | None]:
    """Where the league and its key go; refused before any work where one of them cannot."""
    if (passphrase is None) == (key_out is None):
        raise BadInput("the key: give a `passphrase_file` that seals it, or `key_out`, a file outside the league")
    if passphrase is not None:
        cryptography_needed()
        if len(passphrase) < 8:
            raise BadInput(f"the passphrase has {len(passphrase)} characters; give at least 8")
    directory = directory_for(out)
    if (directory / LEAGUE_FILE).exists():
        raise BadInput(f"`out` {directory}: holds a league already; choose another directory")
    if key_out is None:
        return directory, None
    place = Path(key_out).resolve()
    if place.is_relative_to(directory.resolve()):
        raise BadInput(f"`key_out` {key_out}: is inside the league, which is given away; choose a place outside")
    if place.exists() or not place.parent.is_dir():
        raise BadInput(f"`key_out` {key_out}: name a new file in a directory that exists")
    return directory, place


def _secret_seed(work: Path, seed: int | None) -> int:
    """The seed of the tasks; kept while the league is being made, so that a killed call continues with it."""
    file = work / "seed"
    if seed is None:
        seed = int(file.read_text()) if file.is_file() else LEAST_SECRET_SEED + secrets.randbits(96)
    elif seed < LEAST_SECRET_SEED:
        note(
            f"seed {seed} can be guessed, and gives the tasks away; leave it out, or give one above {LEAST_SECRET_SEED}"
        )
    _write_private(file, str(seed), fresh=False)
    return seed


def _drawn_seed(rng: random.Random) -> int:
    """A seed of functions that cannot be found by trying them all against what a function answers."""
    return LEAST_SECRET_SEED + rng.getrandbits(96)


def _train_fresh(work: Path, circuits: int, depth: int, seed: int, report: Progress) -> list[Path]:
    """Directories of accepted specimens: more tasks are generated until there are enough."""
    trained, wanted = directory_for(work / "trained"), circuits + int(SPARE * circuits) + 1
    training_seed = int(hashlib.sha256(f"{seed}/training".encode()).hexdigest()[:7], 16)
    accepted: list[Path] = []
    for _ in range(ROUNDS):
        paths = [task.write(work / "specs") for task in generate(seed, wanted, depth)]
        missing = [path for path in paths if not (trained / f"{path.stem}.tried").exists()]
        for event in make_many(missing, out=trained, device="cpu", seed=training_seed):
            if isinstance(event, StepReport):
                report(f"training {len(missing)} circuits", event.step, event.steps)
        for path in missing:
            (trained / f"{path.stem}.tried").touch()
        accepted = [trained / path.stem for path in paths if (trained / path.stem / SPECIMEN_FILE).exists()]
        if len(accepted) >= circuits:
            return accepted[:circuits]
        wanted += circuits - len(accepted) + 1
    raise Failed(f"only {len(accepted)} of {circuits} circuits were learnt; allow less `depth`, or train on a GPU")


def _entry(name: str, source: Path, directory: Path, circuits_given: bool) -> LeagueCircuit:
    model = write_blind(source, directory / SPECIMENS / name, name=name, circuit_given=circuits_given)
    shape = model.config
    return LeagueCircuit(
        id=name,
        weights_sha256=weights_sha256(model),
        layers=shape.n_layers,
        heads=shape.n_heads,
        d_model=shape.d_model,
    )


def _key_text(names: Mapping[str, Path], seed: int, depth: int, functions: Mapping[str, object]) -> str:
    def answer(source: Path) -> dict[str, Any]:
        program: Program = key_program(source)
        roles = {str(component): str(role) for component, role in roles_of(program).items()}
        spec = key_file(source).read_text(encoding="utf-8")
        return {"task": source.name, "program": to_document(program), "roles": roles, "spec": spec}

    key = {
        "schema": 1,
        "salt": secrets.token_hex(16),
        "seed": str(seed),
        "depth": depth,
        "circuits": {name: answer(source) for name, source in names.items()},
        "functions": functions,
    }
    return json.dumps(key, ensure_ascii=False)


def _write_private(path: Path, text: str, *, fresh: bool = True) -> None:
    flags = os.O_WRONLY | os.O_CREAT | (os.O_EXCL if fresh else os.O_TRUNC)
    with os.fdopen(os.open(path, flags, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
