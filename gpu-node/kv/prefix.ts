// The prefix cache: full pages by the hash of everything up to their end, so that equal prefixes share pages.
//
//   key(page i) = SHA-256(key(page i - 1) | the page's 64 token ids),   key(-1) = SHA-256(process secret | salt)
//
// The salt is the account: sequences of different accounts never share. Token ids are compared on a hit as well, so a
// collision is a miss. An entry is added only after the step that wrote its page has completed (scheduler.apply).
import { hash, randomBytes } from "node:crypto";
import { PAGE_TOKENS } from "./format.ts";
import type { PagePool } from "./pages.ts";

/** The keys of a sequence's full pages, extended as its tokens become known. */
export interface PrefixKeys {
  readonly root: string;
  readonly keys: string[];
}

interface Entry {
  readonly page: number;
  /** Of the grant under which the page was written (kv/tags.ts): another one now means that it has changed hands. */
  readonly generation: number;
}

export class PrefixCache {
  readonly #pool: PagePool;
  readonly #entries = new Map<string, Entry>();
  readonly #keys: (string | undefined)[];
  readonly #tokens: Int32Array;
  readonly #secret: string;
  readonly #message = Buffer.alloc(64 + 4 * PAGE_TOKENS);

  constructor(pool: PagePool, secret: string = randomBytes(32).toString("hex")) {
    this.#pool = pool;
    this.#secret = secret;
    this.#keys = new Array(pool.total + 1);
    this.#tokens = new Int32Array((pool.total + 1) * PAGE_TOKENS);
    pool.onEvict = (page) => this.#forget(page);
  }

  get size(): number {
    return this.#entries.size;
  }

  newKeys(salt: string): PrefixKeys {
    return { root: hash("sha256", `${this.#secret}|${salt}`, "hex"), keys: [] };
  }

  /**
   * Writes the pages of the longest cached prefix of tokens [0, length) to `into`, and the generations that their entries
   * carry, and returns their number. The last token is never part of it: it has to be computed for its logits. The
   * caller pins the pages before it allocates any.
   */
  match(
    keys: PrefixKeys,
    tokens: Int32Array,
    length: number,
    into: Int32Array,
    generations: Int32Array = new Int32Array(into.length),
  ): number {
    const limit = Math.floor((length - 1) / PAGE_TOKENS);
    for (let i = 0; i < limit; i++) {
      const entry = this.#entries.get(this.key(keys, tokens, i));
      if (entry === undefined || !this.#same(entry.page, tokens, i)) return i;
      into[i] = entry.page;
      generations[i] = entry.generation;
    }
    return limit;
  }

  /** Takes out the entry of page `index` of a sequence, whose page has changed hands. */
  drop(keys: PrefixKeys, tokens: Int32Array, index: number): void {
    const key = this.key(keys, tokens, index);
    const page = this.#entries.get(key)?.page;
    if (page !== undefined && this.#keys[page] === key) {
      this.#pool.unpublish(page);
      this.#keys[page] = undefined;
    }
    this.#entries.delete(key);
  }

  /** Adds page `index` of a sequence, completely written. A key that is already there keeps its page. */
  publish(keys: PrefixKeys, tokens: Int32Array, index: number, page: number, generation = 0): void {
    const key = this.key(keys, tokens, index);
    if (this.#entries.has(key)) return;
    this.#entries.set(key, { page, generation });
    this.#keys[page] = key;
    for (let i = 0; i < PAGE_TOKENS; i++) {
      this.#tokens[page * PAGE_TOKENS + i] = tokens[index * PAGE_TOKENS + i];
    }
    this.#pool.publish(page);
  }

  /** Visible pages, for invariants. */
  pages(): number[] {
    return Array.from(this.#entries.values(), ({ page }) => page);
  }

  /** Of page `index` with everything before it. */
  key(chain: PrefixKeys, tokens: Int32Array, index: number): string {
    const { keys } = chain;
    while (keys.length <= index) {
      const at = keys.length;
      this.#message.write(at === 0 ? chain.root : keys[at - 1], 0, "latin1");
      for (let i = 0; i < PAGE_TOKENS; i++) {
        this.#message.writeInt32LE(tokens[at * PAGE_TOKENS + i], 64 + 4 * i);
      }
      keys.push(hash("sha256", this.#message, "hex"));
    }
    return keys[index];
  }

  #same(page: number, tokens: Int32Array, index: number): boolean {
    for (let i = 0; i < PAGE_TOKENS; i++) {
      if (this.#tokens[page * PAGE_TOKENS + i] !== tokens[index * PAGE_TOKENS + i]) return false;
    }
    return true;
  }

  #forget(page: number): void {
    const key = this.#keys[page];
    if (key === undefined || this.#entries.get(key)?.page !== page)
      throw new Error(`prefix cache: no entry of page ${page}`);
    this.#entries.delete(key);
    this.#keys[page] = undefined;
  }
}
