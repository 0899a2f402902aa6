// Arenas, mapped files and graphs.
#include <cstring>

#include "addon/addon.h"
#include "addon/values.h"

namespace edgewise {

Napi::Function ArenaWrap::define(Napi::Env env) {
  return DefineClass(env, kClassName,
                     {
                         InstanceAccessor<&ArenaWrap::bytes>("bytes"),
                         InstanceAccessor<&ArenaWrap::used>("used"),
                         InstanceAccessor<&ArenaWrap::peak>("peak"),
                         InstanceMethod<&ArenaWrap::reset>("reset"),
                     });
}

ArenaWrap::ArenaWrap(const Napi::CallbackInfo& info) : Wrapped(info) { construct(info); }

Napi::Value ArenaWrap::make(Napi::Env env, std::shared_ptr<Storage> block, uint64_t device) {
  auto [object, wrap] = Wrapped::make(addon_data(env).arena);
  wrap->arena_ = std::make_shared<Arena>(Arena{std::move(block)});
  wrap->device_ = device;
  return object;
}

Napi::Value ArenaWrap::bytes(const Napi::CallbackInfo& info) {
  return Napi::Number::New(info.Env(), static_cast<double>(arena_->block->bytes));
}
Napi::Value ArenaWrap::used(const Napi::CallbackInfo& info) {
  return Napi::Number::New(info.Env(), static_cast<double>(arena_->used));
}
Napi::Value ArenaWrap::peak(const Napi::CallbackInfo& info) {
  return Napi::Number::New(info.Env(), static_cast<double>(arena_->peak));
}
void ArenaWrap::reset(const Napi::CallbackInfo&) { arena_->used = 0; }

Napi::Function FileWrap::define(Napi::Env env) {
  return DefineClass(env, kClassName,
                     {
                         InstanceAccessor<&FileWrap::bytes>("bytes"),
                         InstanceMethod<&FileWrap::read>("read"),
                         InstanceMethod<&FileWrap::close>("close"),
                     });
}

FileWrap::FileWrap(const Napi::CallbackInfo& info) : Wrapped(info) { construct(info); }

Napi::Value FileWrap::make(Napi::Env env, std::shared_ptr<Storage> file) {
  auto [object, wrap] = Wrapped::make(addon_data(env).file);
  wrap->file_ = std::move(file);
  return object;
}

const std::shared_ptr<Storage>& FileWrap::file(const char* what) const {
  if (!file_) throw std::runtime_error(std::string(what) + ": the file is closed");
  return file_;
}

Napi::Value FileWrap::bytes(const Napi::CallbackInfo& info) {
  return Napi::Number::New(info.Env(), static_cast<double>(file("bytes")->bytes));
}

Napi::Value FileWrap::read(const Napi::CallbackInfo& info) {
  const Storage& storage = *file("read");
  const auto size = static_cast<int64_t>(storage.bytes);
  const int64_t begin = integer_of(info[0], "read: begin", 0, size);
  const int64_t end = integer_of(info[1], "read: end", begin, std::min(size, begin + (int64_t{256} << 20)));
  Napi::Uint8Array out = Napi::Uint8Array::New(info.Env(), static_cast<size_t>(end - begin));
  if (end > begin) std::memcpy(out.Data(), static_cast<const char*>(storage.data) + begin, out.ByteLength());
  return out;
}

void FileWrap::close(const Napi::CallbackInfo&) { file_.reset(); }

Napi::Function GraphWrap::define(Napi::Env env) {
  return DefineClass(env, kClassName,
                     {
                         InstanceAccessor<&GraphWrap::launches>("launches"),
                         InstanceMethod<&GraphWrap::replay>("replay"),
                         InstanceMethod<&GraphWrap::dispose>("dispose"),
                     });
}

GraphWrap::GraphWrap(const Napi::CallbackInfo& info) : Wrapped(info) { construct(info); }

Napi::Value GraphWrap::make(Napi::Env env, std::shared_ptr<Device> device, std::shared_ptr<const Graph> graph) {
  auto [object, wrap] = Wrapped::make(addon_data(env).graph);
  wrap->device_ = std::move(device);
  wrap->graph_ = std::move(graph);
  return object;
}

Napi::Value GraphWrap::launches(const Napi::CallbackInfo& info) {
  return Napi::Number::New(info.Env(), graph_ ? static_cast<double>(graph_->launches()) : 0);
}

void GraphWrap::replay(const Napi::CallbackInfo&) {
  if (!graph_) throw std::runtime_error("replay: the graph is disposed");
  device_->check("replay", false);
  device_->replay(graph_);
}

void GraphWrap::dispose(const Napi::CallbackInfo&) {
  graph_.reset();
  device_.reset();
}

}  // namespace edgewise
