"""Compare our forward with transformers on an exported folder, and the tokenizer with the `tokenizers` library.

    python check.py gpu-node/models/nano        # needs transformers, tokenizers
"""

import argparse
import json

import torch

import safetensors_file
from chat import Encoder
from export import module_state, restore
from generate import greedy
from model import Nano
from tokenizer import Tokenizer


def ours(folder, dtype=torch.float32):
    model = Nano(dtype=dtype)
    state = module_state(restore(safetensors_file.load(f"{folder}/model.safetensors")))
    model.load_state_dict(state)
    return model.eval(), state


def theirs(state):
    """transformers' own model with the same float32 weights, whatever format they were stored in."""
    from transformers import DeepseekV3Config, DeepseekV3ForCausalLM

    from architecture import CONFIG
    from export import checkpoint_tensors

    config = DeepseekV3Config(**{k: v for k, v in CONFIG.items() if k not in ("architectures", "dtype")})
    config._attn_implementation = "eager"
    model = DeepseekV3ForCausalLM(config).float().eval()
    plain, fused = checkpoint_tensors(state), {}
    for name in model.state_dict():
        if name.endswith("experts.gate_up_proj"):
            base = name.removesuffix("gate_up_proj")
            rows = [torch.cat([plain[f"{base}{e}.{p}.weight"] for p in ("gate_proj", "up_proj")]) for e in range(CONFIG["n_routed_experts"])]
            fused[name] = torch.stack(rows)
        elif name.endswith("experts.down_proj"):
            base = name.removesuffix("down_proj")
            fused[name] = torch.stack([plain[f"{base}{e}.down_proj.weight"] for e in range(CONFIG["n_routed_experts"])])
        else:
            fused[name] = plain[name]
    model.load_state_dict(fused)
    return model


@torch.no_grad()
def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    args = parser.parse_args()
    torch.manual_seed(0)
    model, state = ours(args.folder)
    reference = theirs(state)
    ids = torch.randint(0, 4080, (2, 300))
    want = reference(ids).logits
    got = model.logits(model(ids))
    print(f"logits: largest difference {(got - want).abs().max():.2e} at scale {want.abs().max():.1f}")
    assert torch.allclose(got, want, atol=2e-4, rtol=1e-4)

    moe = model.layers[1].mlp
    x = torch.randn(50, 256)
    weights, chosen = moe.gate(x)
    assert torch.allclose(moe.dense(x, weights, chosen), moe.sparse(x, weights, chosen), atol=1e-5)
    print("experts: dense and sparse agree")

    prompts = [ids[0, :37].tolist(), ids[1, :120].tolist(), ids[0, :1].tolist()]
    out = greedy(model, prompts, 12, stop=())
    for prompt, new in zip(prompts, out):
        text = list(prompt)
        for token in new:
            assert reference(torch.tensor([text])).logits[0, -1].argmax() == token
            text.append(token)
    print("greedy: cached, batched generation agrees with transformers without a cache")

    from tokenizers import Tokenizer as Library
    from transformers import PreTrainedTokenizerFast

    mine, library = Tokenizer.load(f"{args.folder}/tokenizer.json"), Library.from_file(f"{args.folder}/tokenizer.json")
    texts = ["Hello, world! It's 12345 o'clock -- \"yes\".\n\n  Tabs\tand   spaces \n", "naïve café 日本語 🙂 x_y __init__",
             '{"name": "add", "n": [1, 2.5]}', "k9Zq" * 40, " ", "", "don't they're I'll we've 'sore"]
    for text in texts:
        assert mine.encode(text) == library.encode(text, add_special_tokens=False).ids, text
        assert mine.decode(mine.encode(text)) == text
    print("tokenizer: agrees with the tokenizers library")

    with open(f"{args.folder}/tokenizer_config.json", encoding="utf-8") as f:
        template = json.load(f)["chat_template"]
    fast = PreTrainedTokenizerFast(tokenizer_file=f"{args.folder}/tokenizer.json", chat_template=template)
    tools = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}}]
    call = {"id": "functions.add:0", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Add 1."},
                {"role": "assistant", "content": "", "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "functions.add:0", "content": "2"}, {"role": "user", "content": "And?\n"}]
    want = fast.apply_chat_template(messages, tools=tools, add_generation_prompt=True, tokenize=True)
    want = want["input_ids"] if hasattr(want, "keys") else want
    flat = [{**m, "tool_calls": [{"id": c["id"], "arguments": c["function"]["arguments"]} for c in m.get("tool_calls", [])]} for m in messages]
    assert Encoder(mine).messages(flat, tools, generate=True)[0] == want, fast.decode(want)
    print("chat template: agrees with the encoder of the training data")


if __name__ == "__main__":
    main()
