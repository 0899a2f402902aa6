#include "core/op.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace edgewise {

namespace {

std::vector<OpEntry>& registry() {
  static std::vector<OpEntry> entries;
  return entries;
}

std::string dtype_list(std::initializer_list<DType> dtypes) {
  std::string s;
  for (DType t : dtypes) s += (s.empty() ? "" : "|") + std::string(dtype_name(t));
  return s;
}

std::string shape_list(const int64_t* shape, int rank) {
  std::string s;
  for (int i = 0; i < rank; ++i) s += (i ? ", " : "") + (shape[i] < 0 ? std::string("any") : std::to_string(shape[i]));
  return "[" + s + "]";
}

// Addresses [begin, end) that a tensor spans, gaps of a strided view included.
struct Span {
  uintptr_t begin, end;
};

Span span(const Tensor& t) {
  int64_t last = 0;
  for (int i = 0; i < t.rank; ++i) last += (t.shape[i] - 1) * t.stride[i];
  const auto begin = reinterpret_cast<uintptr_t>(t.raw());
  return {begin, begin + static_cast<size_t>(last + 1) * dtype_size(t.dtype)};
}

bool same(const Tensor& a, const Tensor& b) {
  if (a.raw() != b.raw() || a.dtype != b.dtype || a.rank != b.rank) return false;
  for (int i = 0; i < a.rank; ++i)
    if (a.shape[i] != b.shape[i] || (a.shape[i] > 1 && a.stride[i] != b.stride[i])) return false;
  return true;
}

// Columns of the same row-major buffer interleave in memory without sharing a byte:
//   row 0: [ a a a | b b ]   pitch = bytes of a whole row; a and b are compared within it
//   row 1: [ a a a | b b ]
bool disjoint_columns(const Tensor& a, const Tensor& b, const Span& sa, const Span& sb) {
  if (a.rank < 2 || b.rank < 2) return false;
  const int64_t pitch = a.stride[0] * static_cast<int64_t>(dtype_size(a.dtype));
  if (pitch <= 0 || pitch != b.stride[0] * static_cast<int64_t>(dtype_size(b.dtype))) return false;
  const int64_t width_a = static_cast<int64_t>(sa.end - sa.begin) - (a.shape[0] - 1) * pitch;
  const int64_t width_b = static_cast<int64_t>(sb.end - sb.begin) - (b.shape[0] - 1) * pitch;
  const int64_t distance = static_cast<int64_t>((sb.begin > sa.begin ? sb.begin - sa.begin : sa.begin - sb.begin)) % pitch;
  const int64_t first = sb.begin > sa.begin ? width_a : width_b;
  const int64_t second = sb.begin > sa.begin ? width_b : width_a;
  return first <= distance && second <= pitch - distance;
}

bool overlap(const Tensor& a, const Tensor& b) {
  if (a.elements() == 0 || b.elements() == 0) return false;
  const Span sa = span(a), sb = span(b);
  if (sa.end <= sb.begin || sb.end <= sa.begin) return false;
  return !disjoint_columns(a, b, sa, sb);
}

}  // namespace

const std::vector<OpEntry>& op_registry() { return registry(); }

void register_op(OpEntry entry) {
  auto& entries = registry();
  auto at = std::lower_bound(entries.begin(), entries.end(), entry,
                             [](const OpEntry& a, const OpEntry& b) { return a.name < b.name; });
  entries.insert(at, std::move(entry));
}

Args::Args(const std::vector<ArgSpec>& specs, std::vector<Tensor> tensors, std::vector<double> numbers)
    : specs_(&specs), tensors_(std::move(tensors)), numbers_(std::move(numbers)) {
  for (size_t i = 0; i < specs.size(); ++i) {
    const ArgKind kind = specs[i].kind;
    if ((kind == ArgKind::out || kind == ArgKind::inout) && tensors_[i].storage && tensors_[i].storage->read_only)
      throw OpError(specs[i].name, "is written by this op, and lies in a read-only file mapping");
  }
}

size_t Args::index_of(const char* name) const {
  for (size_t i = 0; i < specs_->size(); ++i)
    if (std::strcmp((*specs_)[i].name, name) == 0) return i;
  throw std::logic_error(std::string("the op has no argument ") + name);
}

const Tensor& Args::peek(const char* name) const {
  const Tensor& t = tensors_[index_of(name)];
  if (!t.storage) throw OpError(name, "must be a tensor");
  return t;
}

Tensor Args::checked(const char* name, std::initializer_list<DType> dtypes, const int64_t* shape, int rank) const {
  const Tensor& t = peek(name);
  bool ok = std::find(dtypes.begin(), dtypes.end(), t.dtype) != dtypes.end() && t.rank == rank;
  for (int i = 0; ok && i < rank; ++i) ok = shape[i] < 0 || shape[i] == t.shape[i];
  if (!ok) throw OpError(name, "must be " + dtype_list(dtypes) + shape_list(shape, rank) + ", is " + t.describe());
  return t;
}

Tensor Args::tensor(const char* name, std::initializer_list<DType> dtypes,
                    std::initializer_list<int64_t> shape) const {
  return checked(name, dtypes, shape.begin(), static_cast<int>(shape.size()));
}

Tensor Args::shaped(const char* name, std::initializer_list<DType> dtypes, const Tensor& like) const {
  return checked(name, dtypes, like.shape, like.rank);
}

Tensor Args::optional(const char* name, std::initializer_list<DType> dtypes,
                      std::initializer_list<int64_t> shape) const {
  return tensors_[index_of(name)].storage ? tensor(name, dtypes, shape) : Tensor{};
}

Tensor Args::dense(const char* name, std::initializer_list<DType> dtypes, std::initializer_list<int64_t> shape) const {
  Tensor t = tensor(name, dtypes, shape);
  if (!t.contiguous()) throw OpError(name, "must be contiguous, is a strided view " + t.describe());
  return t;
}

int64_t Args::integer(const char* name, int64_t low, int64_t high) const {
  const double v = numbers_[index_of(name)];
  if (!(v >= static_cast<double>(low) && v <= static_cast<double>(high)) || v != std::floor(v))
    throw OpError(name, "must be an integer from " + std::to_string(low) + " to " + std::to_string(high) + ", is " +
                            std::to_string(v));
  return static_cast<int64_t>(v);
}

double Args::number(const char* name) const {
  const double v = numbers_[index_of(name)];
  if (!std::isfinite(v)) throw OpError(name, "must be finite");
  return v;
}

std::string Args::describe() const {
  std::string s;
  for (size_t i = 0; i < specs_->size(); ++i) {
    if (i > 0) s += ", ";
    s += std::string((*specs_)[i].name) + " ";
    if (tensors_[i].storage) s += tensors_[i].describe();
    else s += (*specs_)[i].kind == ArgKind::number ? std::to_string(numbers_[i]) : "null";
  }
  return s;
}

void Args::may_alias(const char* written, const char* other) const {
  aliases_.emplace_back(index_of(written), index_of(other));
}

void Args::check_overlaps() const {
  for (size_t w = 0; w < specs_->size(); ++w) {
    const ArgKind kind = (*specs_)[w].kind;
    if (kind != ArgKind::out && kind != ArgKind::inout) continue;
    for (size_t o = 0; o < specs_->size(); ++o) {
      if (o == w || !tensors_[o].storage || !overlap(tensors_[w], tensors_[o])) continue;
      const bool allowed = std::find(aliases_.begin(), aliases_.end(), std::pair(w, o)) != aliases_.end();
      if (allowed && same(tensors_[w], tensors_[o])) continue;
      throw OpError((*specs_)[w].name, std::string("overlaps ") + (*specs_)[o].name);
    }
  }
}

}  // namespace edgewise
