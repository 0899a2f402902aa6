// What can be wrong before anything is started: each problem is one line that says what to do.

import { existsSync, statSync } from "node:fs";
import { createServer } from "node:net";
import { join, resolve } from "node:path";
import { UsageError } from "../options.ts";

/**
 * A folder that `edgewise serve` can load, as far as its file names tell.
 * @throws UsageError
 */
export function checkModel(model: string): string {
  const folder = resolve(model);
  const not = (reason: string) => new UsageError(`${folder} is not a model folder: ${reason}`);
  if (!existsSync(folder)) throw not("it does not exist");
  if (!statSync(folder).isDirectory()) throw not("it is a file");
  for (const name of ["config.json", "tokenizer.json"]) {
    if (!existsSync(join(folder, name))) throw not(`it has no ${name}`);
  }
  if (!["model.safetensors", "model.safetensors.index.json"].some((name) => existsSync(join(folder, name)))) {
    throw not("it has no model.safetensors and no model.safetensors.index.json");
  }
  return folder;
}

/**
 * @param addon path of the built addon, undefined when there is none
 * @throws UsageError naming the packages that a build needs and this machine lacks
 */
export function checkAddon(addon: string | undefined, path = process.env.PATH ?? ""): void {
  if (addon !== undefined) return;
  const has = (program: string) =>
    path.split(":").some((folder) => folder && existsSync(join(folder, program)));
  const missing = [];
  if (!["c++", "g++", "clang++"].some(has)) missing.push("g++");
  if (!has("cmake")) missing.push("cmake");
  const first = missing.length > 0 ? `apt-get install ${missing.join(" ")} && ` : "";
  throw new UsageError(`the native addon is not built; run: ${first}npm run build`);
}

/**
 * @param flag the option that chooses another port
 * @throws UsageError when something listens there already
 */
export async function checkPort(port: number, flag: string): Promise<void> {
  const taken = await new Promise<boolean>((settle) => {
    const server = createServer();
    server.once("error", () => settle(true));
    server.listen({ port, host: "127.0.0.1", exclusive: true }, () => server.close(() => settle(false)));
  });
  if (taken) throw new UsageError(`port ${port} is taken; choose another with ${flag} PORT`);
}
