import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { EDGE } from "../../worker/limits.ts";
import { type Candidate, hash53, Pins, place, rank, sessionKey } from "../../worker/route.ts";

const nodes = (n: number, load = 0): Candidate[] =>
  Array.from({ length: n }, (_, i) => ({ id: `node-${i}`, weight: 1, load, healthy: true }));
const keys = Array.from({ length: 4000 }, (_, i) => `account\nmodel\nid\nsession-${i}`);
const noHeader = () => undefined;

test("a key goes to the same node whatever the order of the table", () => {
  fc.assert(
    fc.property(fc.string(), fc.integer({ min: 1, max: 12 }), fc.integer(), (key, n, seed) => {
      const table = nodes(n);
      const shuffled = [...table].sort((a, b) => hash53(a.id + seed) - hash53(b.id + seed));
      assert.deepEqual(
        rank(key, table).map((node) => node.id),
        rank(key, shuffled).map((node) => node.id),
      );
    }),
  );
});

test("removing a node moves only the sessions it had", () => {
  const table = nodes(8);
  const smaller = table.filter((node) => node.id !== "node-3");
  for (const key of keys) {
    const home = rank(key, table)[0].id;
    if (home !== "node-3") assert.equal(rank(key, smaller)[0].id, home);
  }
});

test("sessions spread evenly, and by weight", () => {
  const share = (table: Candidate[], id: string) =>
    keys.filter((key) => rank(key, table)[0].id === id).length / keys.length;
  for (const node of nodes(5)) assert.ok(Math.abs(share(nodes(5), node.id) - 0.2) < 0.03, node.id);
  const weighted = nodes(2).map((node, i) => ({ ...node, weight: i === 0 ? 3 : 1 }));
  assert.ok(Math.abs(share(weighted, "node-0") - 0.75) < 0.03);
});

test("no node goes beyond 1.25 times the average plus the slack", () => {
  fc.assert(
    fc.property(
      fc.integer({ min: 2, max: 8 }),
      fc.integer({ min: 1, max: 300 }),
      fc.integer(),
      (n, requests, seed) => {
        const table = nodes(n);
        const pins = new Pins();
        for (let i = 0; i < requests; i++) {
          // Half of the requests belong to one hot session.
          const key = i % 2 === 0 ? "hot" : `${seed}-${i}`;
          const chosen = place(key, table, pins, 0)[0];
          const average = table.reduce((sum, node) => sum + node.load, 0) / n;
          assert.ok(chosen.load <= EDGE.loadFactor * average + 1);
          chosen.load++;
        }
      },
    ),
  );
});

test("a session sent away stays where it went until it is idle", () => {
  const table = nodes(3);
  const pins = new Pins();
  const home = place("s", table, pins, 0)[0];
  home.load = 10;
  const away = place("s", table, pins, 1)[0];
  assert.notEqual(away.id, home.id);
  home.load = 0;
  assert.equal(place("s", table, pins, 2)[0].id, away.id);
  assert.equal(place("s", table, pins, 3 + EDGE.pinIdleMs)[0].id, home.id);
});

test("an unhealthy node comes last, and is still tried when nothing else is left", () => {
  const table = nodes(3);
  for (const key of keys.slice(0, 100)) {
    const [home] = rank(key, table);
    const order = rank(
      key,
      table.map((node) => ({ ...node, healthy: node.id !== home.id })),
    );
    assert.equal(order[2].id, home.id);
  }
  assert.equal(rank("x", [{ ...nodes(1)[0], healthy: false }]).length, 1);
});

test("pins are bounded", () => {
  const pins = new Pins();
  for (let i = 0; i <= EDGE.pins; i++) pins.set(`k${i}`, "n", 0);
  assert.equal(pins.get("k0", 0), undefined);
  assert.equal(pins.get(`k${EDGE.pins}`, 0), "n");
});

test("the session key takes the most specific name and is scoped by account and model", () => {
  const header = (values: Record<string, string>) => (name: string) => values[name];
  const all = {
    "x-session-affinity": "a",
    "x-claude-code-session-id": "b",
    "session-id": "c",
    "x-session-id": "d",
  };
  const names = Object.keys(all) as (keyof typeof all)[];
  for (let i = 0; i < names.length; i++) {
    const rest = Object.fromEntries(names.slice(i).map((name) => [name, all[name]]));
    assert.ok(sessionKey("acct", "m", header(rest), {}).endsWith(`\n${all[names[i]]}`), names[i]);
  }
  const of = (account: string, model: string) => sessionKey(account, model, header(all), {});
  assert.notEqual(of("a1", "m"), of("a2", "m"));
  assert.notEqual(of("a1", "m"), of("a1", "m2"));
  const long = header({ "x-session-affinity": "x".repeat(EDGE.sessionCharacters + 1) });
  assert.ok(sessionKey("a", "m", long, { prompt_cache_key: "p" }).endsWith("\np"));
});

test("without a name, the turns of one conversation share a key and other conversations do not", () => {
  const system = { role: "system", content: "be brief" };
  const first = { role: "user", content: "hello" };
  const turn1 = { messages: [system, first] };
  const turn2 = {
    messages: [system, first, { role: "assistant", content: "hi" }, { role: "user", content: "more" }],
  };
  const other = { messages: [system, { role: "user", content: "other" }] };
  const key = (body: Record<string, unknown>) => sessionKey("a", "m", noHeader, body);
  assert.equal(key(turn1), key(turn2));
  assert.notEqual(key(turn1), key(other));
  assert.notEqual(key({ prompt: "a" }), key({ prompt: "b" }));
});
