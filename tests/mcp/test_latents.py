"""Latents of sparse dictionaries by tools: an agent is told what the verbs say, of directories below the root."""

from pathlib import Path
from typing import Any

import pytest

import vesalius as ves
from tests.features.test_at_the_door import BEHAVIOUR, transcoders
from tests.mcp.asking import ABSOLUTE, asked, desk_in, text_of
from vesalius import api


@pytest.mark.slow
def test_tools_take_latents(tmp_path: Path) -> None:
    specimen = ves.load("arithmetic", behaviour=BEHAVIOUR, device="cpu")
    place = transcoders(tmp_path / "d", d=specimen.model.config.d_model)
    common: dict[str, Any] = {"specimen": "arithmetic", "behaviour": BEHAVIOUR, "n": 4, "features": "d"}
    same: dict[str, Any] = {"features": place, "n": 4, "progress": False}
    with desk_in(tmp_path) as desk:
        swept = asked(desk, "sweep", **common, sites="features", kind="zero").structured_content
        report = api.sweep_report(specimen, sites="features", kind="zero", **same)
        assert {row["id"]: row["effect"] for row in swept["rows"]} == pytest.approx(
            {row.id: row.effect for row in report.components}, abs=1e-5
        )
        edit = asked(desk, "intervene", **common, components=["L0F3@end", "L2.error"], kind="zero").structured_content
        result = ves.what_if(specimen, ["L0F3@end", "L2.error"], kind="zero", **same)
        assert edit["effect"] == pytest.approx(result.effect.value, abs=1e-5)
        found = asked(desk, "discover", **common, method="eap").structured_content
        alone = api.latents(specimen, **same)
        assert f"latents: {alone.said()}: {alone.components[0].id}" in found["text"]
        for tool, more, why in (
            ("sweep", {"sites": "features", "features": "/etc"}, "outside the server's root"),
            ("intervene", {"components": ["L0F3"], "features": "none"}, "features 'none' does not exist"),
            ("intervene", {"components": ["L0F3"], "features": None}, "give its directory with `features`"),
            ("discover", {"method": "neurons"}, "takes no dictionaries"),
        ):
            assert why in text_of(asked(desk, tool, **{**common, **more}))
        told = text_of(asked(desk, "explain", specimen=ABSOLUTE, components=["L0F3"]))
        assert "L0F3" in told
