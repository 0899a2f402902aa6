import type { Measured } from "./measure.ts";

const WIDTHS = [48, 10, 9, 9, 6, 9, 9, 9];

export const HEADING = line(["shape", "MB", "floor us", "us", "%", "target us", "peer us", "error"]);

export function describeRow(row: Measured): string {
  const { shape, bytes, floorUs, us, fraction, targetUs, peerUs, accuracy } = row;
  const wrong = accuracy.error <= accuracy.bound ? "" : "  WRONG";
  const cells = [
    shape,
    (bytes / 1e6).toFixed(1),
    floorUs.toFixed(1),
    us.toFixed(1),
    (100 * fraction).toFixed(0),
    targetUs?.toFixed(1) ?? "",
    peerUs?.toFixed(1) ?? "",
    accuracy.error.toExponential(1),
  ];
  return line(cells) + wrong;
}

function line(cells: string[]): string {
  return cells.map((cell, i) => (i === 0 ? cell.padEnd(WIDTHS[i]) : cell.padStart(WIDTHS[i]))).join(" ");
}
