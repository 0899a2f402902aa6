import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { StopMatcher } from "../../../gpu-node/text/stop.ts";

/** What is shown when `text` arrives in the given pieces, and the stop that ended it. */
function run(stops: string[], pieces: string[]): { shown: string; stop: string | undefined; left: string } {
  const matcher = new StopMatcher(stops);
  let shown = "";
  for (const [i, piece] of pieces.entries()) {
    const step = matcher.push(piece);
    shown += step.text;
    if (step.stop !== undefined) return { shown, stop: step.stop, left: pieces.slice(i + 1).join("") };
  }
  return { shown: shown + matcher.flush(), stop: undefined, left: "" };
}

/** The answer from the whole text at once: least end, then least start. */
function oracle(stops: string[], text: string): { shown: string; stop: string | undefined } {
  for (let end = 1; end <= text.length; end++) {
    const found = stops
      .filter((stop) => text.slice(0, end).endsWith(stop))
      .sort((a, b) => b.length - a.length)[0];
    if (found !== undefined) return { shown: text.slice(0, end - found.length), stop: found };
  }
  return { shown: text, stop: undefined };
}

test("the cut does not depend on how the text was split, and the earliest completing stop wins", () => {
  const word = fc.string({ unit: fc.constantFrom("a", "b", "c", "😀"), minLength: 1, maxLength: 4 });
  fc.assert(
    fc.property(
      fc.array(word, { minLength: 1, maxLength: 4 }),
      fc.array(word, { maxLength: 12 }),
      (stops, pieces) => {
        const { shown, stop } = run(stops, pieces);
        // Matches inside one piece complete together as far as a reader can tell, so the oracle sees characters.
        const byCharacter = run(stops, [...pieces.join("")]);
        assert.deepEqual(
          { shown: byCharacter.shown, stop: byCharacter.stop },
          oracle(stops, pieces.join("")),
        );
        assert.deepEqual({ shown, stop }, oracle(stops, pieces.join("")));
        assert.ok(shown.isWellFormed());
      },
    ),
    { numRuns: 2000 },
  );
});

test("only what may still become a stop is held back", () => {
  const matcher = new StopMatcher(["END"]);
  assert.deepEqual(matcher.push("hello"), { text: "hello" });
  assert.deepEqual(matcher.push(" EN"), { text: " " });
  assert.deepEqual(matcher.push("E"), { text: "EN" });
  assert.deepEqual(matcher.push("NDx"), { text: "", stop: "END" });
});

test("what is held back is shown when the sequence ends otherwise", () => {
  const matcher = new StopMatcher(["END"]);
  matcher.push("x EN");
  assert.equal(matcher.flush(), "EN");
});

test("a stop that begins with half of a shown pair does not split it", () => {
  assert.deepEqual(run(["😀x"], ["a😀", "y"]), { shown: "a😀y", stop: undefined, left: "" });
  assert.deepEqual(run(["😀x"], ["a😀", "xz"]), { shown: "a", stop: "😀x", left: "" });
});
