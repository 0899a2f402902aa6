// A thread per record, over a grid that does not depend on their number: a graph replays it. A step that only decodes
// has one record for every 64th row or so, and reads 32 bytes when it has none.
#include "cuda/launch.h"
#include "ops/tag_update/op.h"

namespace edgewise::cuda {
namespace {

constexpr int kThreads = 128, kBlocks = 16;

struct Sides {
  int32_t *pages, *expected, *slots;
  int64_t page_count, slot_count, max_pages;
};

__device__ inline void store8(int32_t* to, int4 low, int4 high) {
  reinterpret_cast<int4*>(to)[0] = low;
  reinterpret_cast<int4*>(to)[1] = high;
}

__device__ inline bool within(int32_t index, int64_t size, Fault fault) {
  if (index >= 0 && index < size) return true;
  raise(fault, FaultCode::bad_index, index);
  return false;
}

__device__ void apply(const int32_t* record, uint64_t secret, const Sides& s, Fault fault) {
  const int32_t kind = record[0];
  if (kind == kTagIssue || kind == kTagRetire) {
    const int32_t page = record[1], generation = record[2];
    if (!within(page, s.page_count, fault)) return;
    const bool issued = kind == kTagIssue;
    const uint64_t tag = issued ? page_tag(secret, page, generation, tag_words(record[3], record[4])) : 0;
    store8(s.pages + int64_t{page} * kTagPageWords,
           make_int4(static_cast<int32_t>(tag), static_cast<int32_t>(tag >> 32), generation, issued ? record[3] : 0),
           make_int4(0, 0, 0, 0));
  } else if (kind == kTagBegin) {
    if (!within(record[1], s.slot_count, fault)) return;
    *reinterpret_cast<int4*>(s.slots + int64_t{record[1]} * kTagSlotWords) = make_int4(record[2], 0, 0, 0);
  } else if (kind == kTagBind) {
    const int32_t page = record[3], generation = record[4];
    if (!within(record[1], s.slot_count, fault) || !within(record[2], s.max_pages, fault) ||
        !within(page, s.page_count, fault))
      return;
    const uint64_t tag = page_tag(secret, page, generation, tag_words(record[5], record[6]));
    store8(s.expected + (record[1] * s.max_pages + record[2]) * kTagExpectedWords,
           make_int4(page, static_cast<int32_t>(tag), static_cast<int32_t>(tag >> 32), generation),
           make_int4(record[5], record[7], 0, 0));
  } else if (kind != kTagNothing) {
    raise(fault, FaultCode::bad_index, kind);
  }
}

__global__ void tag_update_kernel(const int32_t* updates, int64_t room, const int32_t* secret, Sides sides, Fault fault) {
  wait_for_previous_kernel();
  let_next_kernel_start();
  const int32_t count = updates[0];
  if (count < 0 || count >= room) {
    if (blockIdx.x == 0 && threadIdx.x == 0) raise(fault, FaultCode::bad_index, count);
    return;
  }
  for (int32_t i = blockIdx.x * kThreads + threadIdx.x; i < count; i += kThreads * kBlocks)
    apply(updates + (i + int64_t{1}) * kTagUpdateWords, tag_words(secret[0], secret[1]), sides, fault);
}

void tag_update_cuda(const TagUpdateArgs& p, Context& context) {
  const Sides sides{p.pages.data<int32_t>(), p.expected.data<int32_t>(), p.slots.data<int32_t>(),
                    p.pages.shape[0], p.slots.shape[0], p.expected.shape[1]};
  launch(context, tag_update_kernel, {.blocks = kBlocks, .threads = kThreads, .dependent = true},
         p.updates.data<int32_t>(), p.updates.shape[0] / kTagUpdateWords, p.secret.data<int32_t>(), sides,
         fault_of(context));
}

EDGEWISE_CUDA_KERNEL(TagUpdateArgs, tag_update_cuda);

}  // namespace
}  // namespace edgewise::cuda
