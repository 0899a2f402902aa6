// `edgewise incidents [FILE]`: the incidents of KV integrity that a node has written, explained.
import { existsSync, readFileSync } from "node:fs";
import { type OptionTable, parseFlags, UsageError } from "../options.ts";
import type { Incident, PageIdentity } from "./incidents.ts";

const FILE = "edgewise-incidents.jsonl";

/** What each cause says of the books, and where to look. */
const EXPLAINED: Record<Incident["cause"], string> = {
  unchecked: "the check of this step did not run for this row, or its verdict is of another step or row",
  range: "a slot, a page or a number of pages that does not exist",
  before: "the sequence had failed in an earlier step already",
  epoch: "the slot's expectations are of another stay: they were not cleared, or not uploaded",
  mapping: "the page table names another page than the one that was granted",
  generation: "the page was freed, or granted to someone else, while this sequence still had it",
  owner: "the page belongs to another account",
  tag: "the page's tag is not the one of its grant, although generation and owner agree",
  written: "tokens were to be read that nobody had written: shared before the page was full",
  "stale-entry": "a prefix entry had outlived its page; nothing was read, the prefix was computed anew",
};

const OUTCOMES: Record<Incident["outcome"], string> = {
  retried: "had told nothing and started over",
  failed: "ended with kv_integrity",
  missed: "went on without the cached prefix",
};

/** @returns the exit code: 1 when there are incidents */
export async function main(argv: string[]): Promise<number> {
  if (argv.includes("--help")) {
    console.log(
      `edgewise incidents [FILE]\n\nLists the incidents in FILE (default ${FILE}) and explains them.`,
    );
    return 0;
  }
  const flags = argv.filter((argument) => argument.startsWith("--"));
  if (flags.length > 0) parseFlags({} satisfies OptionTable, flags);
  if (argv.length > 1) throw new UsageError(`unexpected argument ${argv[1]}`);
  const file = argv[0] ?? FILE;
  if (!existsSync(file)) {
    if (argv.length > 0) throw new UsageError(`${file} does not exist`);
    console.log(`no incidents: there is no ${FILE} here`);
    return 0;
  }
  const incidents = readIncidents(readFileSync(file, "utf8"), file);
  for (const incident of incidents) console.log(`${explain(incident)}\n`);
  console.log(incidents.length === 1 ? "1 incident" : `${incidents.length} incidents`);
  return incidents.length > 0 ? 1 : 0;
}

/** @throws UsageError naming the first line that is no incident; an unfinished last line is left out */
export function readIncidents(text: string, file: string): Incident[] {
  return text
    .split("\n")
    .slice(0, -1)
    .map((line, i) => {
      try {
        const incident = JSON.parse(line) as Incident;
        if (Object.hasOwn(EXPLAINED, incident.cause)) return incident;
      } catch {
        // told below
      }
      throw new UsageError(`${file}:${i + 1} is no incident`);
    });
}

export function explain(incident: Incident): string {
  const { request, label, account, step, slot, phase, logical, expected, found } = incident;
  const side = (name: string, identity: PageIdentity | null) => {
    if (!identity) return [];
    const tag = identity.tag === undefined ? "" : `, tag ${identity.tag}`;
    return [`  ${name.padEnd(9)} page ${identity.page}, generation ${identity.generation}${tag}`];
  };
  const history = Object.entries(incident.transitions).map(([page, transitions]) => {
    const told = transitions.map(({ kind, generation, step: at }) => `${kind} ${generation} at step ${at}`);
    return `  page ${page}: ${told.join(", ") || "no transitions known"}`;
  });
  return [
    `${incident.time}  ${incident.cause}  ${incident.incident}`,
    `  ${EXPLAINED[incident.cause]}`,
    `  request ${request}${label ? ` (${label})` : ""} of account ${account} ${OUTCOMES[incident.outcome]}`,
    `  step ${step}, slot ${slot}, ${phase}${logical >= 0 ? `, page ${logical} of the sequence` : ""}`,
    ...side("expected", expected),
    ...side("found", found),
    ...history,
  ].join("\n");
}
