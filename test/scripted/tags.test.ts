// Page tags over the oracle runner: faults of page lifetimes raise the alarm, and nothing is answered from wrong pages.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import type { Incident } from "../../gpu-node/kv/incidents.ts";
import { PageState } from "../../gpu-node/kv/pages.ts";
import { CheckedSimRunner, closeDevice, type Tamper } from "./checked-runner.ts";
import { ending, Harness, type HarnessOptions, type Heard, promptOf, usage } from "./harness.ts";

after(closeDevice);

interface Checked {
  h: Harness;
  runner: CheckedSimRunner;
  incidents: Incident[];
  /** Ticks until everything has ended; every token must be the oracle's. */
  finish(): void;
}

function checked(options: HarnessOptions = {}, depth = 1, tamper: Tamper = {}): Checked {
  const incidents: Incident[] = [];
  let runner: CheckedSimRunner | undefined;
  const h = new Harness(
    {
      integrity: "tags",
      selfTestMs: 0,
      incidentsPerMinute: 1000,
      onIncident: (incident) => incidents.push(incident),
      runner(limits, sim) {
        runner = new CheckedSimRunner(limits, sim);
        runner.tamper = tamper;
        return runner;
      },
      ...options,
    },
    depth,
  );
  const finish = () => {
    h.finish();
    for (const heard of h.heard.values()) h.assertOracle(heard);
  };
  return { h, runner: runner!, incidents, finish };
}

/** Ticks until the request has `count` tokens. */
function until(h: Harness, heard: Heard, count: number): void {
  for (let i = 0; heard.tokens.length < count; i++) {
    assert.ok(i < 1000 && heard.end === null, `request ${heard.handle} does not get to ${count} tokens`);
    h.tick();
  }
}

const causes = (incidents: Incident[]) => incidents.map(({ cause }) => cause);
/** The faults below break the pool's own books, which the invariants would notice first. */
const BROKEN = { invariants: false };

for (const depth of [1, 2]) {
  test(`without a fault there is no incident, and every page is checked (depth ${depth})`, () => {
    const { h, incidents, finish } = checked({ pages: 14, preemptEvery: 5 }, depth);
    for (let i = 0; i < 8; i++) h.start([...promptOf(130, i % 3), ...promptOf(i)], 60);
    finish();
    assert.ok(h.loop.counters.preemptions > 0 && h.loop.counters.cached_tokens > 0);
    assert.deepEqual(incidents, []);
    const { counters } = h.loop;
    for (const phase of ["prefill", "prefix", "decode", "restore"] as const) {
      assert.ok(counters[`kv_tag_pages_read_${phase}`] > 0, phase);
      assert.equal(counters[`kv_tag_pages_checked_${phase}`], counters[`kv_tag_pages_read_${phase}`], phase);
    }
    assert.equal(counters.kv_tag_steps_checked, counters.steps);
    h.assertEmpty();
  });

  test(`a changed page-table entry ends its request, and no other (depth ${depth})`, () => {
    const { h, runner, incidents, finish } = checked({}, depth);
    const [hit, other] = [1, 2].map((seed) => h.start(promptOf(100, seed), 50));
    until(h, hit, 5);
    const [a, b] = h.sequences.running;
    runner.misdirect(a.slot, 0, b.pages[0]);
    finish();
    assert.deepEqual([ending(hit), ending(other)], ["kv_integrity", "length"]);
    assert.ok(hit.tokens.length <= 5 + depth, "no token of a step that was checked after the change");
    assert.deepEqual(causes(incidents), ["mapping"]);
    assert.equal(h.loop.counters.kv_tag_failures_mapping, 1);
    assert.equal(h.loop.counters.kv_tag_pages_checked_decode, h.loop.counters.kv_tag_pages_read_decode);
    const [{ expected, found, outcome, logical, phase, transitions }] = incidents;
    assert.deepEqual([outcome, logical, phase], ["failed", 0, "decode"]);
    assert.notEqual(expected!.page, found!.page);
    assert.equal(transitions[expected!.page][0].kind, "issue");
    assert.equal(h.pool.quarantined, 2);
    h.assertEmpty();
  });

  test(`a request that has told nothing starts over on pages of its own (depth ${depth})`, () => {
    let done = false;
    const tamper: Tamper = {
      beforeCheck(runner, step) {
        if (step === 3 && !done) runner.misdirect(7, 0, 9);
        done ||= step === 3;
        return false;
      },
    };
    const { h, incidents, finish } = checked({ maxBatchTokens: 64 }, depth, tamper);
    const hit = h.start(promptOf(300), 10);
    h.tick();
    assert.equal(h.sequences.running[0].slot, 0);
    finish();
    assert.deepEqual(incidents, [], "slot 7 is nobody's");
    done = false;
    const again = checked({ maxBatchTokens: 64 }, depth, {
      beforeCheck(runner, step) {
        if (step === 3) runner.misdirect(0, 0, 9);
        return false;
      },
    });
    const retried = again.h.start(promptOf(300), 10);
    again.finish();
    assert.equal(ending(hit), "length");
    assert.equal(ending(retried), "length");
    assert.deepEqual(usage(retried), { promptTokens: 300, completionTokens: 10, cachedTokens: 0 });
    assert.deepEqual(
      again.incidents.map(({ cause, outcome, phase }) => [cause, outcome, phase]),
      [["mapping", "retried", "prefill"]],
    );
    assert.equal(again.h.loop.counters.kv_tag_retries, 1);
    again.h.assertEmpty();
  });

  test(`a request that fails again ends with an error (depth ${depth})`, () => {
    const { h, incidents, finish } = checked({ maxBatchTokens: 64 }, depth, {
      beforeCheck(runner) {
        runner.misdirect(0, 0, 9);
        return false;
      },
    });
    const hit = h.start(promptOf(300), 10);
    finish();
    assert.equal(ending(hit), "kv_integrity");
    assert.deepEqual(hit.tokens, []);
    assert.deepEqual(
      incidents.map(({ outcome }) => outcome),
      ["retried", "failed"],
    );
    h.assertEmpty();
  });

  test(`a step whose check was not launched gives no token (depth ${depth})`, () => {
    let skipped = 0;
    const { h, incidents, finish } = checked({}, depth, {
      beforeCheck: (_, step) => (step === 6 ? ++skipped > 0 : false),
    });
    const requests = [1, 2].map((seed) => h.start(promptOf(30, seed), 20));
    finish();
    assert.equal(skipped, 1);
    assert.deepEqual(requests.map(ending), ["kv_integrity", "kv_integrity"]);
    assert.deepEqual(
      requests.map(({ tokens }) => tokens.length),
      [5, 5],
    );
    assert.deepEqual(causes(incidents), ["unchecked", "unchecked"]);
    assert.ok(h.loop.counters.kv_tag_pages_checked_decode < h.loop.counters.kv_tag_pages_read_decode);
    h.assertEmpty();
  });

  test(`changes of tags that get lost are noticed (depth ${depth})`, () => {
    const { h, incidents, finish } = checked({}, depth, {
      updates: (updates, step) => (step === 4 ? new Int32Array(8) : updates),
    });
    const first = h.start(promptOf(30), 10);
    for (let i = 0; i < 3; i++) h.tick();
    const second = h.start(promptOf(30, 2), 10);
    finish();
    assert.deepEqual([ending(first), ending(second)], ["length", "length"]);
    assert.deepEqual(
      incidents.map(({ cause, outcome, request }) => [cause, outcome, request]),
      [["epoch", "retried", second.handle]],
    );
    h.assertEmpty();
  });

  test(`a page handed out twice ends the request that had it first (depth ${depth})`, () => {
    const { h, incidents } = checked(BROKEN, depth);
    const first = h.start(promptOf(100), 50);
    until(h, first, 5);
    const [page] = h.sequences.running[0].pages;
    const allocate = h.pool.allocate.bind(h.pool);
    h.pool.allocate = () => {
      h.pool.allocate = allocate;
      return page;
    };
    const second = h.start(promptOf(30, 2), 20);
    // The oracle destroys what a step writes at its submission, earlier than a stream would: at depth 2 the step before
    // it reads that.
    h.finish();
    h.assertOracle(second);
    assert.deepEqual([ending(first), ending(second)], ["kv_integrity", "length"]);
    assert.deepEqual(causes(incidents), ["generation"]);
    assert.equal(h.pool.state[page], PageState.quarantined);
    h.assertEmpty();
  });

  test(`a page freed while it is in a table ends its request, and is given back once (depth ${depth})`, () => {
    const { h, incidents, finish } = checked(BROKEN, depth);
    const first = h.start(promptOf(100), 50);
    until(h, first, 5);
    const [{ pages, pageCount }] = h.sequences.running;
    h.pool.release(pages[pageCount - 1]);
    finish();
    assert.equal(ending(first), "kv_integrity");
    assert.ok(first.tokens.length <= 5 + 2 * depth);
    assert.deepEqual(causes(incidents), ["generation"]);
    h.assertEmpty();
  });

  test(`two tables swapped end both requests (depth ${depth})`, () => {
    const { h, runner, incidents, finish } = checked({}, depth);
    const requests = [1, 2].map((seed) => h.start(promptOf(30, seed), 20));
    until(h, requests[1], 5);
    const [a, b] = h.sequences.running;
    runner.misdirect(a.slot, 0, b.pages[0]);
    runner.misdirect(b.slot, 0, a.pages[0]);
    finish();
    assert.deepEqual(requests.map(ending), ["kv_integrity", "kv_integrity"]);
    assert.deepEqual(causes(incidents), ["mapping", "mapping"]);
    h.assertEmpty();
  });

  test(`a prefix entry that outlived its page is a miss and an incident (depth ${depth})`, () => {
    const { h, incidents, finish } = checked({ ...BROKEN, pages: 4 }, depth);
    h.start(promptOf(129), 1);
    finish();
    h.pool.onEvict = () => {};
    h.start(promptOf(180, 2), 1); // evicts a page of the first prompt
    finish();
    const again = h.start(promptOf(129), 1);
    finish();
    assert.equal(ending(again), "length");
    assert.deepEqual(causes(incidents), ["stale-entry"]);
    assert.equal(h.loop.counters.kv_tag_stale_entries, 1);
  });

  test(`a prefix page shared before it is written fails whoever reads it (depth ${depth})`, () => {
    const { h, incidents, finish } = checked({ ...BROKEN, maxBatchTokens: 80 }, depth);
    const first = h.start(promptOf(300), 5);
    h.tick();
    // The write fence reverted: everything that was granted is visible at once.
    const [writer] = h.sequences.running;
    writer.completed = 256;
    h.sequences.publish(writer);
    const second = h.start(promptOf(300), 5);
    finish();
    assert.deepEqual([ending(first), ending(second)], ["length", "length"]);
    assert.deepEqual(
      incidents.map(({ cause, outcome, request }) => [cause, outcome, request]),
      [["written", "retried", second.handle]],
    );
  });

  test(`a slot used again without clearing its expectations fails its new sequence (depth ${depth})`, () => {
    const { h, incidents, finish } = checked({}, depth);
    const first = h.start(promptOf(30), 3);
    finish();
    const { tracker } = h.sequences;
    const bind = tracker.bind.bind(tracker);
    let dropped = 0;
    tracker.bind = (...grant) => {
      if (dropped++ > 0) bind(...grant);
    };
    const second = h.start(promptOf(30, 2), 3);
    finish();
    assert.deepEqual([ending(first), ending(second)], ["length", "length"]);
    assert.deepEqual(
      incidents.map(({ cause, outcome, request }) => [cause, outcome, request]),
      [["epoch", "retried", second.handle]],
    );
  });

  test(`a self-test proves the alarm, and one without a check turns it on (depth ${depth})`, () => {
    const { h, incidents } = checked({ selfTestMs: 1 }, depth);
    h.start(promptOf(30), 60);
    for (let i = 0; i < 60; i++) h.tick();
    const integrity = h.loop.integrity!;
    assert.ok(integrity.selfTests > 1 && integrity.provenAt > 0);
    assert.equal(integrity.alarm, "");
    assert.deepEqual(incidents, []);
    assert.equal(h.pool.quarantined, 0);

    const blind = checked({ selfTestMs: 1 }, depth);
    blind.runner.misdirect = () => {};
    for (let i = 0; i < 60; i++) blind.h.tick();
    assert.match(blind.h.loop.integrity!.alarm, /not noticed/);
    assert.equal(blind.h.loop.integrity!.selfTests, 0);
  });
}

test("more incidents than are borne within a minute turn the alarm on for good", () => {
  const { h, finish } = checked({ incidentsPerMinute: 1 }, 1, {
    beforeCheck(runner, step) {
      if (step % 4 === 0) runner.misdirect(0, 0, 9);
      return false;
    },
  });
  h.start(promptOf(30), 10);
  finish();
  assert.equal(h.loop.integrity!.alarm, "");
  h.start(promptOf(30), 10);
  finish();
  assert.match(h.loop.integrity!.alarm, /more than 1 integrity incident/);
});

test("a request that no longer fits into what is left of the pool ends, and others go on", () => {
  const { h, runner, finish } = checked({ pages: 6, maxLen: 384, watermarkPages: 0 });
  const hit = h.start(promptOf(30), 50);
  until(h, hit, 3);
  const [{ slot, pages }] = h.sequences.running;
  runner.misdirect(slot, 0, pages[0] === 1 ? 2 : 1);
  const large = h.start(promptOf(330, 2), 5);
  const small = h.start(promptOf(30, 3), 5);
  finish();
  assert.equal(h.pool.usable, 4);
  assert.deepEqual([hit, large, small].map(ending), ["kv_integrity", "kv_integrity", "length"]);
  h.assertEmpty();
});

for (const depth of [1, 2]) {
  test(`a request that outgrows what is left of the pool gets its tokens and ends (depth ${depth})`, () => {
    const { h, runner, finish } = checked({ pages: 4, maxLen: 256, watermarkPages: 0 }, depth);
    const hit = h.start(promptOf(30), 50);
    until(h, hit, 3);
    const [{ slot, pages }] = h.sequences.running;
    runner.misdirect(slot, 0, pages[0] === 1 ? 2 : 1);
    h.finish();
    assert.equal(h.pool.usable, 2);
    const grows = h.start(promptOf(100, 2), 100);
    finish();
    assert.equal(ending(grows), "kv_integrity");
    assert.equal(grows.tokens.length, 29, "to the end of two pages");
    h.assertEmpty();
  });
}
