// An engine that answers from a script: no model, no threads.

import type {
  Engine,
  EngineEvent,
  EngineStatus,
  GenerateRequest,
} from "../../../gpu-node/contract/engine.ts";

export interface Script {
  /** Tokens in the groups in which they arrive; ends with `stop` unless `reason` says otherwise. */
  groups: number[][];
  reason?: "stop" | "length";
  cachedTokens?: number;
  /** Sent instead of the group of that index. */
  error?: { at: number; event: Extract<EngineEvent, { type: "error" }> };
  /** Waits before the group of that index until the request is aborted, or `release` resolves. */
  hangAt?: number;
  release?: Promise<void>;
  /** Milliseconds between groups. */
  delay?: number;
}

export class FakeEngine implements Engine {
  readonly maxModelLen: number;
  readonly vocabSize: number;
  /** Requests in the order they came. */
  readonly requests: GenerateRequest[] = [];
  /** Requests that have not ended. */
  live = 0;
  state: EngineStatus["state"] = "ready";
  heartbeatAge = 0;
  integrity: EngineStatus["integrity"];
  private readonly script: (request: GenerateRequest, index: number) => Script;

  constructor(
    script: (request: GenerateRequest, index: number) => Script,
    { maxModelLen = 512, vocabSize = 4096 } = {},
  ) {
    this.script = script;
    this.maxModelLen = maxModelLen;
    this.vocabSize = vocabSize;
  }

  async *generate(request: GenerateRequest, signal: AbortSignal): AsyncGenerator<EngineEvent> {
    const script = this.script(request, this.requests.push(request) - 1);
    this.live++;
    let completionTokens = 0;
    const usage = () => ({
      promptTokens: request.prompt.length,
      completionTokens,
      cachedTokens: script.cachedTokens ?? 0,
    });
    try {
      for (const [i, tokens] of script.groups.entries()) {
        if (script.hangAt === i)
          await Promise.race([aborted(signal), ...(script.release ? [script.release] : [])]);
        await (script.delay
          ? new Promise((resolve) => setTimeout(resolve, script.delay))
          : Promise.resolve());
        if (signal.aborted) {
          yield { type: "finish", reason: "abort", usage: usage() };
          return;
        }
        if (script.error?.at === i) {
          yield script.error.event;
          return;
        }
        completionTokens += tokens.length;
        const wanted = request.sampling.topLogprobs;
        const logprobs = tokens.map((id) => ({
          logprob: -0.5,
          top: Array.from({ length: Math.max(0, wanted) }, (_, k): [number, number] => [id + k, -0.5 - k]),
        }));
        yield { type: "tokens", tokens, ...(wanted >= 0 && { logprobs }) };
      }
      yield { type: "finish", reason: script.reason ?? "stop", usage: usage() };
    } finally {
      this.live--;
    }
  }

  status(): EngineStatus {
    return {
      state: this.state,
      progress: this.state === "loading" ? 0.25 : 1,
      heartbeat: 1,
      heartbeatAge: this.heartbeatAge,
      integrity: this.integrity,
      running: this.live,
      waiting: 0,
      pagesTotal: 10,
      pagesFree: 10 - this.live,
      pagesCached: 0,
      pagesOwned: this.live,
      slotsFree: 8,
      counters: { steps: 3 },
    };
  }

  async drain(ms: number): Promise<void> {
    this.state = "draining";
    for (const end = Date.now() + ms; this.live > 0 && Date.now() < end; ) {
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
  }

  async close(): Promise<void> {}
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    signal.addEventListener("abort", () => resolve(), { once: true });
  });
}
