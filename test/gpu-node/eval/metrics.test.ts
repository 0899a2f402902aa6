import assert from "node:assert/strict";
import { test } from "node:test";
import { argmax, compareLogits } from "../../../gpu-node/eval/metrics.ts";

test("equal logits have no distance", () => {
  const logits = Float32Array.of(1, 2, 3, -1, 0, 5);
  assert.deepEqual(compareLogits(logits, logits, 3), {
    mean_kl: 0,
    median_kl: 0,
    p90_kl: 0,
    max_kl: 0,
    max_abs: 0,
    mean_abs: 0,
    top1_agreement: 1,
  });
});

test("the divergence is golden to ours, in nats", () => {
  // p = (3/4, 1/4), q = (1/2, 1/2): KL(p || q) = 3/4 ln(3/2) + 1/4 ln(1/2)
  const golden = Float32Array.of(Math.log(3), 0);
  const metrics = compareLogits(golden, Float32Array.of(0, 0), 2);
  assert.ok(Math.abs(metrics.max_kl - (0.75 * Math.log(1.5) + 0.25 * Math.log(0.5))) < 1e-7);
  assert.ok(Math.abs(metrics.max_abs - Math.log(3)) < 1e-6);
  assert.ok(Math.abs(metrics.mean_abs - Math.log(3) / 2) < 1e-6);
});

test("a constant added to all logits of a position changes no divergence", () => {
  const golden = Float32Array.of(0.5, -2, 7, 1);
  const metrics = compareLogits(
    golden,
    golden.map((value) => value + 4),
    4,
  );
  assert.ok(metrics.max_kl < 1e-12);
  assert.equal(metrics.max_abs, 4);
});

test("quantiles and agreement are over positions", () => {
  const positions = 11;
  const golden = new Float32Array(2 * positions);
  const ours = golden.slice();
  for (let t = 0; t < positions; t++) ours[2 * t + 1] = t; // the likeliest token changes everywhere but at t = 0
  const metrics = compareLogits(golden, ours, 2);
  const divergence = (t: number) => Math.log((1 + Math.exp(t)) / 2) - t / 2;
  assert.ok(Math.abs(metrics.median_kl - divergence(5)) < 1e-6);
  assert.ok(Math.abs(metrics.p90_kl - divergence(9)) < 1e-6);
  assert.ok(Math.abs(metrics.max_kl - divergence(10)) < 1e-6);
  assert.equal(metrics.top1_agreement, 1 / positions);
});

test("logits that are not numbers are an error that names the position, never a distance", () => {
  const golden = new Float32Array(6);
  for (const bad of [Number.NaN, Number.POSITIVE_INFINITY]) {
    const ours = Float32Array.of(0, 0, 0, 0, bad, 0);
    assert.throws(() => compareLogits(golden, ours, 3), /token 1 at position 1/);
  }
});

test("the likeliest token is the lowest id among equals", () => {
  assert.equal(argmax(Float32Array.of(1, 3, 3, 2)), 1);
});
