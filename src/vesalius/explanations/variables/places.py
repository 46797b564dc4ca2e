"""Places in a model that may carry a variable, as text.

    resid19@S2            the residual stream before layer 19 at the role S2 (resid30: after the last of 30 layers)
    resid1@A+B            at two roles together
    L19H2+L20H0@end       what these heads write at the last position
    L12_MLP@end           what an MLP writes there
    L18.resid@S2          the same as resid19@S2, by its name in `vesalius.sites`: the stream after block 18

`resid19@S2/4` in a result is a subspace of four directions there.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from vesalius.components import Component
from vesalius.errors import BadInput, choices, quoted
from vesalius.intervene.exchanging import RESIDUAL, Place
from vesalius.model.config import Config
from vesalius.sites import Activation, Site


def parse_places(given: str | Iterable[str] | None, config: Config, roles: Sequence[str]) -> list[Place]:
    """Places from texts; one text may hold several, separated by commas."""
    texts = [given] if isinstance(given, str) else list(given or ())
    return [_parsed(one.strip(), config, roles) for text in texts for one in text.split(",") if one.strip()]


def _parsed(text: str, config: Config, roles: Sequence[str]) -> Place:
    what, at, where = text.partition("@")
    named = tuple(one.strip() for one in where.split("+"))
    if not at or not what:
        raise BadInput(f"place {quoted(text)}: write {RESIDUAL}LAYER@ROLE or COMPONENT+COMPONENT@ROLE")
    if unknown := [one for one in named if one not in roles]:
        raise BadInput(f"place {quoted(text)}: role {unknown[0]!r} does not exist; roles are {choices(roles)}")
    if match := re.fullmatch(rf"{RESIDUAL}(\d{{1,4}})", what):
        layer = int(match[1])
        if layer > config.n_layers:
            raise BadInput(
                f"place {quoted(text)}: the model has {config.n_layers} layers, so {RESIDUAL}0 to "
                f"{RESIDUAL}{config.n_layers}"
            )
        return Place(named, layer=layer)
    if "." in what and (site := _of_site(what, config)) is not None:
        return replace(site, roles=named)
    return Place(named, components=tuple(Component.parse(one).within(config) for one in what.split("+")))


def _of_site(text: str, config: Config) -> Place | None:
    """A place by the name of a site, without its roles; None where that is a component's."""
    place = Site.parse(text).within(config).place
    if not isinstance(place, Activation):
        return None
    if place.kind in ("resid_pre", "resid"):
        return Place((), layer=place.layer + (place.kind == "resid"))
    if place.kind == "z":
        heads = range(config.n_heads) if place.head is None else (place.head,)
        return Place((), components=tuple(Component(place.layer, head) for head in heads))
    if place.kind == "mlp_out":
        return Place((), components=(Component(place.layer),))
    raise BadInput(
        f"place {quoted(text)}: an alignment exchanges residual streams, heads and MLPs; take L{place.layer}.resid, "
        f"L{place.layer}.z, L{place.layer}H0 or L{place.layer}_MLP"
    )
