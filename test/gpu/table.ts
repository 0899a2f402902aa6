// The table of the smoke test: one line per thing that was checked.

export interface Line {
  what: string;
  cases: number;
  /** Largest error / bound; null where a check has no such figure. */
  worst: number | null;
  seconds: number;
  /** One sentence per failed check. */
  failures: string[];
  /** Shown behind the line. */
  note?: string;
}

/** What one check found. */
export interface Outcome {
  cases: number;
  worst?: number;
  failures?: string[];
  note?: string;
}

const SHOWN_FAILURES = 5;
const WHAT_WIDTH = 52;

export class Table {
  readonly lines: Line[] = [];

  heading(): void {
    console.log(`${"what".padEnd(WHAT_WIDTH)}  cases  error/bound  seconds`);
  }

  /** Runs one check, prints its line, and goes on whatever it throws. */
  async check(what: string, body: () => Outcome | Promise<Outcome>): Promise<void> {
    const began = performance.now();
    let outcome: Outcome;
    try {
      outcome = await body();
    } catch (error) {
      outcome = { cases: 1, failures: [error instanceof Error ? error.message : String(error)] };
    }
    const { cases, worst = null, failures = [], note } = outcome;
    const line = { what, cases, worst, seconds: (performance.now() - began) / 1000, failures, note };
    this.lines.push(line);
    print(line);
  }

  get failed(): boolean {
    return this.lines.some(({ failures }) => failures.length > 0);
  }

  /** The last line of the run. */
  total(): string {
    const cases = this.lines.reduce((sum, line) => sum + line.cases, 0);
    const failures = this.lines.reduce((sum, line) => sum + line.failures.length, 0);
    const seconds = this.lines.reduce((sum, line) => sum + line.seconds, 0);
    return `${cases} checks, ${failures} failed, ${seconds.toFixed(0)} s`;
  }
}

function print({ what, cases, worst, seconds, failures, note }: Line): void {
  const columns = [
    what.padEnd(WHAT_WIDTH),
    String(cases).padStart(5),
    (worst === null ? "" : worst.toFixed(3)).padStart(11),
    seconds.toFixed(1).padStart(7),
    failures.length > 0 ? `FAILED ${failures.length}` : "ok",
    note ?? "",
  ];
  console.log(columns.join("  ").trimEnd());
  for (const failure of failures.slice(0, SHOWN_FAILURES)) console.log(`    ${failure.split("\n")[0]}`);
  if (failures.length > SHOWN_FAILURES) console.log(`    and ${failures.length - SHOWN_FAILURES} more`);
}
