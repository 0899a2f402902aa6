// A progress bar on a terminal.

const WIDTH = 30;
const REDRAW_MS = 100;

/** Returns what draws a share from 0 to 1 over one line of `stream`; on anything but a terminal it does nothing. */
export function progressBar(
  stream: { isTTY?: boolean; write(text: string): unknown },
  label: string,
  now: () => number = Date.now,
): (share: number) => void {
  if (!stream.isTTY) return () => {};
  let drawnAt = Number.NEGATIVE_INFINITY;
  let finished = false;
  return (share) => {
    if (finished || (share < 1 && now() - drawnAt < REDRAW_MS)) return;
    drawnAt = now();
    finished = share >= 1;
    const filled = Math.round(Math.min(1, share) * WIDTH);
    const bar = "█".repeat(filled) + "░".repeat(WIDTH - filled);
    stream.write(`\r${label} ${bar} ${Math.round(share * 100)} %${finished ? "\n" : ""}`);
  };
}
