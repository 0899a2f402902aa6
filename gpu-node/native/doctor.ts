// `edgewise doctor`: what this machine can run, and why it can't run the rest.
import { existsSync } from "node:fs";
import { delimiter, join } from "node:path";
import { helpText, type OptionTable, parseFlags } from "../options.ts";
import type { Addon } from "./addon.ts";
import { addonPath, loadAddon } from "./load.ts";

export interface Report {
  node: string;
  platform: string;
  addon: { path: string; version: string } | { error: string };
  /** `unavailable` is null for a backend that can be opened. */
  backends: { name: string; unavailable: string | null }[];
  /** Of the CPU backend. */
  isa?: string;
  threads?: number;
  cuda: { nvcc: string | null; driver: boolean };
}

const doctorOptions = {
  json: { type: "boolean", default: false, help: "print JSON" },
} as const satisfies OptionTable;

/**
 * Prints the report; 0 when the CPU backend works, 1 when the addon does not load.
 * @throws UsageError unknown flag
 */
export async function main(argv: string[]): Promise<number> {
  if (argv.includes("--help")) {
    console.log(`edgewise doctor [flags]: what this machine runs\n\n${helpText(doctorOptions)}`);
    return 0;
  }
  const { json } = parseFlags(doctorOptions, argv);
  const report = examine();
  console.log(json ? JSON.stringify(report, null, 2) : describe(report));
  return "error" in report.addon ? 1 : 0;
}

/** Looks at this machine and build. Never throws. */
export function examine(): Report {
  const machine = {
    node: process.version,
    platform: `${process.platform} ${process.arch}`,
    cuda: { nvcc: onPath("nvcc"), driver: existsSync("/proc/driver/nvidia/version") },
  };
  try {
    const addon = loadAddon();
    const found = { path: addonPath() as string, version: addon.version };
    return { ...machine, addon: found, backends: addon.backends(), ...cpu(addon) };
  } catch (error) {
    return { ...machine, addon: { error: (error as Error).message }, backends: [] };
  }
}

function cpu(addon: Addon): { isa: string; threads: number } {
  const device = addon.openDevice({ backend: "cpu" });
  try {
    return { isa: device.isa, threads: device.threads };
  } finally {
    device.dispose();
  }
}

function onPath(program: string): string | null {
  const dirs = (process.env.PATH ?? "").split(delimiter).filter(Boolean);
  return dirs.map((dir) => join(dir, program)).find((path) => existsSync(path)) ?? null;
}

function describe(report: Report): string {
  const lines = [`Node       ${report.node} on ${report.platform}`];
  if ("error" in report.addon) return [...lines, `addon      ${report.addon.error}`].join("\n");
  lines.push(`addon      ${report.addon.version}, ${report.addon.path}`);
  for (const { name, unavailable } of report.backends) {
    const detail = name === "cpu" ? ` (${report.isa}, ${report.threads} threads)` : "";
    lines.push(`${name.padEnd(10)} ${unavailable === null ? `ready${detail}` : `not used: ${unavailable}`}`);
  }
  const { nvcc, driver } = report.cuda;
  lines.push(
    `CUDA       nvcc: ${nvcc ?? "not on the PATH"}; NVIDIA driver: ${driver ? "loaded" : "not loaded"}`,
  );
  return lines.join("\n");
}
