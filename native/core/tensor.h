// Tensors: a typed, strided window into reference-counted storage.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>

namespace edgewise {

enum class DType : uint8_t { f32, bf16, f16, e4m3, i32, u8 };

inline size_t dtype_size(DType t) {
  switch (t) {
    case DType::f32:
    case DType::i32: return 4;
    case DType::bf16:
    case DType::f16: return 2;
    case DType::e4m3:
    case DType::u8: return 1;
  }
  return 0;
}

inline const char* dtype_name(DType t) {
  switch (t) {
    case DType::f32: return "f32";
    case DType::bf16: return "bf16";
    case DType::f16: return "f16";
    case DType::e4m3: return "e4m3";
    case DType::i32: return "i32";
    case DType::u8: return "u8";
  }
  return "?";
}

// Bytes owned by someone: an allocation, an arena or a mapped file. `owner` keeps them alive.
struct Storage {
  void* data = nullptr;
  size_t bytes = 0;
  std::shared_ptr<void> owner;
  bool read_only = false;  // a mapped file: no op may write to it
};

constexpr int kMaxRank = 4;

// `stride` counts elements. The last dimension is always contiguous (stride 1); outer ones may be strided views.
struct Tensor {
  std::shared_ptr<Storage> storage;
  size_t byte_offset = 0;
  DType dtype = DType::f32;
  int rank = 0;
  int64_t shape[kMaxRank] = {};
  int64_t stride[kMaxRank] = {};

  void* raw() const { return static_cast<char*>(storage->data) + byte_offset; }
  template <class T>
  T* data() const { return static_cast<T*>(raw()); }

  int64_t elements() const {
    int64_t n = 1;
    for (int i = 0; i < rank; ++i) n *= shape[i];
    return n;
  }
  bool contiguous() const {
    int64_t expected = 1;
    for (int i = rank - 1; i >= 0; --i) {
      if (shape[i] != 1 && stride[i] != expected) return false;
      expected *= shape[i];
    }
    return true;
  }
  // "bf16[4, 256]", for messages.
  std::string describe() const {
    std::string s = std::string(dtype_name(dtype)) + "[";
    for (int i = 0; i < rank; ++i) s += (i ? ", " : "") + std::to_string(shape[i]);
    return s + "]";
  }
};

}  // namespace edgewise
