// A progress bar on a terminal.

const WIDTH = 30;
const REDRAW_MS = 100;

/** Returns what draws `done` of `total` bytes over one line of `stream`; on anything but a terminal it does nothing. */
export function progressBar(
  stream: { isTTY?: boolean; write(text: string): unknown },
  label: string,
  total: number,
  now: () => number = Date.now,
): (done: number) => void {
  if (!stream.isTTY) return () => {};
  let drawnAt = Number.NEGATIVE_INFINITY;
  return (done) => {
    const finished = done >= total;
    if (!finished && now() - drawnAt < REDRAW_MS) return;
    drawnAt = now();
    const share = total > 0 ? Math.min(1, done / total) : 1;
    const filled = Math.round(share * WIDTH);
    const bar = "█".repeat(filled) + "░".repeat(WIDTH - filled);
    const size = `${(done / 1e6).toFixed(0)} of ${(total / 1e6).toFixed(0)} MB`;
    stream.write(`\r${label} ${bar} ${Math.round(share * 100)} % ${size}${finished ? "\n" : ""}`);
  };
}
