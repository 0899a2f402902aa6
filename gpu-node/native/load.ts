// Finds the native addon and loads it; when that fails, says everything that was tried and what to do.
import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";
import type { Addon } from "./addon.ts";

const root = fileURLToPath(new URL("../../", import.meta.url));

/** Where the addon may lie, best first. EDGEWISE_ADDON names a file and then is the only candidate. */
export function addonCandidates(): string[] {
  const override = process.env.EDGEWISE_ADDON;
  if (override) return [override];
  return ["Release", "Debug"].map((config) => `${root}native/build/${config}/edgewise.node`);
}

/** The native addon could not be loaded. The message lists each candidate with its reason, then what to do. */
export class AddonError extends Error {
  override name = "AddonError";
}

let loaded: Addon | undefined;

/** The native addon; loaded once per thread. Throws AddonError. */
export function loadAddon(): Addon {
  loaded ??= load();
  return loaded;
}

/** The file that loadAddon() takes, or undefined when there is none. */
export function addonPath(): string | undefined {
  return addonCandidates().find((path) => existsSync(path));
}

function load(): Addon {
  const require = createRequire(import.meta.url);
  const reasons: string[] = [];
  for (const path of addonCandidates()) {
    if (!existsSync(path)) {
      reasons.push(`${path}: not there`);
      continue;
    }
    try {
      return require(path) as Addon;
    } catch (error) {
      reasons.push(`${path}: ${(error as Error).message}`);
    }
  }
  throw new AddonError(helpText(reasons));
}

function helpText(reasons: string[]): string {
  return [
    "The native addon can't be loaded:",
    ...reasons.map((reason) => `  ${reason}`),
    "Build it with: npm run build   (needs g++ and cmake; Debian and Ubuntu: apt-get install g++ cmake)",
    `This is Node ${process.version} on ${process.platform} ${process.arch}; Linux on x64 is supported.`,
  ].join("\n");
}
