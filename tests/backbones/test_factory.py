"""Opening backbones: providers, settings, scripts, and the error messages for bad ones."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from vesalius.errors import BadInput
from vesalius_backbones import Scripted, open_backbone


@pytest.mark.parametrize(
    ("which", "message"),
    [
        ("opnai:gpt", "no such provider; choose from openai, anthropic, google, compatible, local, scripted"),
        ("gpt-5.4", "no such provider"),
        ("", "no such provider"),
        ("openai", "name a model after the provider, as in openai:MODEL"),
        ("openai: ", "name a model after the provider"),
        ("openai:gpt-5.4", "no key; set OPENAI_API_KEY in the environment"),
        ("anthropic:claude-sonnet-4-6", "no key; set ANTHROPIC_API_KEY in the environment"),
        ("google:gemini-3.1-pro", "no key; set GOOGLE_API_KEY or GEMINI_API_KEY in the environment"),
        ("compatible:qwen", "no address; give base_url or set VESALIUS_BASE_URL, as in http://localhost:8000/v1"),
        ("local:gpt-5", "no such model; give smollm2-135m or the path of a .gguf file"),
        ("scripted:/nowhere.json", "could not be read"),
    ],
)
def test_errors_are_one_line_with_the_fix(which: str, message: str) -> None:
    if which in ("compatible:qwen", "local:gpt-5"):  # asked for before the address and the model are looked at
        pytest.importorskip("langchain_openai")
    with pytest.raises(BadInput) as caught:
        open_backbone(which)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("provider", "package", "extra"),
    [
        ("openai", "langchain_openai", "openai"),
        ("anthropic", "langchain_anthropic", "anthropic"),
        ("google", "langchain_google_genai", "google"),
        ("compatible", "langchain_openai", "openai"),
    ],
)
def test_a_missing_extra_says_the_command(
    provider: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.setenv(name, "sk-0123456789abcdef")
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(BadInput) as caught:
        open_backbone(f"{provider}:m", base_url="http://localhost:1/v1")
    assert str(caught.value).endswith(f'{package} is not installed; run: pip install "vesalius[{extra}]"')


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": 3.0}, "temperature 3"),
        ({"temperature": float("nan")}, "temperature nan"),
        ({"max_tokens": 0}, "max_tokens 0"),
        ({"timeout": 0.0}, "timeout 0"),
        ({"record": Path("a"), "replay": Path("b")}, "give one of them"),
        ({"prices": Path("/nowhere.json")}, "could not be read"),
    ],
)
def test_bad_settings(options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        open_backbone(Scripted([]), **options)


def test_the_address_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("langchain_openai")
    monkeypatch.setenv("VESALIUS_BASE_URL", "localhost:8000")
    with pytest.raises(BadInput, match="'localhost:8000' is not an address"):
        open_backbone("compatible:qwen")
    monkeypatch.setenv("VESALIUS_BASE_URL", "http://localhost:8000/v1")
    assert open_backbone("compatible:qwen").name == "compatible:qwen"


def test_scripts_from_files(tmp_path: Path) -> None:
    json_list, python, faulty = tmp_path / "a.json", tmp_path / "b.py", tmp_path / "c.json"
    json_list.write_text('["one", {"json": {"x": 1}}]')
    python.write_text("def reply(request):\n    return request.messages[-1].text[::-1]\n")
    faulty.write_text('{"replies": ["one"], "faults": {"p": 2}}')
    backbone = open_backbone(f"scripted:{json_list}")
    assert [backbone.chat("x").text for _ in range(2)] == ["one", '{"x": 1}']
    assert open_backbone(f"scripted:{python}").chat("abc").text == "cba"
    with pytest.raises(BadInput, match="faults are not valid"):
        open_backbone(f"scripted:{faulty}")


@pytest.mark.parametrize("content", ['{"no": 1}', "3", "[", '[{"txt": "x"}]'])
def test_bad_scripts_are_one_line(tmp_path: Path, content: str) -> None:
    path = tmp_path / "s.json"
    path.write_text(content)
    with pytest.raises(BadInput, match="script"):
        open_backbone(f"scripted:{path}")


def test_a_reply_that_fails_in_an_unknown_way() -> None:
    with pytest.raises(BadInput, match="'tired' is not a failure; choose from rate_limited"):
        open_backbone(Scripted([{"fail": "tired"}])).chat("x")


def test_importing_the_room_imports_no_providers_library() -> None:
    code = "import sys, vesalius_backbones; print(*{name.split('.')[0] for name in sys.modules})"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    foreign = {"langchain_core", "langchain_openai", "openai", "anthropic", "google", "httpx", "httpx2", "xllamacpp"}
    assert not foreign & set(loaded)
    assert "torch" not in loaded
