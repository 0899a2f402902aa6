#include "addon/addon.h"
#include "addon/values.h"

namespace edgewise {

Napi::Function TensorWrap::define(Napi::Env env) {
  return DefineClass(env, kClassName,
                     {
                         InstanceAccessor<&TensorWrap::dtype>("dtype"),
                         InstanceAccessor<&TensorWrap::shape>("shape"),
                         InstanceMethod<&TensorWrap::reshape>("reshape"),
                         InstanceMethod<&TensorWrap::slice>("slice"),
                         InstanceMethod<&TensorWrap::split_last>("splitLast"),
                     });
}

TensorWrap::TensorWrap(const Napi::CallbackInfo& info) : Wrapped(info) { construct(info); }

Napi::Value TensorWrap::make(Napi::Env env, Tensor tensor, uint64_t device) {
  auto [object, wrap] = Wrapped::make(addon_data(env).tensor);
  wrap->tensor_ = std::move(tensor);
  wrap->device_ = device;
  return object;
}

Napi::Value TensorWrap::dtype(const Napi::CallbackInfo& info) {
  return Napi::String::New(info.Env(), dtype_name(tensor_.dtype));
}

Napi::Value TensorWrap::shape(const Napi::CallbackInfo& info) {
  Napi::Array shape = Napi::Array::New(info.Env(), static_cast<size_t>(tensor_.rank));
  for (int i = 0; i < tensor_.rank; ++i) shape[static_cast<uint32_t>(i)] = static_cast<double>(tensor_.shape[i]);
  return shape;
}

Napi::Value TensorWrap::reshape(const Napi::CallbackInfo& info) {
  return make(info.Env(), edgewise::reshape(tensor_, shape_of(info[0], "reshape: shape")), device_);
}

Napi::Value TensorWrap::slice(const Napi::CallbackInfo& info) {
  const auto dim = static_cast<int>(integer_of(info[0], "slice: dim", 0, kMaxRank - 1));
  const int64_t begin = integer_of(info[1], "slice: begin", 0, kMaxSafeInteger);
  const int64_t end = integer_of(info[2], "slice: end", 0, kMaxSafeInteger);
  return make(info.Env(), edgewise::slice(tensor_, dim, begin, end), device_);
}

Napi::Value TensorWrap::split_last(const Napi::CallbackInfo& info) {
  return make(info.Env(), edgewise::split_last(tensor_, shape_of(info[0], "splitLast: shape")), device_);
}

}  // namespace edgewise
