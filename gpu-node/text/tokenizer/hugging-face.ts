// tokenizer.json through @huggingface/tokenizers, with added tokens taken out: the library would turn their spelling in
// any text into their ids. The control tokens are handled by control.ts instead.

import { Tokenizer as Library } from "@huggingface/tokenizers";
import { byteLevelBytes, TokenBytes } from "./bytes.ts";
import { ControlTokens, isControl } from "./control.ts";
import {
  type AddedToken,
  readAddedToken,
  type Tokenizer,
  TokenizerFileError,
  tokenName,
} from "./tokenizer.ts";

interface TokenizerJson {
  added_tokens?: (AddedToken & Record<string, unknown>)[];
  model?: { type?: string; vocab?: Record<string, number>; merges?: unknown[] };
  decoder?: unknown;
  pre_tokenizer?: unknown;
  post_processor?: unknown;
}

/** Keys that the library insists on and files may leave out. */
const OPTIONAL = {
  added_tokens: [],
  normalizer: null,
  pre_tokenizer: null,
  post_processor: null,
  decoder: null,
};

/**
 * @param json contents of tokenizer.json
 * @param config contents of tokenizer_config.json, `{}` when there is none
 * @throws TokenizerFileError when it is not a byte-level BPE tokenizer
 */
export function createHuggingFace(json: TokenizerJson, config: Record<string, unknown>): Tokenizer {
  const { model } = json;
  const vocabulary = model?.vocab;
  const byteLevel = /"type":"ByteLevel"/.test(JSON.stringify([json.decoder, json.pre_tokenizer]));
  if (model?.type !== "BPE" || vocabulary === undefined || !byteLevel) {
    throw new TokenizerFileError("tokenizer.json: only byte-level BPE is supported");
  }
  const added = (json.added_tokens ?? []).map((token) => readAddedToken(token.id, token));
  const control = new ControlTokens(added);
  const bytes = readBytes(vocabulary, added);
  const plain = new Library(
    {
      ...OPTIONAL,
      ...json,
      added_tokens: json.added_tokens?.filter((token) => !isControl(readAddedToken(token.id, token))) ?? [],
      model: { ...model, vocab: withoutControl(vocabulary, control) },
      post_processor: null,
    },
    config,
  );
  return {
    size: bytes.length,
    control,
    bytes: new TokenBytes(bytes),
    prefix: readPrefix(json, config, control),
    encodeText(text) {
      if (text === "") return [];
      const { ids } = plain.encode(text.toWellFormed(), { add_special_tokens: false });
      return ids;
    },
  };
}

/** Some files list added tokens in the vocabulary too, where `ignore_merges` would find them. */
function withoutControl(vocabulary: Record<string, number>, control: ControlTokens): Record<string, number> {
  const listed = [...control.byContent.keys()].filter((content) => Object.hasOwn(vocabulary, content));
  // A copy of 150,000 entries takes a while, and hardly a file needs it.
  if (listed.length === 0) return vocabulary;
  const out = { ...vocabulary };
  for (const content of listed) delete out[content];
  return out;
}

/** Index = id; up to the largest id that the file names. */
function readBytes(vocabulary: Record<string, number>, added: AddedToken[]): (Uint8Array | undefined)[] {
  const bytes: (Uint8Array | undefined)[] = [];
  for (const entry in vocabulary) bytes[vocabulary[entry]] = byteLevelBytes(entry);
  for (const { id, content, special } of added) bytes[id] = special ? undefined : Buffer.from(content);
  return bytes;
}

interface PostProcessor {
  type?: string;
  processors?: PostProcessor[];
  single?: { SpecialToken?: { id: string }; Sequence?: unknown }[];
  special_tokens?: Record<string, { ids?: number[] }>;
}

/** What the file's post processor puts before a text, e.g. `<|begin_of_text|>`; or BOS where the config asks for it. */
function readPrefix(json: TokenizerJson, config: Record<string, unknown>, control: ControlTokens): number[] {
  const root = (json.post_processor ?? {}) as PostProcessor;
  const prefix: number[] = [];
  for (const processor of [root, ...(root.processors ?? [])]) {
    if (processor.type !== "TemplateProcessing") continue;
    for (const item of processor.single ?? []) {
      if (item.SpecialToken === undefined) break;
      prefix.push(...(processor.special_tokens?.[item.SpecialToken.id]?.ids ?? []));
    }
  }
  if (prefix.length > 0 || config.add_bos_token !== true) return prefix;
  const bos = control.byContent.get(tokenName(config.bos_token));
  return bos === undefined ? [] : [bos.id];
}
