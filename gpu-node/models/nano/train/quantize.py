"""The two weight formats of the export, and back: FP8 in 128 x 128 blocks, INT4 in groups of 32."""

import torch
import torch.nn.functional as F

BLOCK, GROUP, FP8_MAX = 128, 32, 448.0


def fp8_block(weight):
    """[out, in] -> e4m3 [out, in] and float32 `weight_scale_inv` [ceil(out/128), ceil(in/128)], which multiplies to restore."""
    rows, columns = weight.shape
    w = F.pad(weight.float(), (0, -columns % BLOCK, 0, -rows % BLOCK))
    tiles = w.view(w.shape[0] // BLOCK, BLOCK, w.shape[1] // BLOCK, BLOCK)
    scale = tiles.abs().amax((1, 3)).clamp(min=1e-12) / FP8_MAX
    q = (tiles / scale[:, None, :, None]).clamp(-FP8_MAX, FP8_MAX).view_as(w)
    return q[:rows, :columns].contiguous().to(torch.float8_e4m3fn), scale


def from_fp8_block(q, scale):
    wide = scale.repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)
    return q.float() * wide[: q.shape[0], : q.shape[1]]


def int4_values(weight):
    """[out, in] -> integers in [-8, 7] [out, in / 32, 32] and bfloat16 scales [out, in / 32].

    Of a few clipping points per group the one with the least squared error is kept, on either sign of the scale's
    16th level: -8 exists and +8 does not, so a group whose largest value is positive may prefer to clip.
    """
    w = weight.float().view(weight.shape[0], -1, GROUP)
    top = w.abs().amax(-1).clamp(min=1e-12)
    best = torch.full_like(top, float("inf"))
    values, scales = torch.zeros_like(w), torch.zeros_like(top)
    for clip in torch.linspace(0.6, 1.0, 17, device=w.device):
        for level in (7.0, 7.5, 8.0):
            scale = (top * clip / level).to(torch.bfloat16).float().clamp(min=1e-30)
            q = (w / scale[..., None]).round().clamp(-8, 7)
            error = (q * scale[..., None] - w).square().sum(-1)
            better = error < best
            best = torch.where(better, error, best)
            values = torch.where(better[..., None], q, values)
            scales = torch.where(better, scale, scales)
    return values.to(torch.int32), scales.to(torch.bfloat16)


def int4_group(weight):
    """compressed-tensors pack-quantized: {weight_packed int32 [out, in / 8], weight_scale bf16 [out, in / 32], weight_shape}.

    Element i of a row sits at bits 4 * (i mod 8) of word i / 8, with 8 added to make it unsigned.
    """
    values, scales = int4_values(weight)
    nibbles = (values + 8).view(weight.shape[0], -1, 8).to(torch.int64)
    words = (nibbles << torch.arange(0, 32, 4, device=weight.device)).sum(-1)
    words = torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)
    return {"weight_packed": words, "weight_scale": scales,
            "weight_shape": torch.tensor(weight.shape, dtype=torch.int32)}


def from_int4_group(packed, scale, shape):
    rows, columns = shape.tolist()
    nibbles = (packed.to(torch.int64)[..., None] >> torch.arange(0, 32, 4)) & 15
    return ((nibbles - 8).view(rows, -1, GROUP).float() * scale.float()[..., None]).view(rows, columns)
