// The byte order of any page on CUDA, element by element: for kv_pack and kv_unpack.
#pragma once

#include "cuda/kv_gqa_layout.cuh"
#include "cuda/kv_mla_layout.cuh"

namespace edgewise::cuda {

struct KvOrder {
  bool is_mla;
  MlaPage mla;
  GqaOrder gqa;

  explicit KvOrder(const KvLayout& layout) : is_mla(layout.vectors == 1), mla(mla_page(layout)), gqa(layout) {}
  // Byte offset of an element within its page.
  __device__ int64_t offset(int vector, int token, int column) const {
    return is_mla ? mla.offset(token, column) : gqa.offset(vector, token, column * mla.element_bytes);
  }
};

}  // namespace edgewise::cuda
