// What the engine does about pages that can't be trusted: incidents, the alarm, and the self-test that proves it.
import type { GenerateRequest } from "../contract/engine.ts";
import { PAGE_TOKENS } from "../kv/format.ts";
import { type Incident, incidentOf, staleEntryOf, suspectsOf } from "../kv/incidents.ts";
import { TAG_LAYOUT as T, TAG_CAUSES, type TagCause } from "../kv/tag-layout.ts";
import { PHASES } from "../kv/tags.ts";
import type { EngineRequest } from "./request.ts";
import type { Runner } from "./runner.ts";
import { GREEDY } from "./sampling.ts";
import type { Sequences } from "./sequences.ts";
import type { Counter } from "./status-board.ts";
import type { StepRecord } from "./step-record.ts";

export interface IntegrityOptions {
  /** Milliseconds from one self-test to the next; 0: none. Default 60 s. */
  selfTestMs?: number;
  /** Incidents within a minute that are borne; one more turns the alarm on. Default 3. */
  incidentsPerMinute?: number;
  onIncident?: (incident: Incident) => void;
}

const MINUTE = 60_000;
/** One page in so many may be out of use. */
const MOST_QUARANTINED = 8;
/** Handle of the self-test's sequence; those of requests are positive. */
const SELF_TEST = -1;

export class Integrity {
  /** Latched: only a restart ends it. Empty: all is well. */
  alarm = "";
  /** Time of the last self-test that raised its alarm; 0: none yet. */
  provenAt = 0;
  incidents = 0;
  retries = 0;
  selfTests = 0;
  readonly #sequences: Sequences;
  readonly #runner: Runner;
  readonly #options: IntegrityOptions;
  readonly #times: number[] = [];
  #testing: EngineRequest | null = null;
  #nextTest: number;
  // The stay of the self-test's sequence in which its page table was made wrong, and the first step to notice it. A
  // preemption begins a new stay, with a table that is right again.
  #wrongEpoch = 0;
  #wrongFrom = 0;

  constructor(sequences: Sequences, runner: Runner, now: number, options: IntegrityOptions) {
    this.#sequences = sequences;
    this.#runner = runner;
    this.#options = options;
    this.#nextTest = now;
  }

  isSelfTest(request: EngineRequest): boolean {
    return request.handle === SELF_TEST;
  }

  /** A row failed its check: the request starts over or ends, its pages are suspect. */
  rowFailed(
    request: EngineRequest,
    cause: TagCause,
    record: StepRecord,
    row: number,
    verdicts: Int32Array | null,
    now: number,
  ): void {
    if (this.isSelfTest(request)) {
      this.#selfTestFailedRow(request, cause, record.step, now);
      return;
    }
    const { stats } = this.#sequences.tracker;
    if (stats) stats.failures[TAG_CAUSES.indexOf(cause)]++;
    const words = verdicts?.slice(row * T.verdict_words, (row + 1) * T.verdict_words) ?? null;
    const context = { ...this.#context(request, record.step, PHASES[record.phases[row]]), cause };
    const starts = !request.retried && request.outputs === 0;
    const incident = incidentOf(
      { ...context, outcome: starts ? "retried" : "failed" },
      words,
      this.#sequences.tracker.history,
    );
    const message = `incident ${incident.incident}: the request's KV pages could not be trusted`;
    if (this.#sequences.distrust(request, suspectsOf(incident), message)) this.retries++;
    this.#report(incident, now);
  }

  staleEntry(request: EngineRequest, logical: number, page: number, generation: number, now: number): void {
    const context = {
      ...this.#context(request, 0, "prefix"),
      outcome: "missed",
      cause: "stale-entry",
    } as const;
    const { history } = this.#sequences.tracker;
    this.#report(staleEntryOf(context, logical, page, generation, history), now);
  }

  /** Starts a self-test when it is time for one. */
  tick(now: number, add: (handle: number, request: GenerateRequest) => EngineRequest): void {
    const { selfTestMs = MINUTE } = this.#options;
    const { maxLen, pool } = this.#sequences;
    if (selfTestMs === 0 || !this.#runner.misdirect || this.#testing || now < this.#nextTest) return;
    // It needs a second page, so that the first is only read.
    if (maxLen < PAGE_TOKENS + 8 || pool.total < 2) return;
    this.#nextTest = now + selfTestMs;
    this.#wrongEpoch = 0;
    const request = add(SELF_TEST, {
      prompt: new Int32Array(PAGE_TOKENS + 1),
      sampling: GREEDY,
      maxTokens: 6,
      stopTokens: [],
      minTokens: 0,
      salt: "self-test",
      label: "self-test",
    });
    request.retried = true; // shares no pages, and ends when it fails
    this.#testing = request.done ? null : request;
  }

  /** The self-test's sequence got a token: of a step before its table was made wrong, or the check does not work. */
  selfTestToken(request: EngineRequest, applied: number, submitted: number): void {
    if (request.epoch !== this.#wrongEpoch) {
      this.#runner.misdirect?.(request.slot, 0, request.pages[1]);
      this.#wrongFrom = submitted + 1;
      this.#wrongEpoch = request.epoch;
    } else if (applied >= this.#wrongFrom) {
      this.alarm = "the self-test's wrong page was not noticed";
    }
  }

  selfTestEnded(): void {
    this.#testing = null;
  }

  /** Enters everything that is counted. */
  count(counters: Record<Counter, number>): void {
    const { stats } = this.#sequences.tracker;
    if (!stats) return;
    PHASES.forEach((phase, i) => {
      counters[`kv_tag_pages_read_${phase}`] = stats.pagesRead[i];
      counters[`kv_tag_pages_checked_${phase}`] = stats.pagesChecked[i];
    });
    TAG_CAUSES.forEach((cause, i) => {
      counters[`kv_tag_failures_${cause}`] = stats.failures[i];
    });
    counters.kv_tag_steps_checked = stats.stepsChecked;
    counters.kv_tag_stale_entries = stats.staleEntries;
    counters.kv_tag_incidents = this.incidents;
    counters.kv_tag_retries = this.retries;
    counters.kv_tag_self_tests = this.selfTests;
  }

  #selfTestFailedRow(request: EngineRequest, cause: TagCause, step: number, now: number): void {
    if (request.epoch === this.#wrongEpoch && step >= this.#wrongFrom && cause === "mapping") {
      this.provenAt = now;
      this.selfTests++;
    } else {
      this.alarm = `the self-test failed: ${cause} in a step of its own`;
    }
    this.#sequences.fail(request, "kv_integrity", "self-test");
  }

  #context(request: EngineRequest, step: number, phase: string) {
    const { handle, account, slot, source } = request;
    return { request: handle, label: source.label, account, slot, step, phase };
  }

  #report(incident: Incident, now: number): void {
    this.incidents++;
    this.#times.push(now);
    while (this.#times[0] <= now - MINUTE) this.#times.shift();
    const { incidentsPerMinute: most = 3, onIncident } = this.#options;
    const { pool } = this.#sequences;
    if (pool.quarantined > pool.total / MOST_QUARANTINED) this.alarm = "too many KV pages are quarantined";
    if (this.#times.length > most) this.alarm = `more than ${most} integrity incidents within a minute`;
    onIncident?.(incident);
  }
}
