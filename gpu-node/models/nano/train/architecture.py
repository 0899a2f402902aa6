"""The shape of nano: Kimi K2 in miniature, in the keys of a Hugging Face `config.json`."""

SPECIAL = [
    "[BOS]", "[EOS]", "[PAD]",
    "<|im_end|>", "<|im_user|>", "<|im_assistant|>", "<|im_system|>", "<|im_middle|>",
    "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>",
    "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>",
    "<|reserved_0|>", "<|reserved_1|>", "<|reserved_2|>",
]
VOCAB = 4096
FIRST_SPECIAL = VOCAB - len(SPECIAL)
ID = {name: FIRST_SPECIAL + i for i, name in enumerate(SPECIAL)}
# Kimi marks these special: false, so that they survive skip_special_tokens and reach the tool-call parser.
TOOL_MARKERS = [name for name in SPECIAL if name.startswith("<|tool_call")]

TRAINED_LENGTH = 4096
YARN_FACTOR = 4.0

CONFIG = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "vocab_size": VOCAB,
    "hidden_size": 256,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "q_lora_rank": 128,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "qk_head_dim": 192,
    "head_dim": 64,
    "v_head_dim": 128,
    "intermediate_size": 768,
    "moe_intermediate_size": 128,
    "n_routed_experts": 24,
    "n_shared_experts": 1,
    "num_experts_per_tok": 4,
    "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
    "n_group": 1,
    "topk_group": 1,
    "topk_method": "noaux_tc",
    "scoring_func": "sigmoid",
    "norm_topk_prob": True,
    "routed_scaling_factor": 2.0,
    "num_nextn_predict_layers": 0,
    "hidden_act": "silu",
    # 1e-6 is also the value that transformers hard-codes for q_a_layernorm and kv_a_layernorm.
    "rms_norm_eps": 1e-6,
    "attention_bias": False,
    "attention_dropout": 0.0,
    "initializer_range": 0.02,
    "rope_interleave": True,
    "rope_parameters": {
        "rope_type": "yarn",
        "rope_theta": 50000.0,
        "factor": YARN_FACTOR,
        "original_max_position_embeddings": TRAINED_LENGTH,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
    },
    "max_position_embeddings": int(TRAINED_LENGTH * YARN_FACTOR),
    "tie_word_embeddings": False,
    "use_cache": True,
    "bos_token_id": ID["[BOS]"],
    "eos_token_id": ID["<|im_end|>"],
    "pad_token_id": ID["[PAD]"],
    "dtype": "bfloat16",
}

GENERATION = {
    "bos_token_id": ID["[BOS]"],
    "eos_token_id": [ID["<|im_end|>"], ID["[EOS]"]],
    "pad_token_id": ID["[PAD]"],
    "do_sample": False,
    "max_length": CONFIG["max_position_embeddings"],
}
