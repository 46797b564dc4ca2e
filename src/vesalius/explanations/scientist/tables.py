"""Reading a look-up table off fingerprints: argument values whose fingerprints agree are one class."""

import torch
from jaxtyping import Float, Int
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform
from torch import Tensor

from vesalius.explanations.scientist.codes import distinct
from vesalius.explanations.scientist.observe import Observations
from vesalius.explanations.scientist.variables import Table

#: Two argument values are one class below this share of the mean distance between two observations.
MERGE_BELOW = 0.08
#: The coarser of two tables is taken when it predicts the fingerprints as well, up to this.
COARSER_LOSS = 0.0015
#: Larger tables are kept as they are: every argument value its own class.
MOST_MERGED = 500


def read_table(observations: Observations, reads: tuple[str, ...], arguments: Int[Tensor, "n argument"]) -> Table:
    """The table from arguments to classes of equal effect."""
    cells, group = distinct(arguments)
    labels = torch.arange(len(cells))
    if 1 < len(cells) <= MOST_MERGED:
        fine, coarse = (_clusters(each) for each in _distances(observations, group, len(cells)))
        loss = _fit(observations, fine[group]) - _fit(observations, coarse[group])
        labels = coarse if loss < COARSER_LOSS else fine
    labels = _named(labels)
    n_classes = int(labels.max()) + 1
    codes = {tuple(row): int(label) for row, label in zip(cells.tolist(), labels, strict=True)}
    return Table(reads, codes, n_classes)


def _distances(observations: Observations, group: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Squared distances of mean fingerprints relative to the mean squared distance of two observations: the largest
    over the positions where both values were seen (values may differ at one position only), and pooled over them.
    """
    largest, distance, scale = torch.zeros(n, n), torch.zeros(n, n), torch.zeros(n, n)
    for position in observations.position.unique():
        here = observations.position == position
        vectors, members = observations.fingerprint[here], group[here]
        spread = 2 * float(vectors.square().sum(1).mean())
        if spread == 0:
            continue
        counts = torch.bincount(members, minlength=n)
        means = torch.zeros(n, vectors.shape[1]).index_add_(0, members, vectors) / counts.clamp(min=1)[:, None]
        shared = (counts > 0)[:, None] & (counts > 0)
        apart = torch.cdist(means, means).square() * shared
        largest = torch.maximum(largest, apart / spread)
        distance += apart
        scale += spread * shared
    pooled = torch.where(scale > 0, distance / scale.clamp(min=1e-12), 1.0)
    return torch.where(scale > 0, largest, 1.0), pooled


def _fit(observations: Observations, labels: Int[Tensor, " n"]) -> float:
    """Share of all fingerprints' variance within positions that the labels account for."""
    _, group = distinct(torch.stack([observations.position, labels], 1))
    vectors = observations.fingerprint
    counts = torch.bincount(group).clamp(min=1)[:, None]
    means = vectors.new_zeros(len(counts), vectors.shape[1]).index_add_(0, group, vectors) / counts
    return 1 - float((vectors - means[group]).square().sum()) / max(float(vectors.square().sum()), 1e-12)


def _clusters(distance: Float[Tensor, "value value"]) -> Int[Tensor, " value"]:
    symmetric = ((distance + distance.T) / 2).numpy()
    tree = linkage(squareform(symmetric, checks=False), "average")
    return torch.from_numpy(fcluster(tree, MERGE_BELOW, "distance")).long()


def _named(labels: Int[Tensor, " value"]) -> Int[Tensor, " value"]:
    """Classes numbered by their first member; of two classes the smaller is 1, as an indicator would have it."""
    order = list(dict.fromkeys(labels.tolist()))
    named = torch.tensor([order.index(label) for label in labels.tolist()])
    if len(order) == 2 and 2 * int(named.sum()) > len(named):
        named = 1 - named
    return named
