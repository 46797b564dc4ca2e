"""Plug-ins of other packages run only after the user agreed to their package."""

import json
import os
import pty
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import vesalius as ves
from tests.processes import PATIENCE
from vesalius import api, consent
from vesalius.consent import NotTrusted
from vesalius.errors import BadInput
from vesalius.plugins import COMMANDS, INTERPRETERS, installed, loaded_plugin, named_function

#: What a plug-in of the package does when it is imported.
CODE = "import os, pathlib\npathlib.Path(os.environ['SEEN']).write_text('imported')\ndef f(box=None, *, seed=0): ...\n"
GROUPS = ("scientists", "interpreters", "discovery_methods", "behaviours", "model_loaders", "judges")
GROUPS += ("documents", "commands", "verbs", "benchmarks", "runs")


def install(site: Path, name: str, *entries: str, version: str = "1.0") -> None:
    """A package as an installer leaves it, with entry points `group:name` to one function."""
    module = name.replace("-", "_")
    (site / f"{module}.py").write_text(CODE)
    for old in site.glob(f"{module}-*"):
        (old / "entry_points.txt").unlink(missing_ok=True)
    folder = site / f"{module}-{version}.dist-info"
    folder.mkdir(exist_ok=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    points = [
        f"[vesalius.{group}]\n{what} = {module}:f\n" for group, _, what in (one.partition(":") for one in entries)
    ]
    (folder / "entry_points.txt").write_text("\n".join(points))


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place for packages, on the path of this process and of those it starts, and a user who has agreed to none."""
    place = tmp_path / "site"
    place.mkdir()
    monkeypatch.syspath_prepend(place)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(place), *filter(None, sys.path)]))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("SEEN", str(tmp_path / "seen"))
    monkeypatch.delenv(consent.VARIABLE, raising=False)
    return place


def fresh() -> None:
    """Forget which packages there are: they are read once for a path."""
    from vesalius import plugins

    plugins._installed.cache_clear()


def command(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "vesalius", *words],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def test_no_kind_of_plugin_is_imported_before_consent(site: Path, tmp_path: Path) -> None:
    install(site, "stranger-pack", *(f"{group}:strange" for group in GROUPS))
    asked = [
        lambda: named_function(INTERPRETERS, "strange", []),
        lambda: ves.strange,
        lambda: ves.explain("3", scientist="strange"),
        lambda: ves.discover("3", "strange"),
        lambda: ves.load("smollm2-135m", behaviour="strange"),
        lambda: ves.load("strange:x"),
        lambda: api.schema("strange"),
        lambda: ves.bench("strange"),
        lambda: ves.bench_circuits(judges=["strange"], ids=["3"], out=tmp_path / "out"),
        lambda: ves.bench_functions(category="numeric", interpreter="strange", count=1, out=tmp_path / "out"),
    ]
    for call in asked:
        with pytest.raises(NotTrusted, match=r"stranger-pack 1\.0 .* run: vesalius plugins --trust stranger-pack"):
            call()
    ves.results(tmp_path)
    rows = api.plugins(check=True)
    assert {row.name for row in rows} == {"strange"}
    assert len(rows) == len(GROUPS)
    assert not any(row.trusted for row in rows)
    assert all("--trust stranger-pack" in row.problem for row in rows)
    assert not (tmp_path / "seen").exists()


def test_consent_is_asked_for_once_kept_in_a_private_file_and_taken_back(site: Path, tmp_path: Path) -> None:
    install(site, "stranger-pack", "interpreters:strange")
    (row,) = api.plugins(trust="stranger-pack")
    assert (row.trusted, row.target, row.problem) == (True, "stranger_pack:f", None)
    file = tmp_path / "config" / "vesalius" / "plugins.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert json.loads(file.read_text())["packages"] == {
        "stranger-pack": ["vesalius.interpreters:strange = stranger_pack:f"]
    }
    assert callable(named_function(INTERPRETERS, "strange", []))
    assert (tmp_path / "seen").exists()
    api.plugins(revoke="Stranger_Pack")
    with pytest.raises(NotTrusted):
        named_function(INTERPRETERS, "strange", [])
    with pytest.raises(BadInput, match="is not trusted"):
        api.plugins(revoke="stranger-pack")


def test_an_update_that_offers_more_is_asked_for_again_and_one_that_offers_less_is_not(site: Path) -> None:
    install(site, "grown", "interpreters:one", "judges:two")
    api.plugins(trust="grown")
    install(site, "grown", "interpreters:one", version="2.0")
    fresh()
    assert callable(named_function(INTERPRETERS, "one", []))
    install(site, "grown", "interpreters:one", "commands:three", version="3.0")
    fresh()
    with pytest.raises(NotTrusted, match=r"grown 3\.0"):
        named_function(INTERPRETERS, "one", [])


def test_a_package_cannot_pass_for_ours_or_for_another(site: Path, tmp_path: Path) -> None:
    (site / "vesalius-99.dist-info").mkdir()
    (site / "vesalius-99.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: vesalius\nVersion: 99\n")
    (site / "vesalius-99.dist-info" / "entry_points.txt").write_text("[vesalius.commands]\nevil = spoof:f\n")
    (site / "spoof.py").write_text(CODE)
    (evil,) = [one for one in installed(COMMANDS) if one.name == "evil"]
    assert not evil.built_in
    with pytest.raises(NotTrusted):
        evil.load()
    install(site, "vesalius-helpers", "interpreters:help")
    fresh()
    with pytest.raises(NotTrusted):
        named_function(INTERPRETERS, "help", [])
    assert not (tmp_path / "seen").exists()


@pytest.mark.parametrize(
    ("text", "mode", "said"),
    [
        ('{"packages": {"stranger-pack": ["vesalius.interpreters:strange = stranger_pack:f"]}}', 0o666, "other users"),
        ("{}", 0o600, "does not say which packages"),
        ('{"packages": {"stranger-pack": 3}}', 0o600, "does not say which packages"),
        ("[" * 100_000, 0o600, "does not say which packages"),
    ],
)
def test_a_file_of_consents_that_is_not_private_or_damaged_is_refused(
    text: str, mode: int, said: str, site: Path
) -> None:
    install(site, "stranger-pack", "interpreters:strange")
    consent.consent_file().parent.mkdir(parents=True)
    consent.consent_file().write_text(text)
    consent.consent_file().chmod(mode)
    with pytest.raises(BadInput, match=said):
        loaded_plugin(INTERPRETERS, "strange", ())


def test_what_is_not_there_cannot_be_trusted(site: Path) -> None:
    for name in ("nothing", "vesalius", "torch"):
        with pytest.raises(BadInput, match="offers no plug-ins"):
            api.plugins(trust=name)


def at_a_terminal(reply: str) -> tuple[int, str]:
    """The command `strange` of the package, with this typed at its terminal: exit code and what the terminal shows."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "vesalius", "strange"], stdin=theirs, stderr=theirs, stdout=subprocess.DEVNULL
    )
    os.close(theirs)
    os.write(ours, reply.encode())
    code = process.wait(PATIENCE)
    said = os.read(ours, 10_000).decode()
    os.close(ours)
    return code, said


@pytest.mark.slow
def test_a_command_asks_at_a_terminal_once_and_says_elsewhere_how_to_consent(site: Path, tmp_path: Path) -> None:
    install(site, "stranger-pack", "commands:strange")
    refused = command("strange")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr == (
        "vesalius: command 'strange': package stranger-pack 1.0 is not trusted to offer plug-ins, which run with your "
        "rights; run: vesalius plugins --trust stranger-pack\n"
    )
    code, said = at_a_terminal("\n")
    assert code == 2
    assert "command strange: runs stranger_pack:f of stranger-pack 1.0" in said
    assert not (tmp_path / "seen").exists()
    assert at_a_terminal("y\n")[0] == 0
    assert (tmp_path / "seen").exists()
    assert command("strange").returncode == 0  # not asked again


@pytest.mark.slow
def test_the_command_line_lists_trusts_and_revokes(site: Path) -> None:
    install(site, "stranger-pack", "interpreters:strange")
    said = [
        command("plugins", *words, "--json").stdout  # not of a process that was started before the package was there
        for words in ((), ("--trust", "stranger-pack"), ("--revoke", "stranger-pack"))
    ]
    assert [json.loads(one)[0]["trusted"] for one in said] == [False, True, False]


def test_the_environment_trusts_a_package_for_one_process(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(site, "stranger-pack", "interpreters:strange")
    monkeypatch.setenv(consent.VARIABLE, "another, Stranger_Pack")
    assert callable(named_function(INTERPRETERS, "strange", []))
    assert not consent.consent_file().exists()
    monkeypatch.setenv(consent.VARIABLE, "stranger,,*,")
    with pytest.raises(NotTrusted):
        named_function(INTERPRETERS, "strange", [])
