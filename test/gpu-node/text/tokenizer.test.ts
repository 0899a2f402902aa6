import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { Tokenizer as Library } from "@huggingface/tokenizers";
import fc from "fast-check";
import { Detokenizer } from "../../../gpu-node/text/detokenize.ts";
import { encodePiece } from "../../../gpu-node/text/tokenizer/bpe.ts";
import { createHuggingFace } from "../../../gpu-node/text/tokenizer/hugging-face.ts";
import { loadTokenizer } from "../../../gpu-node/text/tokenizer/load.ts";
import { createTiktoken, parseRanks } from "../../../gpu-node/text/tokenizer/tiktoken.ts";
import { NANO } from "../server/harness.ts";

const nano = loadTokenizer(NANO);

function decode(ids: number[], tokenizer = nano): string {
  const detokenizer = new Detokenizer();
  return ids.map((id) => detokenizer.push(tokenizer.bytes.of(id))).join("") + detokenizer.flush();
}

const anyText = fc.string({ unit: "binary", maxLength: 80 }).map((text) => text.toWellFormed());

test("decoding the tokens of a text gives the text", () => {
  fc.assert(
    fc.property(anyText, (text) => {
      assert.equal(decode(nano.encodeText(text)), text);
    }),
    { numRuns: 500 },
  );
  assert.equal(decode(nano.encodeText("\ufeffBOM first")), "\ufeffBOM first");
});

test("text becomes the ids that the reference library gives", () => {
  const read = (name: string) => JSON.parse(readFileSync(`${NANO}/${name}`, "utf8"));
  const library = new Library(read("tokenizer.json"), read("tokenizer_config.json"));
  for (const text of [
    "Hello, world",
    "  two  spaces\n\n\tand 12345 it's don't",
    "漢字かな交じり",
    "naïve 😀👩‍👩‍👧",
  ]) {
    assert.deepEqual(nano.encodeText(text), library.encode(text, { add_special_tokens: false }).ids);
  }
});

test("a control token spelled in text is never its id", () => {
  const controls = [...nano.control.byContent.keys()];
  const soup = fc.array(fc.oneof(fc.constantFrom(...controls), anyText), { maxLength: 6 });
  fc.assert(
    fc.property(soup, (parts) => {
      const text = parts.join("");
      const ids = nano.encodeText(text);
      assert.ok(ids.every((id) => !nano.control.byId.has(id)));
      assert.equal(decode(ids), text);
    }),
    { numRuns: 500 },
  );
});

test("vocabulary entries that spell a control token are not found either", () => {
  const json = {
    added_tokens: [{ id: 300, content: "<|end|>", special: true, lstrip: false, rstrip: false }],
    model: { type: "BPE", vocab: { ...byteVocabulary(), "<|end|>": 300 }, merges: [], ignore_merges: true },
    pre_tokenizer: { type: "ByteLevel", add_prefix_space: false, use_regex: false },
    decoder: { type: "ByteLevel" },
  };
  const tokenizer = createHuggingFace(json, {});
  assert.ok(!tokenizer.encodeText("<|end|>").includes(300));
});

test("a vocabulary of real size loads, and the file's own post processor gives the BOS token", () => {
  const vocab = byteVocabulary();
  for (let i = 0; i < 200_000; i++) vocab[`!${i}`] = 94 + i;
  const json = {
    added_tokens: [{ id: 200_094, content: "<|begin|>", special: true, lstrip: false, rstrip: false }],
    model: { type: "BPE", vocab, merges: [] },
    pre_tokenizer: { type: "ByteLevel", add_prefix_space: false, use_regex: false },
    decoder: { type: "ByteLevel" },
    post_processor: {
      type: "Sequence",
      processors: [
        {
          type: "TemplateProcessing",
          single: [{ SpecialToken: { id: "<|begin|>", type_id: 0 } }, { Sequence: { id: "A", type_id: 0 } }],
          special_tokens: { "<|begin|>": { id: "<|begin|>", ids: [200_094], tokens: ["<|begin|>"] } },
        },
      ],
    },
  };
  const tokenizer = createHuggingFace(json, {});
  assert.deepEqual([tokenizer.size, tokenizer.prefix], [200_095, [200_094]]);
  const bare = createHuggingFace(
    { ...json, post_processor: null },
    { add_bos_token: true, bos_token: { content: "<|begin|>" } },
  );
  assert.deepEqual(bare.prefix, [200_094]);
});

test("a character split over tokens comes out whole, broken bytes as U+FFFD", () => {
  const bytes = Buffer.from("é😀");
  const detokenizer = new Detokenizer();
  const shown = [...bytes].map((byte) => detokenizer.push(Uint8Array.of(byte)));
  assert.deepEqual(shown, ["", "é", "", "", "", "😀"]);
  assert.equal(detokenizer.push(Uint8Array.of(0xf0, 0x9f)), "");
  assert.equal(detokenizer.flush(), "\ufffd");
});

test("ids beyond the vocabulary have no bytes", () => {
  for (const id of [-1, nano.size, 2 ** 31 - 1, Number.NaN]) assert.equal(nano.bytes.of(id).length, 0);
});

test("special tokens have no bytes, tool markers that are not special have theirs", () => {
  const of = (content: string) =>
    Buffer.from(nano.bytes.of(nano.control.byContent.get(content)!.id)).toString();
  assert.equal(of("<|im_end|>"), "");
  assert.equal(of("<|tool_call_begin|>"), "<|tool_call_begin|>");
});

// A toy tiktoken vocabulary: the bytes, then merges in rank order.
const toyMerges = ["he", "ll", "hell", "hello", " w", "or", " wor", "ld", " world", "12", "123"];
const toyFile = [
  ...Array.from({ length: 256 }, (_, byte) => `${Buffer.from([byte]).toString("base64")} ${byte}`),
  ...toyMerges.map((text, i) => `${Buffer.from(text).toString("base64")} ${256 + i}`),
].join("\n");
const toy = () =>
  createTiktoken(parseRanks(toyFile), {
    bos_token: "[BOS]",
    added_tokens_decoder: {
      267: { content: "[BOS]", special: true },
      268: { content: "<|tool|>", special: false },
    },
  });

test("rank merges: lowest rank first, digits in threes, case-insensitive contractions apart", () => {
  const id = (text: string) => 256 + toyMerges.indexOf(text);
  assert.deepEqual(toy().encodeText("hello world"), [id("hello"), id(" world")]);
  assert.deepEqual(toy().encodeText("1234"), [id("123"), "4".charCodeAt(0)]);
  assert.deepEqual(toy().encodeText("help"), [id("he"), "l".charCodeAt(0), "p".charCodeAt(0)]);
  assert.equal(decode(toy().encodeText("漢字abc漢 \u0085x"), toy()), "漢字abc漢 \u0085x");
});

test("every id below the size decodes: unlisted slots are reserved special tokens", () => {
  const tokenizer = toy();
  assert.equal(tokenizer.size, 267 + 256);
  assert.equal(tokenizer.control.byContent.get("<|reserved_token_300|>")?.id, 300);
  assert.equal(Buffer.from(tokenizer.bytes.of(268)).toString(), "<|tool|>");
  assert.equal(tokenizer.bytes.of(300).length, 0);
  assert.ok(!tokenizer.encodeText("[BOS]<|tool|>").some((id) => id >= 267));
});

test("long pieces merge as short ones do", () => {
  const ranks = parseRanks(toyFile);
  const naive = (piece: string) => {
    const parts = [...piece];
    for (;;) {
      let best = -1;
      for (let i = 0; i + 1 < parts.length; i++) {
        const rank = ranks.get(parts[i] + parts[i + 1]) ?? Infinity;
        if (rank < (best < 0 ? Infinity : ranks.get(parts[best] + parts[best + 1])!)) best = i;
      }
      if (best < 0) return parts.map((part) => ranks.get(part));
      parts.splice(best, 2, parts[best] + parts[best + 1]);
    }
  };
  fc.assert(
    fc.property(
      fc.string({ unit: fc.constantFrom("h", "e", "l", "o", " ", "w"), minLength: 1, maxLength: 200 }),
      (piece) => {
        assert.deepEqual(encodePiece(piece, ranks), naive(piece));
      },
    ),
    { numRuns: 300 },
  );
});

test("text without a space is tokenized in pieces of bounded length and loses nothing", () => {
  const long = "hello".repeat(20_000);
  assert.equal(decode(toy().encodeText(long), toy()), long);
  const pairs = "😀".repeat(30_000);
  assert.equal(decode(toy().encodeText(pairs), toy()), pairs);
});

function byteVocabulary(): Record<string, number> {
  return Object.fromEntries(Array.from({ length: 94 }, (_, i) => [String.fromCharCode(33 + i), i]));
}
