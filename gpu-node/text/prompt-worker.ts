// The worker thread of prompt-lane.ts: loads the model's text side once, then answers jobs in order.

import { parentPort, workerData } from "node:worker_threads";
import { toApiError } from "../contract/errors.ts";
import { loadModelText } from "./model-text.ts";
import type { PromptReply } from "./prompt-lane.ts";
import { makePrompt, type PromptJob } from "./prompts.ts";

const model = loadModelText((workerData as { dir: string }).dir);

parentPort!.on("message", (job: PromptJob) => {
  try {
    const ids = new Int32Array(makePrompt(model, job));
    parentPort!.postMessage({ ids } satisfies PromptReply, [ids.buffer]);
  } catch (error) {
    const { code, message, param } = toApiError(error);
    parentPort!.postMessage({ error: { code, message, param } } satisfies PromptReply);
  }
});
