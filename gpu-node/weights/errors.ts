// What can be wrong with a checkpoint folder, and what its owner can do about it.

/** Code -> advice, appended to every message with that code. */
export const CHECKPOINT_ADVICE = {
  not_a_checkpoint: "a checkpoint folder holds config.json and model.safetensors or its shards with an index",
  bad_config: "check config.json against the model's original",
  unsupported: "pick a checkpoint of a supported kind",
  bad_index: "download model.safetensors.index.json again",
  truncated: "download the file again",
  header_too_large: "this is not a safetensors file, or it is damaged",
  bad_header: "this is not a safetensors file, or it is damaged",
  duplicate_tensor: "the file was written wrongly: export it again",
  unknown_dtype: "export the checkpoint with standard safetensors dtypes",
  shape_overflow: "the file is damaged or hostile",
  size_mismatch: "the file is damaged: shape, dtype and offsets of a tensor disagree",
  offsets_out_of_range: "the file is damaged or truncated",
  offsets_overlap: "the file is damaged or hostile",
  hole_in_data: "the file was written wrongly: export it again",
  wrong_tensors: "weights and config.json do not belong together",
} as const;

export type CheckpointErrorCode = keyof typeof CHECKPOINT_ADVICE;

/** A checkpoint that can't be loaded. `message` is one readable text naming file, tensor or key. */
export class CheckpointError extends Error {
  readonly code: CheckpointErrorCode;

  constructor(code: CheckpointErrorCode, where: string, what: string) {
    super(`${where}: ${what} (${CHECKPOINT_ADVICE[code]})`);
    this.name = "CheckpointError";
    this.code = code;
  }
}
