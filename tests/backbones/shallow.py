"""SmolLM2 with its first layers only, for tests that hold whatever a model says: reading prompts takes less time."""

from pathlib import Path

import gguf

LAYERS = 3


def write_shallow(whole: Path, target: Path, *, layers: int = LAYERS) -> Path:
    """Write a GGUF file without the layers from `layers` on; tokenizer, template and all else stay as they are."""
    reader = gguf.GGUFReader(whole)
    architecture = reader.fields[gguf.Keys.General.ARCHITECTURE].contents()
    n_layers = gguf.Keys.LLM.BLOCK_COUNT.format(arch=architecture)
    writer = gguf.GGUFWriter(target, architecture)
    for name, field in reader.fields.items():
        if name == gguf.Keys.General.ARCHITECTURE or name.startswith("GGUF."):
            continue  # the writer writes these itself
        of = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, layers if name == n_layers else field.contents(), field.types[0], sub_type=of)
    kept = [tensor for tensor in reader.tensors if not _above(tensor.name, layers)]
    for tensor in kept:
        data = tensor.data
        writer.add_tensor_info(tensor.name, data.shape, data.dtype, data.nbytes, tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for tensor in kept:
        writer.write_tensor_data(tensor.data)
    writer.close()
    return target


def _above(name: str, layers: int) -> bool:
    """Whether a tensor, such as `blk.7.attn_q.weight`, belongs to a layer that is left out."""
    return name.startswith("blk.") and int(name.split(".")[1]) >= layers
