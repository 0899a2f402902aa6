// vLLM #42571, UCM #1053, Dynamo #13398: one block released twice; the free count grew and two requests got one block.
import assert from "node:assert/strict";
import { test } from "node:test";
import { PagePool } from "../../gpu-node/kv/pages.ts";

test("a second release of a page is refused, in flight or not, and no page is handed out twice", () => {
  const pool = new PagePool(5);
  const page = pool.allocate();
  pool.submitted(1);
  pool.release(page);
  assert.throws(() => pool.release(page), /nobody holds/);
  pool.completed(1);
  assert.throws(() => pool.release(page), /nobody holds/);
  assert.equal(pool.free, 4);
  const all = Array.from({ length: 4 }, () => pool.allocate());
  assert.equal(new Set(all).size, 4);
});

test("a page that two requests share is free after both released it, not before", () => {
  const pool = new PagePool(5);
  const page = pool.allocate();
  pool.publish(page);
  pool.pin(page);
  pool.release(page);
  assert.equal(pool.owned, 1);
  pool.release(page);
  assert.deepEqual([pool.owned, pool.cached], [0, 1]);
});
