import assert from "node:assert/strict";
import { test } from "node:test";
import { PagePool } from "../../../gpu-node/kv/pages.ts";
import { PrefixCache } from "../../../gpu-node/kv/prefix.ts";

const tokens = Int32Array.from({ length: 200 }, (_, i) => i);
const into = new Int32Array(8);

function published(pages: number, salt = "a") {
  const pool = new PagePool(10);
  const cache = new PrefixCache(pool, "secret");
  const keys = cache.newKeys(salt);
  const held: number[] = [];
  for (let i = 0; i < pages; i++) {
    held.push(pool.allocate());
    cache.publish(keys, tokens, i, held[i]);
  }
  return { pool, cache, keys, held };
}

test("the longest run of full pages from the beginning is found", () => {
  const { cache, held } = published(3);
  assert.equal(cache.match(cache.newKeys("a"), tokens, 200, into), 3);
  assert.deepEqual([...into.subarray(0, 3)], held);
  const other = tokens.slice();
  other[100] = 7;
  assert.equal(cache.match(cache.newKeys("a"), other, 200, into), 1);
});

test("the page of the last token is never part of a match", () => {
  const { cache } = published(3);
  assert.equal(cache.match(cache.newKeys("a"), tokens, 193, into), 3);
  assert.equal(cache.match(cache.newKeys("a"), tokens, 192, into), 2);
  assert.equal(cache.match(cache.newKeys("a"), tokens, 1, into), 0);
});

test("a different salt, and an equal page after a different one, match nothing", () => {
  const { cache } = published(3);
  assert.equal(cache.match(cache.newKeys("b"), tokens, 200, into), 0);
  const shifted = new Int32Array(200);
  shifted.set(tokens.subarray(64, 128), 64);
  shifted[0] = 9;
  assert.equal(cache.match(cache.newKeys("a"), shifted, 200, into), 0);
});

test("equal pages after different beginnings have entries of their own", () => {
  const { pool, cache } = published(2);
  const other = tokens.slice();
  other[0] = 9;
  const keys = cache.newKeys("a");
  for (let i = 0; i < 2; i++) cache.publish(keys, other, i, pool.allocate());
  assert.equal(cache.size, 4);
});

test("keys differ between processes", () => {
  const root = (secret?: string) => new PrefixCache(new PagePool(3), secret).newKeys("a").root;
  assert.notEqual(root(), root());
  assert.equal(root("x"), root("x"));
});

test("equal keys with other tokens are a miss", () => {
  const { cache, keys } = published(1);
  const collision = { root: keys.root, keys: [...keys.keys] };
  const other = Int32Array.from({ length: 200 }, (_, i) => i + 1);
  assert.equal(cache.match(collision, other, 200, into), 0);
});

test("an evicted page is found no more, and the pages after it are not reached", () => {
  const { pool, cache, held } = published(2);
  pool.release(held[0]);
  while (pool.free > 0) pool.allocate();
  assert.equal(pool.allocate(), held[0]);
  assert.equal(cache.match(cache.newKeys("a"), tokens, 200, into), 0);
  assert.equal(cache.size, 1);
});

test("a second page with the same content is not published and is free after its release", () => {
  const { pool, cache, keys, held } = published(1);
  const twin = pool.allocate();
  cache.publish(keys, tokens, 0, twin);
  pool.release(twin);
  pool.release(held[0]);
  assert.deepEqual([pool.free, pool.cached], [8, 1]);
});
