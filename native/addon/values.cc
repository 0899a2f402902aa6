#include "addon/values.h"

#include <cmath>

namespace edgewise {

namespace {

[[noreturn]] void refuse(const std::string& what, const std::string& wanted) {
  throw std::runtime_error(what + ": must be " + wanted);
}

size_t element_bytes(napi_typedarray_type type) {
  switch (type) {
    case napi_int16_array:
    case napi_uint16_array: return 2;
    case napi_int32_array:
    case napi_uint32_array:
    case napi_float32_array: return 4;
    case napi_float64_array:
    case napi_bigint64_array:
    case napi_biguint64_array: return 8;
    default: return 1;
  }
}

}  // namespace

DType dtype_of(Napi::Value value, const std::string& what) {
  if (value.IsString()) {
    const std::string name = value.As<Napi::String>();
    for (DType t : {DType::f32, DType::bf16, DType::f16, DType::e4m3, DType::i32, DType::u8})
      if (name == dtype_name(t)) return t;
  }
  refuse(what, "one of f32, bf16, f16, e4m3, i32, u8");
}

Shape shape_of(Napi::Value value, const std::string& what) {
  if (!value.IsArray()) refuse(what, "an array of dimensions");
  const Napi::Array array = value.As<Napi::Array>();
  const uint32_t rank = array.Length();
  if (rank > kMaxRank) refuse(what, "at most 4 dimensions");
  Shape shape;
  shape.rank = static_cast<int>(rank);
  for (uint32_t i = 0; i < rank; ++i)
    shape.dims[i] = integer_of(array.Get(i), what + "[" + std::to_string(i) + "]", 0, kMaxSafeInteger);
  return shape;
}

int64_t integer_of(Napi::Value value, const std::string& what, int64_t low, int64_t high) {
  const double v = value.IsNumber() ? value.As<Napi::Number>().DoubleValue() : NAN;
  if (!(v >= static_cast<double>(low) && v <= static_cast<double>(high)) || v != std::floor(v))
    refuse(what, "an integer from " + std::to_string(low) + " to " + std::to_string(high));
  return static_cast<int64_t>(v);
}

std::string string_of(Napi::Value value, const std::string& what) {
  if (!value.IsString()) refuse(what, "a string");
  return value.As<Napi::String>();
}

Bytes bytes_of(Napi::Value value, const std::string& what) {
  void* data = nullptr;
  size_t length = 0;
  if (value.IsTypedArray()) {
    napi_typedarray_type type;
    const napi_status ok =
        napi_get_typedarray_info(value.Env(), value, &type, &length, &data, nullptr, nullptr);
    if (ok == napi_ok) return {data, length * element_bytes(type)};
  } else if (value.IsDataView()) {
    if (napi_get_dataview_info(value.Env(), value, &length, &data, nullptr, nullptr) == napi_ok) return {data, length};
  }
  refuse(what, "a typed array or DataView");
}

}  // namespace edgewise
