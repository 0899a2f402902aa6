#include "core/view.h"

#include <cstring>

namespace edgewise {

namespace {

constexpr int64_t kMaxBytes = int64_t{1} << 53;

void set_contiguous(Tensor& t, const Shape& shape) {
  t.rank = shape.rank;
  int64_t stride = 1;
  for (int i = shape.rank - 1; i >= 0; --i) {
    t.shape[i] = shape.dims[i];
    t.stride[i] = stride;
    stride *= shape.dims[i];
  }
}

int64_t product(const Shape& shape) {
  int64_t n = 1;
  for (int i = 0; i < shape.rank; ++i)
    if (__builtin_mul_overflow(n, shape.dims[i], &n)) throw std::runtime_error("too many elements: " + describe(shape));
  return n;
}

}  // namespace

std::string describe(const Shape& shape) {
  std::string s = "[";
  for (int i = 0; i < shape.rank; ++i) s += (i ? ", " : "") + std::to_string(shape.dims[i]);
  return s + "]";
}

size_t checked_bytes(DType dtype, const Shape& shape) {
  int64_t bytes = static_cast<int64_t>(dtype_size(dtype));
  for (int i = 0; i < shape.rank; ++i)
    if (__builtin_mul_overflow(bytes, shape.dims[i], &bytes) || bytes > kMaxBytes)
      throw std::runtime_error("too many elements: " + describe(shape));
  return static_cast<size_t>(bytes);
}

Tensor make_tensor(std::shared_ptr<Storage> storage, size_t offset, DType dtype, const Shape& shape) {
  const size_t bytes = checked_bytes(dtype, shape);
  if (offset > storage->bytes || bytes > storage->bytes - offset)
    throw std::runtime_error(std::string(dtype_name(dtype)) + describe(shape) + " at byte " + std::to_string(offset) +
                             " reaches beyond the " + std::to_string(storage->bytes) + " bytes there are");
  Tensor t;
  t.storage = std::move(storage);
  t.byte_offset = offset;
  t.dtype = dtype;
  set_contiguous(t, shape);
  return t;
}

Tensor reshape(const Tensor& t, const Shape& shape) {
  if (!t.contiguous()) throw std::runtime_error("reshape: not contiguous: " + t.describe());
  if (product(shape) != t.elements())
    throw std::runtime_error("reshape: " + t.describe() + " has another number of elements than " + describe(shape));
  Tensor r = t;
  set_contiguous(r, shape);
  return r;
}

Tensor slice(const Tensor& t, int dim, int64_t begin, int64_t end) {
  if (dim < 0 || dim >= t.rank)
    throw std::runtime_error("slice: no dimension " + std::to_string(dim) + " in " + t.describe());
  if (begin < 0 || begin > end || end > t.shape[dim])
    throw std::runtime_error("slice: [" + std::to_string(begin) + ", " + std::to_string(end) + ") is not within dimension " +
                             std::to_string(dim) + " of " + t.describe());
  Tensor r = t;
  if (end > begin) r.byte_offset += static_cast<size_t>(begin * t.stride[dim]) * dtype_size(t.dtype);
  r.shape[dim] = end - begin;
  return r;
}

Tensor split_last(const Tensor& t, const Shape& shape) {
  if (t.rank == 0) throw std::runtime_error("splitLast: the tensor has no dimensions");
  if (t.rank - 1 + shape.rank > kMaxRank)
    throw std::runtime_error("splitLast: " + t.describe() + " into " + describe(shape) + " has more than 4 dimensions");
  if (shape.rank == 0 || product(shape) != t.shape[t.rank - 1])
    throw std::runtime_error("splitLast: " + describe(shape) + " does not multiply to the last dimension of " + t.describe());
  Tensor r = t;
  int64_t stride = 1;
  for (int i = shape.rank - 1; i >= 0; --i) {
    r.shape[t.rank - 1 + i] = shape.dims[i];
    r.stride[t.rank - 1 + i] = stride;
    stride *= shape.dims[i];
  }
  r.rank = t.rank - 1 + shape.rank;
  return r;
}

void copy_out(const Tensor& t, void* target) {
  if (t.elements() == 0) return;
  const size_t size = dtype_size(t.dtype);
  if (t.contiguous()) {
    std::memcpy(target, t.raw(), static_cast<size_t>(t.elements()) * size);
    return;
  }
  // The last dimension is contiguous: copy it row by row, the outer ones padded to three.
  int64_t n[3] = {1, 1, 1}, stride[3] = {0, 0, 0};
  for (int i = 0; i + 1 < t.rank; ++i) {
    n[i + 4 - t.rank] = t.shape[i];
    stride[i + 4 - t.rank] = t.stride[i];
  }
  const size_t row = static_cast<size_t>(t.shape[t.rank - 1]) * size;
  char* out = static_cast<char*>(target);
  for (int64_t a = 0; a < n[0]; ++a)
    for (int64_t b = 0; b < n[1]; ++b)
      for (int64_t c = 0; c < n[2]; ++c, out += row)
        std::memcpy(out, t.data<char>() + (a * stride[0] + b * stride[1] + c * stride[2]) * static_cast<int64_t>(size), row);
}

}  // namespace edgewise
