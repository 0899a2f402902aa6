import assert from "node:assert/strict";
import { test } from "node:test";
import { progressBar } from "../../../gpu-node/weights/progress.ts";

function draw(isTTY: boolean, steps: [number, number][]): string {
  let text = "";
  let clock = 0;
  const stream = { isTTY, write: (part: string) => (text += part) };
  const bar = progressBar(stream, "loading", () => clock);
  for (const [at, done] of steps) {
    clock = at;
    bar(done);
  }
  return text;
}

test("a stream that is not a terminal gets nothing", () => {
  assert.equal(
    draw(false, [
      [0, 0],
      [1000, 1],
    ]),
    "",
  );
});

test("the bar is drawn at most every 100 ms, and always at the end", () => {
  const text = draw(true, [
    [0, 0],
    [50, 0.25],
    [150, 0.5],
    [160, 1],
  ]);
  const lines = text.split("\r").slice(1);
  assert.deepEqual(
    lines.map((line) => /(\d+) %/.exec(line)?.[1]),
    ["0", "50", "100"],
  );
  assert.ok(text.endsWith("100 %\n"));
});
