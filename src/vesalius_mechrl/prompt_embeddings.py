"""The mean token embedding of every prompt of an effect matrix: what a prompt is about, before the model has run.

One vector per row, next to the matrix of the same rows, so that an episode can average the rows it drew. Embeddings are
looked up and no forward pass is needed: they cost no queries.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from jaxtyping import Float
from torch import Tensor

from vesalius.errors import BadInput
from vesalius.intervene.values import mean_embedding
from vesalius.model.states import read_tensors, write_tensors
from vesalius.model.transformer import Transformer
from vesalius_mechrl.matrices import Matrix, Rows

EMBEDDINGS_FILE = "prompt_embeddings.safetensors"


def prompt_embeddings(model: Transformer, matrix: Matrix, rows: Callable[[str], Rows], directory: Path) -> None:
    """Write the embeddings of every pool of a matrix into its directory, unless they are there."""
    path = Path(directory) / EMBEDDINGS_FILE
    if not path.exists():
        write_tensors(path, {split: mean_embedding(model, rows(split).batch) for split in matrix.identity.pools})


def load_prompt_embeddings(matrix: Matrix, directory: Path) -> Mapping[str, Float[Tensor, "row width"]]:
    """The embeddings of every pool of a matrix."""
    path = Path(directory) / EMBEDDINGS_FILE
    tensors = read_tensors(path)
    for split, n in matrix.identity.pools.items():
        if split not in tensors or tensors[split].ndim != 2 or len(tensors[split]) != n:
            raise BadInput(f"{path}: the {split} rows do not fit matrix.json next to it; delete it and measure again")
    return {split: tensors[split] for split in matrix.identity.pools}
