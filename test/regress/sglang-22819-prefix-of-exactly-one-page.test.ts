// SGLang #22819: corruption when a shared prefix was exactly one block of 64 tokens long.
import assert from "node:assert/strict";
import { promptOf, scripted, usage } from "../scripted/harness.ts";

for (const length of [63, 64, 65, 127, 128, 129]) {
  scripted(`a shared prefix of ${length} tokens gives the same answers as none`, {}, function* (h) {
    const shared = promptOf(length);
    h.start(shared, 70);
    yield;
    h.finish();
    const same = h.start(shared, 70);
    const longer = h.start([...shared, ...promptOf(3, 4)], 70);
    h.finish();
    assert.equal(usage(same).cachedTokens, 64 * Math.floor((length - 1) / 64));
    // The first request's output filled its last page; only pages of the prompt itself can be shared.
    assert.equal(usage(longer).cachedTokens, 64 * Math.floor(length / 64));
  });
}
