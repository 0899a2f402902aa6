// What the engine's thread tells the main thread without messages: numbers in shared memory, and the doorbell back.
import type { EngineStatus } from "../contract/engine.ts";
import { TAG_CAUSES } from "../kv/tag-layout.ts";
import { PHASES } from "../kv/tags.ts";

export const ENGINE_STATES = ["loading", "ready", "draining", "failed"] as const;

/** Instantaneous values. beatAt, selfTestAt: times; integrity: index into INTEGRITY_STATES. */
const GAUGES = [
  "progress",
  "running",
  "waiting",
  "pagesTotal",
  "pagesFree",
  "pagesCached",
  "pagesOwned",
  "slotsFree",
  "beatAt",
  "pagesQuarantined",
  "integrity",
  "selfTestAt",
] as const;

export const INTEGRITY_STATES = ["off", "ok", "alarm"] as const;

const TAG_COUNTERS = [
  ...PHASES.map((phase) => `kv_tag_pages_read_${phase}` as const),
  ...PHASES.map((phase) => `kv_tag_pages_checked_${phase}` as const),
  ...TAG_CAUSES.map((cause) => `kv_tag_failures_${cause}` as const),
  "kv_tag_steps_checked",
  "kv_tag_stale_entries",
  "kv_tag_incidents",
  "kv_tag_retries",
  "kv_tag_self_tests",
] as const;

/** Cumulative values; times in milliseconds. Those of page tags are told only where pages are checked. */
export const COUNTERS = [
  ...TAG_COUNTERS,
  "steps",
  "rows",
  "prompt_tokens",
  "cached_tokens",
  "computed_tokens",
  "generated_tokens",
  "preemptions",
  "evictions",
  "stale_rows",
  "finished_stop",
  "finished_length",
  "finished_abort",
  "errors",
  "kv_saturated",
  "kv_nan",
  "schedule_ms",
  "submit_ms",
  "wait_ms",
  "apply_ms",
] as const;

export type Gauge = (typeof GAUGES)[number];
export type Counter = (typeof COUNTERS)[number];

const DOORBELL = 0;
const HEARTBEAT = 1;
const STATE = 2;
const CONTROL = 4;

/** Both threads make one over the same memory; the engine's thread writes, the main thread reads and rings. */
export class StatusBoard {
  readonly memory: SharedArrayBuffer;
  readonly #control: Int32Array;
  readonly #values: Float64Array;
  readonly #index = new Map<string, number>();

  constructor(memory?: SharedArrayBuffer) {
    const names = [...GAUGES, ...COUNTERS];
    this.memory = memory ?? new SharedArrayBuffer(4 * CONTROL + 8 * names.length);
    this.#control = new Int32Array(this.memory, 0, CONTROL);
    this.#values = new Float64Array(this.memory, 4 * CONTROL);
    names.forEach((name, index) => {
      this.#index.set(name, index);
    });
    if (!memory) this.beat();
  }

  set(name: Gauge | Counter, value: number): void {
    this.#values[this.#index.get(name)!] = value;
  }

  get(name: Gauge | Counter): number {
    return this.#values[this.#index.get(name)!];
  }

  get state(): EngineStatus["state"] {
    return ENGINE_STATES[Atomics.load(this.#control, STATE)];
  }
  set state(state: EngineStatus["state"]) {
    Atomics.store(this.#control, STATE, ENGINE_STATES.indexOf(state));
  }

  /** The loop turns. */
  beat(): void {
    Atomics.add(this.#control, HEARTBEAT, 1);
    this.set("beatAt", Date.now());
  }
  get heartbeat(): number {
    return Atomics.load(this.#control, HEARTBEAT);
  }

  /** Wakes the engine's thread: there is a message for it. */
  ring(): void {
    Atomics.add(this.#control, DOORBELL, 1);
    Atomics.notify(this.#control, DOORBELL);
  }
  /** Number of rings so far; take it before looking for messages, so that no ring is slept through. */
  get rings(): number {
    return Atomics.load(this.#control, DOORBELL);
  }
  /** Sleeps until the doorbell has rung more than `seen` times, at most `ms`. */
  sleep(seen: number, ms: number): void {
    Atomics.wait(this.#control, DOORBELL, seen, ms);
  }

  snapshot(): EngineStatus {
    const counters: Record<string, number> = {};
    const integrity = INTEGRITY_STATES[this.get("integrity")];
    for (const name of COUNTERS) {
      if (integrity !== "off" || !name.startsWith("kv_tag_")) counters[name] = this.get(name);
    }
    return {
      integrity,
      selfTestAge: this.get("selfTestAt") > 0 ? Math.max(0, Date.now() - this.get("selfTestAt")) : null,
      pagesQuarantined: this.get("pagesQuarantined"),
      state: this.state,
      progress: this.get("progress"),
      heartbeat: this.heartbeat,
      heartbeatAge: Math.max(0, Date.now() - this.get("beatAt")),
      running: this.get("running"),
      waiting: this.get("waiting"),
      pagesTotal: this.get("pagesTotal"),
      pagesFree: this.get("pagesFree"),
      pagesCached: this.get("pagesCached"),
      pagesOwned: this.get("pagesOwned"),
      slotsFree: this.get("slotsFree"),
      counters,
    };
  }
}
