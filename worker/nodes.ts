// The nodes as this isolate knows them: configuration, requests in flight, failures seen, models served. Plain data
// only, because workerd ties promises and streams to the request that made them.

import { z } from "zod";
import { createSigner, type Signer } from "../gpu-node/contract/signing.ts";
import type { NodeConfig } from "./config.ts";
import { Leases } from "./leases.ts";
import { EDGE } from "./limits.ts";

export interface ModelEntry {
  id: string;
  /** Unix seconds. */
  created: number;
  ownedBy: string;
  /** Tokens; undefined when the node does not say. */
  contextWindow: number | undefined;
}

export interface NodeReadiness {
  id: string;
  ready: boolean;
}

/** What an OpenAI-compatible server lists; ours and vLLM add `max_model_len`. */
const modelList = z.object({
  data: z.array(
    z.object({
      id: z.string(),
      created: z.number().catch(0),
      owned_by: z.string().catch("edgewise"),
      max_model_len: z.number().optional().catch(undefined),
    }),
  ),
});

export class NodeState {
  readonly config: NodeConfig;
  readonly signer: Signer;
  readonly leases = new Leases();
  private failures = 0;
  private downUntil = 0;
  private learned: ModelEntry[] | undefined;
  /** Whether an ask for models has come to its end, well or not. */
  private answered = false;
  private askedAt = Number.NEGATIVE_INFINITY;

  constructor(config: NodeConfig, signer: Signer) {
    this.config = config;
    this.signer = signer;
  }

  get id(): string {
    return this.config.id;
  }

  healthy(now: number): boolean {
    return now >= this.downUntil;
  }

  /** Marks a failure: tried last for a while, doubled by every further one. */
  failed(now: number): void {
    if (!this.healthy(now)) return;
    this.downUntil = now + Math.min(EDGE.downMs * 2 ** this.failures, EDGE.downMaxMs);
    this.failures = Math.min(this.failures + 1, 16);
  }

  succeeded(): void {
    this.failures = 0;
    this.downUntil = 0;
  }

  /** Models by configuration or by the node's own answer; undefined while neither is known. */
  models(): ModelEntry[] | undefined {
    if (this.learned) return this.learned;
    return this.config.models?.map((id) => ({
      id,
      created: 0,
      ownedBy: "edgewise",
      contextWindow: undefined,
    }));
  }

  /**
   * True when the node was asked lately, whatever came of it: one that hangs must not slow every request. Until the first
   * answer every request asks for itself, or those that come together in a new isolate would find no node.
   */
  fresh(now: number): boolean {
    return this.answered && now - this.askedAt < EDGE.modelsMs;
  }

  /** Asks the node for its models. A node that does not answer keeps what was known and is marked. */
  async learn(account: string, signal: AbortSignal): Promise<void> {
    const target = "/v1/models";
    this.askedAt = Date.now();
    try {
      const headers = await this.signer.sign({ method: "GET", target, account, body: "" });
      const response = await fetch(this.config.url + target, {
        headers,
        redirect: "manual",
        signal: AbortSignal.any([signal, AbortSignal.timeout(EDGE.probeMs)]),
      });
      if (!response.ok) throw new Error(`status ${response.status}`);
      const { data } = modelList.parse(await response.json());
      const all = data.map((model) => ({
        id: model.id,
        created: model.created,
        ownedBy: model.owned_by,
        contextWindow: model.max_model_len,
      }));
      const allowed = this.config.models;
      this.learned = allowed ? all.filter((model) => allowed.includes(model.id)) : all;
      this.answered = true;
    } catch (error) {
      if (signal.aborted) {
        this.askedAt = Number.NEGATIVE_INFINITY;
        return;
      }
      this.answered = true;
      console.warn(`node ${this.id}: no list of models: ${error instanceof Error ? error.message : error}`);
      this.failed(Date.now());
    }
  }

  async ready(): Promise<boolean> {
    try {
      const response = await fetch(`${this.config.url}/readyz`, {
        redirect: "manual",
        signal: AbortSignal.timeout(EDGE.probeMs),
      });
      await response.body?.cancel();
      return response.ok;
    } catch {
      return false;
    }
  }
}

export class NodeTable {
  readonly nodes: NodeState[];
  private retries: number = EDGE.retryBudget;

  private constructor(nodes: NodeState[]) {
    this.nodes = nodes;
  }

  static async create(configs: NodeConfig[]): Promise<NodeTable> {
    const nodes: NodeState[] = [];
    for (const config of configs) nodes.push(new NodeState(config, await createSigner(config.key)));
    return new NodeTable(nodes);
  }

  /** Refreshes what is stale; returns once every node answered or timed out. */
  async refresh(account: string, signal: AbortSignal): Promise<void> {
    const stale = this.nodes.filter((node) => !node.fresh(Date.now()));
    await inWaves(stale, (node) => node.learn(account, signal));
  }

  /** Every model that some node serves, by id. */
  models(): ModelEntry[] {
    const byId = new Map<string, ModelEntry>();
    for (const node of this.nodes) {
      for (const model of node.models() ?? []) if (!byId.has(model.id)) byId.set(model.id, model);
    }
    return [...byId.values()].sort((a, b) => (a.id < b.id ? -1 : 1));
  }

  /** Nodes that serve `model`. */
  serving(model: string): NodeState[] {
    return this.nodes.filter((node) => node.models()?.some((entry) => entry.id === model));
  }

  /** True when every node has told its models. */
  complete(): boolean {
    return this.nodes.every((node) => node.models() !== undefined);
  }

  async readiness(): Promise<NodeReadiness[]> {
    const found: NodeReadiness[] = [];
    await inWaves(this.nodes, async (node) => {
      found.push({ id: node.id, ready: await node.ready() });
    });
    return found.sort((a, b) => (a.id < b.id ? -1 : 1));
  }

  /** Every request earns a fraction of a retry, so that a failing pool is not asked many times over. */
  earnRetry(): void {
    this.retries = Math.min(EDGE.retryBudget, this.retries + EDGE.retryEarned);
  }

  spendRetry(): boolean {
    if (this.retries < 1) return false;
    this.retries--;
    return true;
  }
}

async function inWaves<T>(items: T[], work: (item: T) => Promise<void>): Promise<void> {
  for (let i = 0; i < items.length; i += EDGE.probesAtOnce) {
    await Promise.all(items.slice(i, i + EDGE.probesAtOnce).map(work));
  }
}
