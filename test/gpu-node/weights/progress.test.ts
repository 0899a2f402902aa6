import assert from "node:assert/strict";
import { test } from "node:test";
import { progressBar } from "../../../gpu-node/weights/progress.ts";

function draw(isTTY: boolean, steps: [number, number][]): string {
  let text = "";
  let clock = 0;
  const stream = { isTTY, write: (part: string) => (text += part) };
  const bar = progressBar(stream, "loading", 200e6, () => clock);
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
      [1000, 200e6],
    ]),
    "",
  );
});

test("the bar is drawn at most every 100 ms, and always at the end", () => {
  const text = draw(true, [
    [0, 0],
    [50, 50e6],
    [150, 100e6],
    [160, 200e6],
  ]);
  const lines = text.split("\r").slice(1);
  assert.deepEqual(
    lines.map((line) => /(\d+) %/.exec(line)?.[1]),
    ["0", "50", "100"],
  );
  assert.ok(text.endsWith("200 of 200 MB\n"));
});
