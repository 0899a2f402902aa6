#include "addon/addon.h"

#include "addon/values.h"
#include "core/host_device.h"
#include "core/mapped_file.h"
#ifdef EDGEWISE_CUDA
#include "cuda/backend.h"
#endif

namespace edgewise {

namespace {

constexpr const char* kVersion = "0.1.0";

struct BackendInfo {
  Backend backend;
  const char* name;
  std::string (*unavailable)();  // why it cannot be opened on this machine, or ""
};

std::string always_there() { return ""; }

#ifdef EDGEWISE_CUDA
std::string cuda_unavailable() { return cuda::unavailable(); }
bool cuda_emulated() { return cuda::emulated(); }
#else
bool cuda_emulated() { return false; }
std::string cuda_unavailable() { return "this build of the addon has no CUDA kernels"; }
#endif

constexpr BackendInfo kBackends[] = {
    {Backend::reference, "reference", always_there},
    {Backend::cpu, "cpu", always_there},
    {Backend::cuda, "cuda", cuda_unavailable},
};

std::shared_ptr<Device> make_device(const DeviceConfig& config) {
#ifdef EDGEWISE_CUDA
  if (config.backend == Backend::cuda) return cuda::open_device(config);
#endif
  return std::make_shared<HostDevice>(config);
}

constexpr const char* kKinds[] = {"in", "out", "inout", "optional", "number"};

Napi::Value backends(const Napi::CallbackInfo& info) {
  Napi::Env env = info.Env();
  Napi::Array list = Napi::Array::New(env);
  for (const BackendInfo& b : kBackends) {
    Napi::Object entry = Napi::Object::New(env);
    entry["name"] = b.name;
    const std::string reason = b.unavailable();
    entry["unavailable"] = reason.empty() ? env.Null() : Napi::String::New(env, reason);
    entry["emulated"] = b.backend == Backend::cuda && cuda_emulated();
    list[list.Length()] = entry;
  }
  return list;
}

Napi::Value ops(const Napi::CallbackInfo& info) {
  Napi::Env env = info.Env();
  Napi::Array list = Napi::Array::New(env);
  for (const OpEntry& op : op_registry()) {
    Napi::Object entry = Napi::Object::New(env);
    Napi::Array args = Napi::Array::New(env), kernels = Napi::Array::New(env);
    for (const ArgSpec& spec : op.args) {
      Napi::Object arg = Napi::Object::New(env);
      arg["name"] = spec.name;
      arg["kind"] = kKinds[static_cast<int>(spec.kind)];
      args[args.Length()] = arg;
    }
    for (const BackendInfo& b : kBackends)
      if (op.has(b.backend)) kernels[kernels.Length()] = b.name;
    entry["name"] = op.name;
    entry["args"] = args;
    entry["backends"] = kernels;
    list[list.Length()] = entry;
  }
  return list;
}

Isa isa_of(Napi::Value value) {
  if (value.IsUndefined()) return cpu_isa();
  const std::string name = string_of(value, "openDevice: isa");
  for (int i = 0; i < kIsaLevels; ++i)
    if (name == isa_name(static_cast<Isa>(i))) {
      if (i <= static_cast<int>(cpu_isa())) return static_cast<Isa>(i);
      throw std::runtime_error("openDevice: isa: this machine has no " + name + ", or EDGEWISE_CPU_ISA forbids it");
    }
  throw std::runtime_error("openDevice: isa: must be one of portable, avx2, avx512");
}

Napi::Value open_device(const Napi::CallbackInfo& info) {
  if (!info[0].IsObject()) throw std::runtime_error("openDevice: options: must be an object");
  const Napi::Object options = info[0].As<Napi::Object>();
  const std::string name = string_of(options.Get("backend"), "openDevice: backend");
  for (const BackendInfo& b : kBackends) {
    if (name != b.name) continue;
    if (const std::string reason = b.unavailable(); !reason.empty())
      throw std::runtime_error("openDevice: " + name + ": " + reason);
    const Napi::Value threads = options.Get("threads");
    DeviceConfig config{b.backend, isa_of(options.Get("isa")), available_threads()};
    if (!threads.IsUndefined())
      config.threads = static_cast<int>(integer_of(threads, "openDevice: threads", 1, 1024));
    if (b.backend == Backend::cuda) config.threads = 1;
    const Napi::Value gpu = options.Get("gpu");
    if (!gpu.IsUndefined()) config.gpu = static_cast<int>(integer_of(gpu, "openDevice: gpu", 0, 1023));
    return DeviceWrap::make(info.Env(), make_device(config));
  }
  throw std::runtime_error("openDevice: backend: must be one of reference, cpu, cuda");
}

Napi::Value map_file_js(const Napi::CallbackInfo& info) {
  return FileWrap::make(info.Env(), map_file(string_of(info[0], "mapFile: path")));
}

Napi::Object init(Napi::Env env, Napi::Object exports) {
  auto* data = new AddonData;
  env.SetInstanceData(data);  // deleted with the environment
  data->device = Napi::Persistent(DeviceWrap::define(env));
  data->tensor = Napi::Persistent(TensorWrap::define(env));
  data->arena = Napi::Persistent(ArenaWrap::define(env));
  data->graph = Napi::Persistent(GraphWrap::define(env));
  data->file = Napi::Persistent(FileWrap::define(env));
  exports["version"] = kVersion;
  exports["openDevice"] = Napi::Function::New(env, open_device, "openDevice");
  exports["backends"] = Napi::Function::New(env, backends, "backends");
  exports["ops"] = Napi::Function::New(env, ops, "ops");
  exports["mapFile"] = Napi::Function::New(env, map_file_js, "mapFile");
  export_plan(env, exports);
  return exports;
}

}  // namespace

AddonData& addon_data(Napi::Env env) { return *env.GetInstanceData<AddonData>(); }

}  // namespace edgewise

static Napi::Object edgewise_init(Napi::Env env, Napi::Object exports) { return edgewise::init(env, exports); }

NODE_API_MODULE(edgewise, edgewise_init)
