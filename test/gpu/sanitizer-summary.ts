// What compute-sanitizer prints at its end, per process:
//   ========= ERROR SUMMARY: 0 errors
//   ========= RACECHECK SUMMARY: 2 hazards displayed (1 error, 1 warning)

export interface Summary {
  /** Errors, hazards and warnings, over all processes. */
  errors: number;
  /** The first lines of the report that say what was found. */
  first: string[];
}

const ERRORS = /^=+ ERROR SUMMARY: (\d+) errors?/gm;
const HAZARDS = /^=+ RACECHECK SUMMARY: (\d+) hazards?/gm;
const SHOWN = 8;

/** Null when there is no summary: the tool did not get to its end. */
export function summaryOf(output: string): Summary | null {
  const counts = [ERRORS, HAZARDS].flatMap((pattern) =>
    [...output.matchAll(pattern)].map((match) => Number(match[1])),
  );
  if (counts.length === 0) return null;
  const first = output
    .split("\n")
    .filter((line) => /^=+ \S/.test(line) && !/COMPUTE-SANITIZER|SUMMARY/.test(line))
    .slice(0, SHOWN);
  return { errors: counts.reduce((a, b) => a + b, 0), first };
}
