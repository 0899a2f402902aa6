// A request's sequences, run together: each is pumped from the engine into one channel.

import type { Engine, GenerateRequest } from "../contract/engine.ts";
import { ApiError, toApiError } from "../contract/errors.ts";
import { Channel } from "./channel.ts";
import { Sequence, type SequenceEvent, type SequenceOptions } from "./sequence.ts";

export interface SequencePlan {
  request: GenerateRequest;
  options: SequenceOptions;
}

export interface IndexedEvent {
  index: number;
  event: SequenceEvent;
}

/** Events that a client who does not read may leave in the queue: some megabytes. */
const MAX_UNREAD = 16_384;

/** Live generations of a node: each ends exactly once, and all can be ended when the engine stops moving. */
export class Generations {
  private readonly engine: Engine;
  private readonly live = new Set<Generation>();

  constructor(engine: Engine) {
    this.engine = engine;
  }

  get size(): number {
    return this.live.size;
  }

  /** Starts every sequence. The caller must read to the end or `stop`. */
  start(plans: SequencePlan[], client: AbortSignal): Generation {
    const generation = new Generation(this.engine, plans, client, () => this.live.delete(generation));
    this.live.add(generation);
    generation.run();
    return generation;
  }

  /** Ends all with an error, for an engine from which no event will come any more. */
  failAll(error: ApiError): void {
    for (const generation of [...this.live]) generation.fail(error);
  }
}

export class Generation {
  private readonly engine: Engine;
  private readonly plans: SequencePlan[];
  private readonly client: AbortSignal;
  private readonly onEnd: () => void;
  private readonly abort = new AbortController();
  private readonly channel = new Channel<IndexedEvent>(MAX_UNREAD);

  constructor(engine: Engine, plans: SequencePlan[], client: AbortSignal, onEnd: () => void) {
    this.engine = engine;
    this.plans = plans;
    this.client = client;
    this.onEnd = onEnd;
  }

  /** Everything that has happened since the last call; undefined at the end. */
  take(): Promise<IndexedEvent[] | undefined> {
    return this.channel.take();
  }

  /** The client left or the response is over. Idempotent. */
  stop = (): void => {
    this.fail(new ApiError("client_closed", "The client closed the connection."));
  };

  fail(error: ApiError): void {
    this.channel.fail(error);
    this.abort.abort();
    this.finish();
  }

  /** Called once by Generations. */
  run(): void {
    if (this.client.aborted) {
      this.stop();
      return;
    }
    this.client.addEventListener("abort", this.stop, { once: true });
    Promise.all(this.plans.map((plan, index) => this.pump(plan, index))).then(
      () => {
        this.channel.end();
        this.finish();
      },
      (error) => this.fail(toApiError(error)),
    );
  }

  private async pump({ request, options }: SequencePlan, index: number): Promise<void> {
    const sequence = new Sequence(options);
    const abort = new AbortController();
    const forward = () => abort.abort();
    this.abort.signal.addEventListener("abort", forward, { once: true });
    try {
      for await (const event of this.engine.generate(request, abort.signal)) {
        if (this.abort.signal.aborted) continue;
        for (const out of sequence.accept(event)) {
          if (!this.channel.push({ index, event: out })) {
            throw new ApiError("request_timeout", "The client reads too slowly.");
          }
        }
        if (sequence.stopped) abort.abort();
      }
    } catch (error) {
      abort.abort();
      throw error;
    } finally {
      this.abort.signal.removeEventListener("abort", forward);
    }
    if (!sequence.ended && !this.abort.signal.aborted) {
      throw new ApiError("engine_failed", "The engine ended the request without a result.");
    }
  }

  private finish(): void {
    this.client.removeEventListener("abort", this.stop);
    this.onEnd();
  }
}
