// Prometheus metrics of a node, in a registry of its own.

import { Counter, Gauge, Histogram, Registry } from "prom-client";
import type { EngineStatus } from "../contract/engine.ts";
import type { SequenceUsage } from "./sequence.ts";

const SECONDS = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120];

export interface Metrics {
  /** One answered request; `code` is the error's code, `ok` without one. */
  request(route: string, status: number, code: string): void;
  /** A stream that had begun ended by an error; its request counts as ok. */
  streamError(code: string): void;
  /** Seconds from request to first token. */
  firstToken(seconds: number): void;
  /** Seconds from request to end. */
  finished(seconds: number): void;
  usage(usage: SequenceUsage): void;
  /** Text exposition format. */
  expose(): Promise<{ contentType: string; text: string }>;
}

/** @param status read at every scrape */
export function createMetrics(status: () => EngineStatus): Metrics {
  const registry = new Registry();
  const registers = [registry];
  const requests = new Counter({
    name: "edgewise_requests_total",
    help: "HTTP requests answered",
    labelNames: ["route", "status", "code"],
    registers,
  });
  const streamErrors = new Counter({
    name: "edgewise_stream_errors_total",
    help: "Streams that ended by an error after they had begun",
    labelNames: ["code"],
    registers,
  });
  const tokens = new Counter({
    name: "edgewise_tokens_total",
    help: "Tokens of finished sequences",
    labelNames: ["kind"],
    registers,
  });
  const first = new Histogram({
    name: "edgewise_time_to_first_token_seconds",
    help: "From request to first token",
    buckets: SECONDS,
    registers,
  });
  const whole = new Histogram({
    name: "edgewise_request_seconds",
    help: "From request to end of answer",
    buckets: SECONDS,
    registers,
  });
  engineGauges(registers, status);
  return {
    request: (route, code, error) => requests.inc({ route, status: String(code), code: error }),
    streamError: (code) => streamErrors.inc({ code }),
    firstToken: (seconds) => first.observe(seconds),
    finished: (seconds) => whole.observe(seconds),
    usage({ promptTokens, completionTokens, cachedTokens }) {
      tokens.inc({ kind: "prompt" }, promptTokens);
      tokens.inc({ kind: "completion" }, completionTokens);
      tokens.inc({ kind: "cached" }, cachedTokens);
    },
    async expose() {
      const engine = engineCounters(status().counters);
      return { contentType: registry.contentType, text: (await registry.metrics()) + engine };
    },
  };
}

function engineGauges(registers: Registry[], status: () => EngineStatus): void {
  const gauge = (name: string, help: string, read: (status: EngineStatus) => number) =>
    new Gauge({
      name: `edgewise_${name}`,
      help,
      registers,
      collect() {
        this.set(read(status()));
      },
    });
  gauge("engine_ready", "1 when the engine takes requests", ({ state }) => (state === "ready" ? 1 : 0));
  gauge(
    "engine_heartbeat_age_seconds",
    "Since the engine loop last moved",
    ({ heartbeatAge }) => heartbeatAge / 1000,
  );
  gauge("requests_running", "Sequences in the batch", ({ running }) => running);
  gauge("requests_waiting", "Sequences in the queue", ({ waiting }) => waiting);
  gauge("pages_total", "KV pages", ({ pagesTotal }) => pagesTotal);
  gauge("pages_free", "KV pages free", ({ pagesFree }) => pagesFree);
  gauge("pages_cached", "KV pages kept for prefix hits only", ({ pagesCached }) => pagesCached);
  gauge("pages_owned", "KV pages of running sequences", ({ pagesOwned }) => pagesOwned);
  gauge("pages_quarantined", "KV pages never used again", ({ pagesQuarantined }) => pagesQuarantined ?? 0);
  gauge("integrity", "Page tags: 0 off, 1 checked, 2 alarm", ({ integrity }) =>
    integrity === "alarm" ? 2 : integrity === "ok" ? 1 : 0,
  );
  gauge(
    "integrity_self_test_age_seconds",
    "Since a self-test of page tags raised its alarm; NaN: never",
    ({ selfTestAge }) => (typeof selfTestAge === "number" ? selfTestAge / 1000 : Number.NaN),
  );
  gauge("slots_free", "Batch slots free", ({ slotsFree }) => slotsFree);
}

/** The engine's cumulative counters are written out as they are: prom-client's own cannot be set. */
function engineCounters(counters: Record<string, number>): string {
  let text = "";
  for (const [key, value] of Object.entries(counters)) {
    const name = `edgewise_engine_${key.replace(/[^A-Za-z0-9_]/g, "_")}_total`;
    text += `# HELP ${name} Engine counter ${key}\n# TYPE ${name} counter\n${name} ${value}\n`;
  }
  return text;
}
