"""How a trained evaluator is named: `trained:DIR`, wherever a language model that evaluates is. Light to import."""

from pathlib import Path

from vesalius.errors import BadInput
from vesalius.files import sha256

TRAINED = "trained"
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
    for file in (EVALUATOR_FILE, ADAPTER_FILE):
        if not (directory / file).is_file():
            raise BadInput(
                f"evaluator trained:{where}: holds no {file}; make it with `vesalius functions evaluator-train`"
            )
    return f"{TRAINED}:{directory}"


def adapter_digest(name: str) -> str:
    """What tells one trained evaluator from another."""
    return sha256(Path(name.partition(":")[2]) / ADAPTER_FILE)[:16]
