// JavaScript values to C++ ones. `what` names the call and argument in the error.
#pragma once

#include <napi.h>

#include <string>

#include "core/view.h"

namespace edgewise {

struct Bytes {
  const void* data;
  size_t size;
};

DType dtype_of(Napi::Value value, const std::string& what);
// An array of 0 to 4 non-negative integers.
Shape shape_of(Napi::Value value, const std::string& what);
// A safe integer within [low, high].
int64_t integer_of(Napi::Value value, const std::string& what, int64_t low, int64_t high);
std::string string_of(Napi::Value value, const std::string& what);
// A typed array or DataView; valid while the value is.
Bytes bytes_of(Napi::Value value, const std::string& what);

constexpr int64_t kMaxSafeInteger = (int64_t{1} << 53) - 1;

}  // namespace edgewise
