// Which node a request goes to: rendezvous hashing with bounded load; spilled sessions are pinned.

import { EDGE } from "./limits.ts";

export interface Candidate {
  id: string;
  weight: number;
  /** Requests in flight. */
  load: number;
  /** False after recent failures: taken only when no other is left. */
  healthy: boolean;
}

/** Headers that name a session, the most specific first. */
const SESSION_HEADERS = [
  "x-session-affinity",
  "x-claude-code-session-id",
  "session-id",
  "session_id",
  "x-session-id",
];

/**
 * The key that keeps a session on one node: a header, else the body's `prompt_cache_key`, else what a conversation keeps
 * from turn to turn. Scoped by account, so that no tenant can steer another's requests.
 */
export function sessionKey(
  account: string,
  model: string,
  header: (name: string) => string | null | undefined,
  body: Record<string, unknown>,
): string {
  const scope = `${account}\n${model}\n`;
  for (const name of SESSION_HEADERS) {
    const value = header(name);
    if (value && value.length <= EDGE.sessionCharacters) return `${scope}id\n${value}`;
  }
  const cacheKey = body.prompt_cache_key;
  if (typeof cacheKey === "string" && cacheKey !== "" && cacheKey.length <= EDGE.sessionCharacters) {
    return `${scope}id\n${cacheKey}`;
  }
  return `${scope}text\n${JSON.stringify(opening(body))}`;
}

/** What the turns of one conversation share: system text, tools and the first user message, or the prompt. */
function opening(body: Record<string, unknown>): unknown[] {
  if (!Array.isArray(body.messages)) return [body.prompt];
  const shared: unknown[] = [body.tools];
  for (const message of body.messages) {
    shared.push(message);
    if (message?.role === "user") break;
  }
  return shared;
}

/**
 * Candidates in the order to try them. The first healthy one whose load is within the bound comes first; the others
 * follow by score, healthy before unhealthy. The order depends on the key and the candidates only.
 */
export function rank<T extends Candidate>(key: string, candidates: T[]): T[] {
  const order = byScore(key, candidates);
  const healthy = order.filter((node) => node.healthy);
  return [
    ...healthy.filter((node) => within(node, healthy)),
    ...healthy.filter((node) => !within(node, healthy)),
    ...order.filter((node) => !node.healthy),
  ];
}

/**
 * Sessions that were sent away from their first choice. They stay where they went, or their cache would be built twice.
 * Oldest use first; bounded.
 */
export class Pins {
  private readonly table = new Map<string, { node: string; until: number }>();

  get(key: string, now: number): string | undefined {
    const pin = this.table.get(key);
    if (!pin) return undefined;
    this.table.delete(key);
    if (pin.until <= now) return undefined;
    this.table.set(key, { node: pin.node, until: now + EDGE.pinIdleMs });
    return pin.node;
  }

  set(key: string, node: string, now: number): void {
    this.table.delete(key);
    this.table.set(key, { node, until: now + EDGE.pinIdleMs });
    if (this.table.size > EDGE.pins) {
      const [oldest] = this.table.keys();
      this.table.delete(oldest);
    }
  }

  delete(key: string): void {
    this.table.delete(key);
  }
}

/**
 * `rank`, with sessions that were sent away kept where they went while that node can take them.
 */
export function place<T extends Candidate>(key: string, candidates: T[], pins: Pins, now: number): T[] {
  const order = rank(key, candidates);
  if (order.length < 2) return order;
  const pinned = pins.get(key, now);
  const at = order.findIndex((node) => node.id === pinned && node.healthy);
  if (at > 0 && within(order[at], order)) order.unshift(...order.splice(at, 1));
  const home = byScore(key, candidates)[0];
  if (order[0].id === home.id) pins.delete(key);
  else pins.set(key, order[0].id, now);
  return order;
}

function byScore<T extends Candidate>(key: string, candidates: T[]): T[] {
  const scored = candidates.map((node) => ({ node, score: score(key, node) }));
  scored.sort((a, b) => b.score - a.score || (a.node.id < b.node.id ? -1 : 1));
  return scored.map(({ node }) => node);
}

/** One more request keeps the node within `loadFactor` of its share of the healthy nodes' load, plus one. */
function within(node: Candidate, all: Candidate[]): boolean {
  let weight = 0;
  let load = 0;
  for (const other of all) {
    if (!other.healthy) continue;
    weight += other.weight;
    load += other.load;
  }
  return node.load <= (EDGE.loadFactor * load * node.weight) / weight + 1;
}

/** Weighted rendezvous score: -weight / ln(u) with u uniform in (0, 1) from the hash of key and node. */
function score(key: string, node: Candidate): number {
  return -node.weight / Math.log((hash53(`${node.id}\n${key}`) + 0.5) / 2 ** 53);
}

/** 53 uniform bits: two 32-bit multiply-xor lanes over the UTF-16 units, each finished by murmur3's mixer. */
export function hash53(text: string): number {
  let a = 0x9e3779b9;
  let b = 0x85ebca6b;
  for (let i = 0; i < text.length; i++) {
    const unit = text.charCodeAt(i);
    a = Math.imul(a ^ unit, 0x01000193);
    b = Math.imul(b ^ unit, 0x5bd1e995);
    b ^= b >>> 15;
  }
  a = mix(a ^ text.length);
  b = mix(b ^ a);
  return (a >>> 0) * 2 ** 21 + (b >>> 11);
}

function mix(x: number): number {
  let y = Math.imul(x ^ (x >>> 16), 0x85ebca6b);
  y = Math.imul(y ^ (y >>> 13), 0xc2b2ae35);
  return y ^ (y >>> 16);
}
