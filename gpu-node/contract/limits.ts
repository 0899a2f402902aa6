// Every bound on a request, in one place. The edge applies them first and the node again.

export const LIMITS = {
  /** Bytes of a request body. */
  bodyBytes: 8 * 1024 * 1024,
  /** Nesting of arrays and objects in a body; JSON.parse itself would overflow the stack near 1e4. */
  jsonDepth: 64,
  /** Values in a body, before anything is built from them. */
  jsonValues: 1_500_000,
  messages: 4096,
  /** Parts of one message's content. */
  contentParts: 1024,
  modelName: 256,
  /** Characters of `name`, `tool_call_id`, `user` and the like. */
  identifier: 256,
  tools: 128,
  /** Characters of one tool's JSON. */
  toolCharacters: 128 * 1024,
  /** Characters of all tools' JSON. */
  toolsCharacters: 512 * 1024,
  toolName: 128,
  toolCallsPerMessage: 128,
  choices: 128,
  /** Prompts of one /v1/completions call. */
  prompts: 128,
  /** Prompts times n: sequences one call may start. */
  sequences: 128,
  /** Token ids of one prompt given as ids. */
  promptTokens: 1_048_576,
  maxTokens: 1_048_576,
  stops: 16,
  stopCharacters: 512,
  logitBias: 300,
  topLogprobs: 20,
  topK: 1_000_000,
  temperature: 2,
  penalty: 2,
  /** A factor of logits, in float32: 1e-50 would be 0, and what a hundredth does nobody can want more of. */
  leastRepetitionPenalty: 0.01,
  repetitionPenalty: 10,
} as const;
