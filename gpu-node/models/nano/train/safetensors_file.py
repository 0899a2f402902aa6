"""The safetensors container, written and read without a library: a JSON header, then the bytes."""

import json
import struct

import torch

NAMES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float8_e4m3fn: "F8_E4M3", torch.int32: "I32", torch.int64: "I64"}
DTYPES = {name: dtype for dtype, name in NAMES.items()}


def save(path, tensors):
    """Write {name: tensor}; larger alignments first, so that every tensor is aligned to its own element size."""
    order = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name in order:
        size = tensors[name].numel() * tensors[name].element_size()
        header[name] = {"dtype": NAMES[tensors[name].dtype], "shape": list(tensors[name].shape),
                        "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)))
        f.write(text)
        for name in order:
            f.write(tensors[name].detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())


def load(path):
    """Read {name: tensor} on the CPU."""
    with open(path, "rb") as f:
        data = bytearray(f.read())
    (length,) = struct.unpack_from("<Q", data)
    header, tensors = json.loads(bytes(data[8 : 8 + length])), {}
    raw = torch.frombuffer(data, dtype=torch.uint8)
    for name, entry in header.items():
        if name != "__metadata__":
            start, end = (8 + length + x for x in entry["data_offsets"])
            tensors[name] = raw[start:end].clone().view(DTYPES[entry["dtype"]]).reshape(entry["shape"])
    return tensors
