// kv_pack and kv_unpack: canonical rows to and from pages, byte for byte. Bytes: twice those of the rows. They run when
// pages travel between nodes, never in a step, so elements are moved one by one.
#pragma once

#include "core/kv_rows.h"
#include "cuda/kv_order.cuh"
#include "cuda/launch.h"

namespace edgewise::cuda {

struct KvCopyArgs {
  uint8_t *rows, *pool;
  float* scales;  // null: the format has none
  const int32_t* slots;
  KvOrder order;
  int vectors, dim, element_bytes;
  int64_t row_bytes, page_bytes, pages;
};

// One block per token.
template <bool kPack>
__global__ void kv_copy_kernel(KvCopyArgs p, Fault fault) {
  wait_for_previous_kernel();
  const int64_t token = blockIdx.x;
  const int32_t slot = p.slots[token];
  if (slot < 0 || slot >= p.pages * kPageTokens) {
    if (threadIdx.x == 0) raise(fault, FaultCode::bad_index, slot);
    return;
  }
  const int64_t page = slot / kPageTokens;
  uint8_t* row = p.rows + token * p.row_bytes;
  for (int i = threadIdx.x; i < p.vectors * p.dim; i += blockDim.x) {
    uint8_t* inside = p.pool + page * p.page_bytes + p.order.offset(i / p.dim, slot % kPageTokens, i % p.dim);
    uint8_t* outside = row + static_cast<int64_t>(i) * p.element_bytes;
    for (int b = 0; b < p.element_bytes; ++b) kPack ? inside[b] = outside[b] : outside[b] = inside[b];
  }
  if (!p.scales) return;
  // The scales of a row need not be aligned.
  for (int i = threadIdx.x; i < 4 * p.vectors; i += blockDim.x) {
    uint8_t* inside = reinterpret_cast<uint8_t*>(p.scales + static_cast<int64_t>(slot) * p.vectors) + i;
    uint8_t* outside = row + static_cast<int64_t>(p.vectors) * p.dim * p.element_bytes + i;
    kPack ? *inside = *outside : *outside = *inside;
  }
}

template <bool kPack>
void kv_copy(const KvCopy& p, Context& context) {
  const KvLayout& layout = p.pool.layout;
  const KvCopyArgs args{p.rows.data<uint8_t>(),
                        p.pool.bytes.data<uint8_t>(),
                        layout.scaled_by_token() ? p.pool.scales.data<float>() : nullptr,
                        p.slots.data<int32_t>(),
                        KvOrder(layout),
                        layout.vectors,
                        static_cast<int>(layout.dim),
                        layout.element_bytes(),
                        layout.row_bytes(),
                        layout.page_bytes(),
                        p.pool.pages()};
  const Grid grid{.blocks = static_cast<unsigned>(p.rows.shape[0]), .threads = 256, .dependent = true};
  launch(context, kv_copy_kernel<kPack>, grid, args, fault_of(context));
}

}  // namespace edgewise::cuda
