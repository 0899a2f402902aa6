#include <cstring>

#include "addon/addon.h"
#include "addon/values.h"

namespace edgewise {

namespace {

constexpr const char* kBackendNames[] = {"reference", "cpu", "cuda"};

}  // namespace

Napi::Function DeviceWrap::define(Napi::Env env) {
  return DefineClass(env, kClassName,
                     {
                         InstanceAccessor<&DeviceWrap::backend>("backend"),
                         InstanceAccessor<&DeviceWrap::isa>("isa"),
                         InstanceAccessor<&DeviceWrap::threads>("threads"),
                         InstanceAccessor<&DeviceWrap::launches>("launches"),
                         InstanceMethod<&DeviceWrap::alloc>("alloc"),
                         InstanceMethod<&DeviceWrap::from_host>("fromHost"),
                         InstanceMethod<&DeviceWrap::from_file>("fromFile"),
                         InstanceMethod<&DeviceWrap::arena>("arena"),
                         InstanceMethod<&DeviceWrap::use_arena>("useArena"),
                         InstanceMethod<&DeviceWrap::temp>("temp"),
                         InstanceMethod<&DeviceWrap::run>("run"),
                         InstanceMethod<&DeviceWrap::upload>("upload"),
                         InstanceMethod<&DeviceWrap::read>("read"),
                         InstanceMethod<&DeviceWrap::download>("download"),
                         InstanceMethod<&DeviceWrap::receive>("receive"),
                         InstanceMethod<&DeviceWrap::capture>("capture"),
                         InstanceMethod<&DeviceWrap::record>("record"),
                         InstanceMethod<&DeviceWrap::wait>("wait"),
                         InstanceMethod<&DeviceWrap::sync>("sync"),
                         InstanceMethod<&DeviceWrap::timestamp>("timestamp"),
                         InstanceMethod<&DeviceWrap::elapsed>("elapsed"),
                         InstanceMethod<&DeviceWrap::dispose>("dispose"),
                     });
}

DeviceWrap::DeviceWrap(const Napi::CallbackInfo& info) : Wrapped(info) { construct(info); }

Napi::Value DeviceWrap::make(Napi::Env env, std::shared_ptr<Device> device) {
  auto [object, wrap] = Wrapped::make(addon_data(env).device);
  wrap->device_ = std::move(device);
  return object;
}

Napi::Value DeviceWrap::backend(const Napi::CallbackInfo& info) {
  return Napi::String::New(info.Env(), kBackendNames[static_cast<int>(device_->config().backend)]);
}
Napi::Value DeviceWrap::isa(const Napi::CallbackInfo& info) {
  return Napi::String::New(info.Env(), device_->isa());
}
Napi::Value DeviceWrap::threads(const Napi::CallbackInfo& info) {
  return Napi::Number::New(info.Env(), device_->config().threads);
}
Napi::Value DeviceWrap::launches(const Napi::CallbackInfo& info) {
  return Napi::Number::New(info.Env(), static_cast<double>(device_->launches()));
}

Napi::Value DeviceWrap::alloc(const Napi::CallbackInfo& info) {
  device_->check("alloc", false);
  const DType dtype = dtype_of(info[0], "alloc: dtype");
  const Shape shape = shape_of(info[1], "alloc: shape");
  Tensor t = make_tensor(device_->allocate(checked_bytes(dtype, shape)), 0, dtype, shape);
  report_memory(info.Env());
  return TensorWrap::make(info.Env(), std::move(t), device_->id());
}

Napi::Value DeviceWrap::from_host(const Napi::CallbackInfo& info) {
  device_->check("fromHost", false);
  const DType dtype = dtype_of(info[0], "fromHost: dtype");
  const Shape shape = shape_of(info[1], "fromHost: shape");
  const Bytes data = bytes_of(info[2], "fromHost: data");
  const size_t bytes = checked_bytes(dtype, shape);
  if (data.size != bytes)
    throw std::runtime_error("fromHost: data: has " + std::to_string(data.size) + " bytes, " + dtype_name(dtype) +
                             describe(shape) + " takes " + std::to_string(bytes));
  Tensor t = make_tensor(device_->from_host(data.data, bytes), 0, dtype, shape);
  report_memory(info.Env());
  return TensorWrap::make(info.Env(), std::move(t), device_->id());
}

Napi::Value DeviceWrap::from_file(const Napi::CallbackInfo& info) {
  device_->check("fromFile", false);
  const auto& file = FileWrap::unwrap(info[0], "fromFile: file").file("fromFile");
  const int64_t offset = integer_of(info[1], "fromFile: offset", 0, kMaxSafeInteger);
  const DType dtype = dtype_of(info[2], "fromFile: dtype");
  const Shape shape = shape_of(info[3], "fromFile: shape");
  Tensor t = device_->from_file(file, static_cast<size_t>(offset), dtype, shape);
  report_memory(info.Env());
  return TensorWrap::make(info.Env(), std::move(t), device_->id());
}

Napi::Value DeviceWrap::arena(const Napi::CallbackInfo& info) {
  device_->check("arena", false);
  const int64_t bytes = integer_of(info[0], "arena: bytes", 0, kMaxSafeInteger);
  auto block = device_->allocate(static_cast<size_t>(bytes));
  report_memory(info.Env());
  return ArenaWrap::make(info.Env(), std::move(block), device_->id());
}

void DeviceWrap::use_arena(const Napi::CallbackInfo& info) {
  device_->check("useArena", true);
  const ArenaWrap& arena = ArenaWrap::unwrap(info[0], "useArena: arena");
  if (arena.device() != device_->id()) throw std::runtime_error("useArena: arena: belongs to another device");
  arena_ = arena.arena();
}

Napi::Value DeviceWrap::temp(const Napi::CallbackInfo& info) {
  device_->check("temp", true);
  if (!arena_) throw std::runtime_error("temp: no arena in use");
  const DType dtype = dtype_of(info[0], "temp: dtype");
  return TensorWrap::make(info.Env(), arena_->take(dtype, shape_of(info[1], "temp: shape")), device_->id());
}

const Tensor& DeviceWrap::own_tensor(Napi::Value value, const char* what) const {
  const TensorWrap& wrap = TensorWrap::unwrap(value, what);
  if (wrap.device() != device_->id()) throw std::runtime_error(std::string(what) + ": belongs to another device");
  return wrap.tensor();
}

void DeviceWrap::run(const Napi::CallbackInfo& info) {
  device_->check("run", true);
  const std::vector<OpEntry>& ops = op_registry();
  const OpEntry& op = ops[integer_of(info[0], "run: op", 0, static_cast<int64_t>(ops.size()) - 1)];
  if (!info[1].IsArray()) throw std::runtime_error(op.name + ": arguments must be an array");
  const Napi::Array values = info[1].As<Napi::Array>();
  const size_t count = op.args.size();
  if (values.Length() != count)
    throw std::runtime_error(op.name + ": takes " + std::to_string(count) + " arguments, got " +
                             std::to_string(values.Length()));
  std::vector<Tensor> tensors(count);
  std::vector<double> numbers(count);
  try {
    for (uint32_t i = 0; i < count; ++i) {
      const Napi::Value value = values.Get(i);
      const ArgSpec& spec = op.args[i];
      if (spec.kind == ArgKind::number) {
        if (!value.IsNumber()) throw OpError(spec.name, "must be a number");
        numbers[i] = value.As<Napi::Number>().DoubleValue();
      } else if (spec.kind != ArgKind::optional || !(value.IsNull() || value.IsUndefined())) {
        tensors[i] = own_tensor(value, spec.name);
      }
    }
    Args args(op.args, std::move(tensors), std::move(numbers));
    device_->run(op, args);
  } catch (const Napi::Error&) {
    throw;
  } catch (const std::exception& e) {
    throw std::runtime_error(op.name + ": " + e.what());
  }
}

void DeviceWrap::upload(const Napi::CallbackInfo& info) {
  device_->check("upload", false);
  const Bytes data = bytes_of(info[1], "upload: data");
  device_->upload(own_tensor(info[0], "upload: target"), data.data, data.size);
}

Napi::Value DeviceWrap::read(const Napi::CallbackInfo& info) {
  device_->check("read", false);
  const Tensor& source = own_tensor(info[0], "read: source");
  const size_t bytes = static_cast<size_t>(source.elements()) * dtype_size(source.dtype);
  Napi::ArrayBuffer out = Napi::ArrayBuffer::New(info.Env(), bytes);
  device_->read(source, out.Data());
  return out;
}

Napi::Value DeviceWrap::download(const Napi::CallbackInfo& info) {
  device_->check("download", false);
  return Napi::Number::New(info.Env(), static_cast<double>(device_->download(own_tensor(info[0], "download: source"))));
}

Napi::Value DeviceWrap::receive(const Napi::CallbackInfo& info) {
  device_->check("receive", false);
  const auto ticket = static_cast<uint64_t>(integer_of(info[0], "receive: ticket", 0, kMaxSafeInteger));
  const std::vector<char> bytes = device_->receive(ticket);
  Napi::ArrayBuffer out = Napi::ArrayBuffer::New(info.Env(), bytes.size());
  if (!bytes.empty()) std::memcpy(out.Data(), bytes.data(), bytes.size());
  return out;
}

Napi::Value DeviceWrap::capture(const Napi::CallbackInfo& info) {
  device_->check("capture", false);
  if (!info[0].IsFunction()) throw std::runtime_error("capture: body: must be a function");
  device_->begin_capture();
  try {
    info[0].As<Napi::Function>().Call({});
    return GraphWrap::make(info.Env(), device_, device_->end_capture());
  } catch (...) {
    device_->abandon_capture();
    throw;
  }
}

Napi::Value DeviceWrap::record(const Napi::CallbackInfo& info) {
  device_->check("record", false);
  return Napi::Number::New(info.Env(), static_cast<double>(device_->record()));
}

void DeviceWrap::wait(const Napi::CallbackInfo& info) {
  device_->check("wait", false);
  device_->wait(static_cast<uint64_t>(integer_of(info[0], "wait: ticket", 0, kMaxSafeInteger)));
}

void DeviceWrap::sync(const Napi::CallbackInfo&) {
  device_->check("sync", false);
  device_->sync();
}

Napi::Value DeviceWrap::timestamp(const Napi::CallbackInfo& info) {
  device_->check("timestamp", false);
  return Napi::Number::New(info.Env(), static_cast<double>(device_->timestamp()));
}

Napi::Value DeviceWrap::elapsed(const Napi::CallbackInfo& info) {
  device_->check("elapsed", false);
  const auto from = static_cast<uint64_t>(integer_of(info[0], "elapsed: from", 0, kMaxSafeInteger));
  const auto to = static_cast<uint64_t>(integer_of(info[1], "elapsed: to", 0, kMaxSafeInteger));
  return Napi::Number::New(info.Env(), device_->elapsed(from, to));
}

void DeviceWrap::dispose(const Napi::CallbackInfo& info) {
  if (device_->disposed()) return;
  device_->check("dispose", false);
  device_->dispose();
  arena_.reset();
  report_memory(info.Env());
}

void DeviceWrap::report_memory(Napi::Env env) {
  const int64_t now = device_->allocated_bytes();
  Napi::MemoryManagement::AdjustExternalMemory(env, now - reported_bytes_);
  reported_bytes_ = now;
}

}  // namespace edgewise
