"""How a trained evaluator is named: `trained:DIR`, or `trained:NAME` of one that comes with the package, wherever a
language model that evaluates is. Light to import.
"""

from pathlib import Path

from vesalius.errors import BadInput
from vesalius.files import sha256

TRAINED = "trained"
#: Evaluators that come with the package, by the name of their base. A directory of the same name goes first.
PACKAGED = Path(__file__).parent / "packaged"
EVALUATOR_FILE, ADAPTER_FILE = "evaluator.json", "adapter.safetensors"


def is_trained(name: str | None) -> bool:
    """Whether an evaluator is a trained one, not a language model that is asked."""
    return name is not None and name.partition(":")[0] == TRAINED


def placed(name: str) -> str:
    """The name with the whole path of its directory, which must hold a trained evaluator."""
    where = name.partition(":")[2].strip()
    if not where:
        raise BadInput(f"evaluator {name!r}: name a directory of `vesalius functions evaluator-train`, as trained:DIR")
    directory = Path(where).expanduser().resolve()
    if not directory.exists() and "/" not in where and (PACKAGED / where).is_dir():
        directory = PACKAGED / where
    for file in (EVALUATOR_FILE, ADAPTER_FILE):
        if not (directory / file).is_file():
            raise BadInput(
                f"evaluator trained:{where}: holds no {file}; make it with `vesalius functions evaluator-train`"
            )
    return f"{TRAINED}:{directory}"


def adapter_digest(name: str) -> str:
    """What tells one trained evaluator from another."""
    return sha256(Path(name.partition(":")[2]) / ADAPTER_FILE)[:16]
