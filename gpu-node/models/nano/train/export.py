"""Write a trained checkpoint as Hugging Face model folders: fp8-block, int4 experts, bf16.

    python export.py CHECKPOINT --out gpu-node/models            # nano and nano-int4
    python export.py CHECKPOINT --out DIR --formats bf16         # nano-bf16
"""

import argparse
import json
import os
import shutil

import torch

import safetensors_file
from architecture import CONFIG, GENERATION
from quantize import fp8_block, from_fp8_block, from_int4_group, int4_group

FOLDERS = {"fp8": "nano", "int4": "nano-int4", "bf16": "nano-bf16"}
TOKENIZER_FILES = ["tokenizer.json", "tokenizer_config.json"]

FP8_CONFIG = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
INT4_CONFIG = {
    "quant_method": "compressed-tensors",
    "format": "pack-quantized",
    "quantization_status": "compressed",
    "config_groups": {"group_0": {
        "targets": ["Linear"],
        "weights": {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 32, "dynamic": False},
        "input_activations": None,
        "output_activations": None,
    }},
    "ignore": ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*", "re:.*mlp\\.(gate|up|gate_up|down)_proj.*"],
    "kv_cache_scheme": None,
}


def checkpoint_tensors(state):
    """Names as on disk: experts apart, everything under `model.` but the head."""
    out = {}
    for name, tensor in state.items():
        full = name if name.startswith("lm_head") else "model." + name
        head, _, leaf = full.rpartition(".")
        if tensor.dim() == 3:  # [experts, out, in]
            for e, weight in enumerate(tensor):
                out[f"{head}.experts.{e}.{leaf}.weight"] = weight
        else:
            out[full] = tensor
    return out


def is_linear(name):
    return name.endswith("_proj.weight") or name.endswith("kv_a_proj_with_mqa.weight")


def convert(tensors, form):
    """{name: float32} -> the tensors of one format. The correction bias stays float32."""
    out = {}
    for name, tensor in tensors.items():
        base = name.removesuffix(".weight")
        if form == "fp8" and is_linear(name):
            out[name], out[base + ".weight_scale_inv"] = fp8_block(tensor)
        elif form == "int4" and ".experts." in name:
            out.update({f"{base}.{leaf}": t for leaf, t in int4_group(tensor).items()})
        elif name.endswith("e_score_correction_bias"):
            out[name] = tensor.float()
        else:
            out[name] = tensor.to(torch.bfloat16)
    return out


def restore(tensors):
    """The float32 weights that a format stands for, under their plain names."""
    out = {}
    for name, tensor in tensors.items():
        base, _, leaf = name.rpartition(".")
        if leaf == "weight_packed":
            out[base + ".weight"] = from_int4_group(tensor, tensors[base + ".weight_scale"], tensors[base + ".weight_shape"])
        elif name + "_scale_inv" in tensors:
            out[name] = from_fp8_block(tensor, tensors[name + "_scale_inv"])
        elif leaf not in ("weight_scale", "weight_shape", "weight_scale_inv"):
            out[name] = tensor.float()
    return out


def module_state(tensors):
    """The inverse of `checkpoint_tensors`: a state for model.Nano."""
    out, experts = {}, {}
    for name, tensor in tensors.items():
        short = name.removeprefix("model.")
        if ".experts." in short:
            head, rest = short.split(".experts.")
            index, leaf, _ = rest.split(".")
            experts.setdefault(f"{head}.{leaf}", {})[int(index)] = tensor
        else:
            out[short] = tensor
    for name, parts in experts.items():
        out[name] = torch.stack([parts[e] for e in range(len(parts))])
    return out


def write_json(path, value):
    with open(path, "w", encoding="utf-8") as f:
        f.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def write_folder(folder, state, form, tokenizer_from):
    os.makedirs(folder, exist_ok=True)
    config = dict(CONFIG)
    if form != "bf16":
        config["quantization_config"] = FP8_CONFIG if form == "fp8" else INT4_CONFIG
    write_json(f"{folder}/config.json", config)
    write_json(f"{folder}/generation_config.json", GENERATION)
    for name in TOKENIZER_FILES:
        if os.path.abspath(tokenizer_from) != os.path.abspath(folder):
            shutil.copyfile(f"{tokenizer_from}/{name}", f"{folder}/{name}")
    path = f"{folder}/model.safetensors"
    safetensors_file.save(path, convert(checkpoint_tensors(state), form))
    print(f"{path}: {os.path.getsize(path) / 1e6:.1f} MB")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("--out", required=True, help="folder that gets one folder per format")
    parser.add_argument("--formats", default="fp8,int4")
    parser.add_argument("--suffix", default="", help="appended to the folders' names")
    parser.add_argument("--tokenizer", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    args = parser.parse_args()
    state = torch.load(args.checkpoint, map_location="cpu", weights_only=True)["model"]
    for form in args.formats.split(","):
        write_folder(f"{args.out}/{FOLDERS[form]}{args.suffix}", state, form, args.tokenizer)


if __name__ == "__main__":
    main()
