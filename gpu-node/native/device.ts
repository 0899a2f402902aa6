// A device with its operators as named functions: `device.ops.rms_norm({ x, weight, out, eps })`.
import type { Addon, Device, DeviceOptions, Tensor } from "./addon.ts";
import { loadAddon } from "./load.ts";
import { OP_TABLE, type OpName, type Ops } from "./ops.ts";

export type OpDevice = Device & { readonly ops: Ops };

type Value = Tensor | number | null;

/**
 * Opens a device. The caller disposes it, which waits for the running kernel and frees all of its memory.
 * @throws when the backend is not in this build or not available on this machine, saying why.
 */
export function openDevice(options: DeviceOptions): OpDevice {
  const addon = loadAddon();
  const device = addon.openDevice(options);
  return Object.assign(device, { ops: bindOps(addon, device) });
}

function bindOps(addon: Addon, device: Device): Ops {
  const index = new Map(addon.ops().map((op, i) => [op.name, i]));
  const names = Object.keys(OP_TABLE) as OpName[];
  return Object.fromEntries(
    names.map((name) => [name, bindOp(device, name, index.get(name))]),
  ) as unknown as Ops;
}

// An argument that is missing arrives as undefined, which the addon refuses by name unless it is optional.
function bindOp(device: Device, name: OpName, index: number | undefined) {
  if (index === undefined) {
    return () => {
      throw new Error(`${name}: this build of the addon does not have the op`);
    };
  }
  const keys = Object.keys(OP_TABLE[name]);
  return (args: Record<string, Value>) => {
    const values: Value[] = new Array(keys.length);
    for (let i = 0; i < keys.length; i++) values[i] = args[keys[i]];
    device.run(index, values);
  };
}
