"""The chat format: Kimi K2's turns and tool-call markers, as a Jinja template and as token ids."""

import json

from architecture import CONFIG, ID, SPECIAL, TOOL_MARKERS

TEMPLATE = """{%- if tools -%}
<|im_system|>tool_declare<|im_middle|>{{ tools | tojson }}<|im_end|>
{%- endif -%}
{%- for message in messages -%}
{%- if message.role == 'system' -%}
<|im_system|>system<|im_middle|>
{%- elif message.role == 'tool' -%}
<|im_system|>tool<|im_middle|>## Return of {{ message.tool_call_id }}{{ '\\n' }}
{%- elif message.role == 'assistant' -%}
<|im_assistant|>assistant<|im_middle|>
{%- else -%}
<|im_user|>user<|im_middle|>
{%- endif -%}
{%- if message.content is string -%}
{{ message.content }}
{%- elif message.content -%}
{%- for part in message.content -%}
{%- if part.type == 'text' -%}
{{ part.text }}
{%- endif -%}
{%- endfor -%}
{%- endif -%}
{%- if message.tool_calls -%}
<|tool_calls_section_begin|>
{%- for call in message.tool_calls -%}
<|tool_call_begin|>{{ call.id }}<|tool_call_argument_begin|>
{%- if call.function.arguments is string -%}
{{ call.function.arguments }}
{%- else -%}
{{ call.function.arguments | tojson }}
{%- endif -%}
<|tool_call_end|>
{%- endfor -%}
<|tool_calls_section_end|>
{%- endif -%}
<|im_end|>
{%- endfor -%}
{%- if add_generation_prompt -%}
<|im_assistant|>assistant<|im_middle|>
{%- endif -%}
"""

TOKENIZER_CONFIG = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "model_max_length": CONFIG["max_position_embeddings"],
    "bos_token": "[BOS]",
    "eos_token": "<|im_end|>",
    "pad_token": "[PAD]",
    "unk_token": None,
    "add_bos_token": False,
    "clean_up_tokenization_spaces": False,
    "additional_special_tokens": [n for n in SPECIAL if n not in TOOL_MARKERS and not n.startswith("[")],
    "added_tokens_decoder": {
        str(ID[name]): {"content": name, "single_word": False, "lstrip": False, "rstrip": False,
                        "normalized": False, "special": name not in TOOL_MARKERS}
        for name in SPECIAL
    },
    "chat_template": TEMPLATE,
}


class Encoder:
    """Turns messages into token ids and a parallel list of weights: 1 where the model is to be taught."""

    def __init__(self, tokenizer):
        self.tok = tokenizer
        self.head = {
            role: [ID[marker], *tokenizer.encode(name), ID["<|im_middle|>"]]
            for role, marker, name in [
                ("system", "<|im_system|>", "system"), ("tool", "<|im_system|>", "tool"),
                ("declare", "<|im_system|>", "tool_declare"),
                ("user", "<|im_user|>", "user"), ("assistant", "<|im_assistant|>", "assistant"),
            ]
        }

    def messages(self, messages, tools=None, generate=False):
        """messages: [{role, content, tool_calls?: [{id, arguments}], tool_call_id?}] -> (ids, weights)."""
        ids, weights = [], []
        if tools:
            self.add(ids, weights, self.head["declare"], self.tok.encode(json.dumps(tools, ensure_ascii=False)), 0)
        for m in messages:
            text = m.get("content") or ""
            if m["role"] == "tool":
                text = f"## Return of {m['tool_call_id']}\n{text}"
            body = self.tok.encode(text)
            if m.get("tool_calls"):
                body.append(ID["<|tool_calls_section_begin|>"])
                for call in m["tool_calls"]:
                    body += [ID["<|tool_call_begin|>"], *self.tok.encode(call["id"]), ID["<|tool_call_argument_begin|>"],
                             *self.tok.encode(call["arguments"]), ID["<|tool_call_end|>"]]
                body.append(ID["<|tool_calls_section_end|>"])
            self.add(ids, weights, self.head[m["role"]], body, 1 if m["role"] == "assistant" else 0)
        if generate:
            ids += self.head["assistant"]
            weights += [0] * len(self.head["assistant"])
        return ids, weights

    @staticmethod
    def add(ids, weights, head, body, weight):
        ids += head + body + [ID["<|im_end|>"]]
        weights += [0] * len(head) + [weight] * (len(body) + 1)
