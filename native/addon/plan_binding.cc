// planLayout(), validatePlan() and tagLayout(): layouts and checks, for the TypeScript side and its tests.
#include <cstring>

#include "addon/addon.h"
#include "addon/values.h"
#include "core/page_tags.h"
#include "core/plan.h"

namespace edgewise {

namespace {

using Layout = std::vector<std::pair<std::string, int64_t>>;

template <Layout (*layout)()>
Napi::Value layout_of(const Napi::CallbackInfo& info) {
  Napi::Object object = Napi::Object::New(info.Env());
  for (const auto& [name, value] : layout()) object.Set(name, static_cast<double>(value));
  return object;
}

// A copy: the caller may hold the array in shared memory.
std::vector<int32_t> ints_of(Napi::Value value, const char* what) {
  if (!value.IsTypedArray() || value.As<Napi::TypedArray>().TypedArrayType() != napi_int32_array)
    throw std::runtime_error(std::string(what) + ": must be an Int32Array");
  const Bytes bytes = bytes_of(value, what);
  std::vector<int32_t> ints(bytes.size / sizeof(int32_t));
  if (!ints.empty()) std::memcpy(ints.data(), bytes.data, bytes.size);
  return ints;
}

void validate(const Napi::CallbackInfo& info) {
  const auto plan = ints_of(info[0], "validatePlan: plan");
  const auto limits = ints_of(info[1], "validatePlan: limits");
  validate_plan(plan.data(), plan.size(), limits.data(), limits.size());
}

}  // namespace

void export_plan(Napi::Env env, Napi::Object exports) {
  exports["planLayout"] = Napi::Function::New(env, layout_of<plan_layout>, "planLayout");
  exports["tagLayout"] = Napi::Function::New(env, layout_of<tag_layout>, "tagLayout");
  exports["validatePlan"] = Napi::Function::New(env, validate, "validatePlan");
}

}  // namespace edgewise
