// Every bound of the edge in one object. Bounds on the fields of a request are the contract's (contract/limits.ts).

export const EDGE = {
  /** Requests of one account that one isolate carries at a time. */
  inFlightPerAccount: 512,
  /** Bytes beyond the bound of a body that are read and dropped, so that its sender gets the answer; never kept. */
  drainBytes: 128 * 1024 * 1024,
  /** A slot of a request that never reported its end is taken back after this. */
  leaseMs: 15 * 60_000,

  /** Characters of a session key; a longer one counts as none. */
  sessionCharacters: 256,
  /** A node takes no new session while its load exceeds this multiple of the average, plus one. */
  loadFactor: 1.25,
  /** Sessions kept away from their first choice because it was full when they came. */
  pins: 20_000,
  pinIdleMs: 10 * 60_000,

  /** Nodes tried for one request before its first byte. */
  attempts: 3,
  /** Retries that may be saved up, and what every request adds to them. */
  retryBudget: 10,
  retryEarned: 0.2,
  /** A failed node is tried last for this long; doubled by each further failure, up to the second value. */
  downMs: 1_000,
  downMaxMs: 30_000,

  /** From sending a request to a node to the first byte of its answer. */
  firstByteMs: 300_000,
  /** Silence within an answer that has begun. */
  stallMs: 120_000,
  /** How long status and headers wait for the node's answer; then they go out and heartbeats follow. */
  holdStreamMs: 1_500,
  holdJsonMs: 5_000,
  /** A heartbeat is also how a client that left is noticed. */
  heartbeatMs: 1_000,

  /** Bytes of a node's error body, of one SSE event and of an answer that is not a stream. */
  nodeErrorBytes: 64 * 1024,
  eventBytes: 4 * 1024 * 1024,
  answerBytes: 64 * 1024 * 1024,

  /** How long a node's list of models is believed, and how long one may take to answer a probe. */
  modelsMs: 5_000,
  probeMs: 2_000,
  /** Subrequests of one invocation that may wait for headers; workerd queues the seventh. */
  probesAtOnce: 6,

  /** Entries of one page of /ai/models/search. */
  perPage: 100,
  nodes: 256,
  apiKeys: 10_000,
} as const;
