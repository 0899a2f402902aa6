// Rotary embedding frequencies, step by step in float32 as transformers computes them (modeling_rope_utils.py), so
// that long contexts do not drift from the reference.
import type { ConfigReader } from "./config-reader.ts";
import type { RopeSpec } from "./spec.ts";

const SUPPORTED = ["default", "linear", "llama3", "yarn"];
const FACTOR = { min: 1, max: 1e6 };
const POSITIVE = { min: 1e-6, max: 1e9 };
const f32 = Math.fround;

/** The rope of a config and, for MLA, the factor that yarn puts on the softmax scale. */
export interface ReadRope {
  spec: RopeSpec;
  softmaxFactor: number;
}

/**
 * Reads rope_parameters (transformers 5) or rope_theta and rope_scaling (transformers 4).
 * `headDim` is the width of a head that may be rotated; `partial` the share of it that is, unless the config
 * says; null: all of it, and the config must not say otherwise.
 */
export function readRope(
  config: ConfigReader,
  headDim: number,
  interleaved: boolean,
  partial: number | null,
): ReadRope {
  const parameters = config.object("rope_scaling") ?? config.object("rope_parameters");
  const type = parameters?.string("rope_type") ?? parameters?.string("type") ?? "default";
  if (!SUPPORTED.includes(type)) {
    const what = `rope type ${JSON.stringify(type)} is not supported; supported: ${SUPPORTED.join(", ")}`;
    throw (parameters as ConfigReader).error("rope_type", what, "unsupported");
  }
  const either = (key: string) => (parameters?.has(key) ? parameters : config);
  const theta = either("rope_theta").number("rope_theta", { min: 1, max: 1e12 }, 10_000);
  const dims = rotaryDims(either("partial_rotary_factor"), headDim, partial);
  const plain = defaultFrequencies(theta, dims);
  const unscaled = { dims, interleaved, inverseFrequencies: plain, scale: 1 };
  if (!parameters || type === "default") return { spec: unscaled, softmaxFactor: 1 };

  const implied = type === "yarn" && !parameters.has("factor");
  const factor = implied ? impliedFactor(config, parameters) : parameters.number("factor", FACTOR);
  const softmaxFactor = mlaSoftmaxFactor(parameters, factor);
  if (type === "linear") {
    const inverseFrequencies = plain.map((frequency) => frequency / factor);
    return { spec: { ...unscaled, inverseFrequencies }, softmaxFactor };
  }
  const original = originalLength(config, parameters);
  if (type === "llama3") {
    return {
      spec: { ...unscaled, inverseFrequencies: llama3(parameters, plain, factor, original) },
      softmaxFactor,
    };
  }
  const inverseFrequencies = yarn(parameters, theta, dims, factor, original);
  return {
    spec: { ...unscaled, inverseFrequencies, scale: attentionFactor(parameters, factor) },
    softmaxFactor,
  };
}

function rotaryDims(config: ConfigReader, headDim: number, partial: number | null): number {
  const key = "partial_rotary_factor";
  if (partial === null) config.only(key, [1]);
  const dims = Math.trunc(headDim * config.number(key, { min: 0.01, max: 1 }, partial ?? 1));
  if (dims >= 2 && dims % 2 === 0) return dims;
  throw config.error(key, `${dims} rotary dimensions of ${headDim} are not an even number`);
}

/** theta^(2i / dims), the wavelength of pair i in units of 2 pi. */
function wavelengths(theta: number, dims: number): Float32Array {
  return Float32Array.from({ length: dims / 2 }, (_, i) => theta ** f32((2 * i) / dims));
}

function defaultFrequencies(theta: number, dims: number): Float32Array {
  return wavelengths(theta, dims).map((wavelength) => 1 / wavelength);
}

/** The context length before scaling; a key outside the rope parameters wins, as in transformers. */
function originalLength(config: ConfigReader, parameters: ConfigReader): number {
  const key = "original_max_position_embeddings";
  if (config.has(key)) return config.number(key, POSITIVE);
  if (parameters.has(key)) return parameters.number(key, POSITIVE);
  return config.number("max_position_embeddings", POSITIVE);
}

/** What yarn extends the context by when the config does not say. */
function impliedFactor(config: ConfigReader, parameters: ConfigReader): number {
  return config.number("max_position_embeddings", POSITIVE) / originalLength(config, parameters);
}

/** Llama 3.1: low frequencies divided by the factor, high ones kept, a linear blend between. */
function llama3(
  parameters: ConfigReader,
  plain: Float32Array,
  factor: number,
  original: number,
): Float32Array {
  const low = parameters.number("low_freq_factor", POSITIVE);
  const high = parameters.number("high_freq_factor", POSITIVE);
  if (high <= low) throw parameters.error("high_freq_factor", `must be above low_freq_factor, ${low}`);
  return plain.map((frequency) => {
    const wavelength = f32(f32(2 * Math.PI) / frequency);
    if (wavelength < original / high) return frequency;
    if (wavelength > original / low) return frequency / factor;
    const smooth = f32(f32(f32(original / wavelength) - low) / (high - low));
    return f32(f32(f32(1 - smooth) * frequency) / factor) + f32(smooth * frequency);
  });
}

/** YaRN (arXiv 2309.00071): between two dimensions a ramp from kept to interpolated frequencies. */
function yarn(parameters: ConfigReader, theta: number, dims: number, factor: number, original: number) {
  const betaFast = parameters.number("beta_fast", POSITIVE, 32);
  const betaSlow = parameters.number("beta_slow", POSITIVE, 1);
  const truncate = parameters.boolean("truncate", true);
  const dimensionOf = (rotations: number) =>
    (dims * Math.log(original / (rotations * 2 * Math.PI))) / (2 * Math.log(theta));
  let low = dimensionOf(betaFast);
  let high = dimensionOf(betaSlow);
  if (truncate) {
    low = Math.floor(low);
    high = Math.ceil(high);
  }
  low = Math.max(low, 0);
  high = Math.min(high, dims - 1);
  if (low === high) high += 0.001;
  return wavelengths(theta, dims).map((wavelength, i) => {
    const ramp = Math.min(1, Math.max(0, f32(f32(i - low) / (high - low))));
    const kept = f32(1 - ramp);
    const interpolated = f32(1 / f32(factor * wavelength));
    return f32(interpolated * f32(1 - kept)) + f32(f32(1 / wavelength) * kept);
  });
}

function mscale(factor: number, scale: number): number {
  return factor <= 1 ? 1 : 0.1 * scale * Math.log(factor) + 1;
}

/** What yarn multiplies cos and sin by. */
function attentionFactor(parameters: ConfigReader, factor: number): number {
  const range = { min: 0, max: 1e3 };
  if (parameters.has("attention_factor")) return parameters.number("attention_factor", range);
  const scale = parameters.number("mscale", range, 0);
  const all = parameters.number("mscale_all_dim", range, 0);
  return scale && all ? mscale(factor, scale) / mscale(factor, all) : mscale(factor, 1);
}

/** MLA's share of mscale: the square of it, on the softmax scale (DeepSeek-V3's modeling code). */
function mlaSoftmaxFactor(parameters: ConfigReader, factor: number): number {
  const all = parameters.number("mscale_all_dim", { min: 0, max: 1e3 }, 0);
  return all ? mscale(factor, all) ** 2 : 1;
}
