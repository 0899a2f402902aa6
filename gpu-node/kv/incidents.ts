// What is told of a page that was not what a sequence was granted: one JSON line each.
import { randomUUID } from "node:crypto";
import type { PageHistory, PageTransition } from "./page-history.ts";
import { TAG_LAYOUT as T, type TagCause, wide } from "./tag-layout.ts";
import type { Account } from "./tags.ts";

export interface PageIdentity {
  page: number;
  generation: number;
  /** Hex; absent where no tag was compared. */
  tag?: string;
}

export interface Incident {
  incident: string;
  /** ISO 8601. */
  time: string;
  /** `stale-entry`: a prefix entry's page had changed hands, a miss. */
  cause: TagCause | "stale-entry";
  phase: string;
  /** The request starts over, has ended with an error, or goes on without the hit. */
  outcome: "retried" | "failed" | "missed";
  request: number;
  label: string;
  /** Keyed hash of the account. */
  account: string;
  step: number;
  slot: number;
  /** Page of the sequence; -1: none in particular. */
  logical: number;
  expected: PageIdentity | null;
  found: PageIdentity | null;
  /** The last transitions of the pages named. */
  transitions: Record<string, PageTransition[]>;
}

/** What the engine knows beside the verdict. */
export type IncidentContext = Pick<
  Incident,
  "cause" | "phase" | "outcome" | "request" | "label" | "step" | "slot"
> & { account: Account };

const hex = (low: number, high: number) => wide(low, high).toString(16).padStart(16, "0");

/** @param verdict the row's words, or null when it has none */
export function incidentOf(
  { account, ...context }: IncidentContext,
  verdict: Int32Array | null,
  history: PageHistory | null,
): Incident {
  const named = verdict !== null && context.cause !== "unchecked" && verdict[T.v_logical] >= 0;
  const side = (page: number, generation: number, tag: number): PageIdentity | null =>
    named
      ? {
          page: verdict[page],
          generation: verdict[generation] >>> 0,
          tag: hex(verdict[tag], verdict[tag + 1]),
        }
      : null;
  const expected = side(T.v_page, T.v_generation, T.v_tag);
  const found = side(T.v_found_page, T.v_found_generation, T.v_found_tag);
  const logical = named ? verdict[T.v_logical] : -1;
  return complete({ account, ...context }, logical, expected, found, history);
}

/** A stale prefix entry: page `logical` was cached under a generation that its page no longer has. */
export function staleEntryOf(
  context: IncidentContext,
  logical: number,
  page: number,
  generation: number,
  history: PageHistory | null,
): Incident {
  return complete(context, logical, { page, generation: generation >>> 0 }, null, history);
}

/** The pages that an incident gives reason to suspect. */
export function suspectsOf({ expected, found }: Incident): number[] {
  return [...new Set([expected?.page ?? 0, found?.page ?? 0])].filter((page) => page > 0);
}

function complete(
  { account, ...context }: IncidentContext,
  logical: number,
  expected: PageIdentity | null,
  found: PageIdentity | null,
  history: PageHistory | null,
): Incident {
  const pages = suspectsOf({ expected, found } as Incident);
  return {
    incident: randomUUID(),
    time: new Date().toISOString(),
    ...context,
    account: hex(account.low, account.high),
    logical,
    expected,
    found,
    transitions: Object.fromEntries(pages.map((page) => [page, history?.of(page) ?? []])),
  };
}
