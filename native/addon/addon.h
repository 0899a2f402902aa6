// The N-API side: one class per JavaScript object. Checks types and bounds, then calls core/.
// All state is per environment (AddonData), so that the main thread and workers can load the addon side by side.
#pragma once

#include <napi.h>

#include <memory>
#include <string>

#include "core/device.h"

namespace edgewise {

struct AddonData {
  Napi::FunctionReference device, tensor, arena, graph, file;
};

AddonData& addon_data(Napi::Env env);

// A class of ours: made only by the addon, recognised by its type tag.
template <class T>
class Wrapped : public Napi::ObjectWrap<T> {
 public:
  explicit Wrapped(const Napi::CallbackInfo& info) : Napi::ObjectWrap<T>(info) {}

  // The native object behind `value`; throws "<what>: must be a <class>".
  static T& unwrap(Napi::Value value, const char* what) {
    T* object = try_unwrap(value);
    if (!object) throw std::runtime_error(std::string(what) + ": must be a " + T::kClassName);
    return *object;
  }
  static T* try_unwrap(napi_env env, napi_value value) {
    bool ours = false;
    napi_valuetype type;
    if (napi_typeof(env, value, &type) != napi_ok || type != napi_object) return nullptr;
    if (napi_check_object_type_tag(env, value, &T::kTag, &ours) != napi_ok || !ours) return nullptr;
    void* object = nullptr;
    return napi_unwrap(env, value, &object) == napi_ok ? static_cast<T*>(object) : nullptr;
  }
  static T* try_unwrap(Napi::Value value) { return try_unwrap(value.Env(), value); }

  // A new object, and its native side to fill in.
  static std::pair<Napi::Object, T*> make(const Napi::FunctionReference& constructor) {
    making() = true;
    Napi::Object object = constructor.New({});
    making() = false;
    return {object, T::Unwrap(object)};
  }

 protected:
  // For the constructor: refuses `new` from JavaScript and tags the object.
  void construct(const Napi::CallbackInfo& info) {
    if (!making()) throw std::runtime_error(std::string(T::kClassName) + ": is made by a device");
    const napi_value object = info.This();
    if (napi_type_tag_object(info.Env(), object, &T::kTag) != napi_ok) throw Napi::Error::New(info.Env());
  }

 private:
  // Environments run on threads of their own.
  static bool& making() {
    static thread_local bool flag = false;
    return flag;
  }
};

class TensorWrap : public Wrapped<TensorWrap> {
 public:
  static constexpr const char* kClassName = "Tensor";
  static constexpr napi_type_tag kTag = {0x8d4bb1a26c1f4e01, 0xa7f2d0e35b9c6681};
  static Napi::Function define(Napi::Env env);
  static Napi::Value make(Napi::Env env, Tensor tensor, uint64_t device);
  explicit TensorWrap(const Napi::CallbackInfo& info);

  const Tensor& tensor() const { return tensor_; }
  uint64_t device() const { return device_; }

 private:
  Napi::Value dtype(const Napi::CallbackInfo& info);
  Napi::Value shape(const Napi::CallbackInfo& info);
  Napi::Value reshape(const Napi::CallbackInfo& info);
  Napi::Value slice(const Napi::CallbackInfo& info);
  Napi::Value split_last(const Napi::CallbackInfo& info);

  Tensor tensor_;
  uint64_t device_ = 0;
};

class ArenaWrap : public Wrapped<ArenaWrap> {
 public:
  static constexpr const char* kClassName = "Arena";
  static constexpr napi_type_tag kTag = {0x8d4bb1a26c1f4e02, 0xa7f2d0e35b9c6682};
  static Napi::Function define(Napi::Env env);
  static Napi::Value make(Napi::Env env, std::shared_ptr<Storage> block, uint64_t device);
  explicit ArenaWrap(const Napi::CallbackInfo& info);

  const std::shared_ptr<Arena>& arena() const { return arena_; }
  uint64_t device() const { return device_; }

 private:
  Napi::Value bytes(const Napi::CallbackInfo& info);
  Napi::Value used(const Napi::CallbackInfo& info);
  Napi::Value peak(const Napi::CallbackInfo& info);
  void reset(const Napi::CallbackInfo& info);

  std::shared_ptr<Arena> arena_;
  uint64_t device_ = 0;
};

class FileWrap : public Wrapped<FileWrap> {
 public:
  static constexpr const char* kClassName = "MappedFile";
  static constexpr napi_type_tag kTag = {0x8d4bb1a26c1f4e03, 0xa7f2d0e35b9c6683};
  static Napi::Function define(Napi::Env env);
  static Napi::Value make(Napi::Env env, std::shared_ptr<Storage> file);
  explicit FileWrap(const Napi::CallbackInfo& info);

  // Throws when the handle is closed.
  const std::shared_ptr<Storage>& file(const char* what) const;

 private:
  Napi::Value bytes(const Napi::CallbackInfo& info);
  Napi::Value read(const Napi::CallbackInfo& info);
  void close(const Napi::CallbackInfo& info);

  std::shared_ptr<Storage> file_;
};

class GraphWrap : public Wrapped<GraphWrap> {
 public:
  static constexpr const char* kClassName = "Graph";
  static constexpr napi_type_tag kTag = {0x8d4bb1a26c1f4e04, 0xa7f2d0e35b9c6684};
  static Napi::Function define(Napi::Env env);
  static Napi::Value make(Napi::Env env, std::shared_ptr<Device> device, std::shared_ptr<const Graph> graph);
  explicit GraphWrap(const Napi::CallbackInfo& info);

 private:
  Napi::Value launches(const Napi::CallbackInfo& info);
  void replay(const Napi::CallbackInfo& info);
  void dispose(const Napi::CallbackInfo& info);

  std::shared_ptr<Device> device_;
  std::shared_ptr<const Graph> graph_;
};

class DeviceWrap : public Wrapped<DeviceWrap> {
 public:
  static constexpr const char* kClassName = "Device";
  static constexpr napi_type_tag kTag = {0x8d4bb1a26c1f4e05, 0xa7f2d0e35b9c6685};
  static Napi::Function define(Napi::Env env);
  static Napi::Value make(Napi::Env env, std::shared_ptr<Device> device);
  explicit DeviceWrap(const Napi::CallbackInfo& info);

 private:
  Napi::Value backend(const Napi::CallbackInfo& info);
  Napi::Value isa(const Napi::CallbackInfo& info);
  Napi::Value threads(const Napi::CallbackInfo& info);
  Napi::Value launches(const Napi::CallbackInfo& info);
  Napi::Value alloc(const Napi::CallbackInfo& info);
  Napi::Value from_host(const Napi::CallbackInfo& info);
  Napi::Value from_file(const Napi::CallbackInfo& info);
  Napi::Value arena(const Napi::CallbackInfo& info);
  void use_arena(const Napi::CallbackInfo& info);
  Napi::Value temp(const Napi::CallbackInfo& info);
  void run(const Napi::CallbackInfo& info);
  void upload(const Napi::CallbackInfo& info);
  Napi::Value read(const Napi::CallbackInfo& info);
  Napi::Value download(const Napi::CallbackInfo& info);
  Napi::Value receive(const Napi::CallbackInfo& info);
  Napi::Value capture(const Napi::CallbackInfo& info);
  Napi::Value record(const Napi::CallbackInfo& info);
  void wait(const Napi::CallbackInfo& info);
  void sync(const Napi::CallbackInfo& info);
  Napi::Value timestamp(const Napi::CallbackInfo& info);
  Napi::Value elapsed(const Napi::CallbackInfo& info);
  void dispose(const Napi::CallbackInfo& info);

  // The argument as a tensor of this device; throws "<what>: ..." .
  const Tensor& own_tensor(Napi::Value value, const char* what) const;
  // Tells V8 how much memory its objects keep alive, as a difference to the last time.
  void report_memory(Napi::Env env);

  std::shared_ptr<Device> device_;
  std::shared_ptr<Arena> arena_;
  int64_t reported_bytes_ = 0;
};

// plan_binding.cc: planLayout() and validatePlan().
void export_plan(Napi::Env env, Napi::Object exports);

}  // namespace edgewise
