import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { FenceQueue } from "../../../gpu-node/kv/fences.ts";
import { PagePool, PageState } from "../../../gpu-node/kv/pages.ts";

test("page 0 is never handed out", () => {
  const pool = new PagePool(9);
  const pages = Array.from({ length: 8 }, () => pool.allocate());
  assert.deepEqual(pages.toSorted(), [1, 2, 3, 4, 5, 6, 7, 8]);
  assert.throws(() => pool.allocate(), /no page available/);
});

test("a page released while a step is in flight is free only after that step has completed", () => {
  const pool = new PagePool(3);
  const page = pool.allocate();
  pool.submitted(7);
  pool.release(page);
  assert.deepEqual([pool.free, pool.fenced, pool.owned], [1, 1, 0]);
  pool.completed(6);
  assert.equal(pool.fenced, 1);
  pool.completed(7);
  assert.deepEqual([pool.free, pool.fenced], [2, 0]);
});

test("a page released with nothing in flight is free at once", () => {
  const pool = new PagePool(3);
  pool.submitted(1);
  pool.completed(1);
  pool.release(pool.allocate());
  assert.equal(pool.free, 2);
});

test("a cached page pinned behind the fence stays owned when the fence opens", () => {
  const pool = new PagePool(3);
  const page = pool.allocate();
  pool.publish(page);
  pool.submitted(1);
  pool.release(page);
  pool.pin(page);
  pool.completed(1);
  assert.equal(pool.state[page], PageState.owned);
  assert.equal(pool.refs[page], 1);
});

test("a page pinned and released again waits for the later fence", () => {
  const pool = new PagePool(3);
  const page = pool.allocate();
  pool.publish(page);
  pool.submitted(1);
  pool.release(page);
  pool.pin(page);
  pool.submitted(2);
  pool.release(page);
  pool.completed(1);
  assert.equal(pool.state[page], PageState.fenced);
  pool.completed(2);
  assert.equal(pool.state[page], PageState.cached);
});

test("releasing a page twice is an error, not a second free entry", () => {
  const pool = new PagePool(3);
  const page = pool.allocate();
  pool.release(page);
  assert.throws(() => pool.release(page), /nobody holds/);
  assert.equal(pool.free, 2);
});

test("a free page can't be pinned", () => {
  const pool = new PagePool(3);
  assert.throws(() => pool.pin(1), /pin of page 1/);
  assert.throws(() => pool.pin(0), /pin of page 0/);
});

test("the cached page that was released first is evicted first, and only when nothing is free", () => {
  const pool = new PagePool(4);
  const evicted: number[] = [];
  pool.onEvict = (page) => evicted.push(page);
  const [a, b] = [pool.allocate(), pool.allocate()];
  for (const page of [a, b]) pool.publish(page);
  pool.release(b);
  pool.release(a);
  pool.allocate();
  assert.deepEqual(evicted, []);
  pool.allocate();
  pool.allocate();
  assert.deepEqual(evicted, [b, a]);
});

test("whatever is done, every page is in exactly one state and the counts agree", () => {
  const action = fc.record({ kind: fc.nat(5), pick: fc.nat(100) });
  fc.assert(
    fc.property(fc.array(action, { maxLength: 200 }), (actions) => {
      const pool = new PagePool(8);
      const held: number[] = [];
      let submitted = 0;
      let completed = 0;
      for (const { kind, pick } of actions) {
        if (kind === 0 && pool.available > 0) held.push(pool.allocate());
        else if (kind === 1 && held.length > 0) pool.release(held.splice(pick % held.length, 1)[0]);
        else if (kind === 2 && held.length > 0) pool.publish(held[pick % held.length]);
        else if (kind === 3) pool.submitted(++submitted);
        else if (kind === 4 && completed < submitted) pool.completed(++completed);
        else if (kind === 5) {
          const page = 1 + (pick % 7);
          const state = pool.state[page];
          if (state === PageState.cached || (state === PageState.owned && held.includes(page))) {
            pool.pin(page);
            held.push(page);
          }
        }
        const states = [0, 0, 0, 0, 0];
        for (const state of pool.state) states[state]++;
        assert.deepEqual(states, [pool.free, pool.cached, pool.owned, pool.fenced, 1]);
        for (let page = 1; page < 8; page++) {
          assert.equal(pool.refs[page], held.filter((p) => p === page).length);
        }
      }
    }),
  );
});

test("a fence queue keeps its order through growth", () => {
  const queue = new FenceQueue(2);
  const seen: number[] = [];
  queue.push(1, 1, 0);
  queue.push(2, 2, 0);
  queue.drain(1, (page) => seen.push(page));
  for (let i = 3; i <= 9; i++) queue.push(i, i, 0);
  queue.drain(9, (page) => seen.push(page));
  assert.deepEqual(seen, [1, 2, 3, 4, 5, 6, 7, 8, 9]);
  assert.equal(queue.size, 0);
});
