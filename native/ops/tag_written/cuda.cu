#include "cuda/launch.h"
#include "ops/tag_written/op.h"

namespace edgewise::cuda {
namespace {

constexpr int kThreads = 128;

__global__ void tag_written_kernel(const int32_t* slots, int64_t tokens, int32_t* pages, int64_t page_count, Fault fault) {
  wait_for_previous_kernel();
  let_next_kernel_start();
  const int64_t t = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (t >= tokens || slots[t] == -1) return;
  if (slots[t] < -1 || slots[t] >= page_count * kPageTokens) return raise(fault, FaultCode::bad_index, slots[t]);
  if (!last_in_page(slots, t, tokens)) return;
  pages[slots[t] / kPageTokens * int64_t{kTagPageWords} + kTagPageWritten] = slots[t] % kPageTokens + 1;
}

void tag_written_cuda(const TagWritten& p, Context& context) {
  const Grid grid{.blocks = ceil_div(p.tokens, kThreads), .threads = kThreads, .dependent = true};
  launch(context, tag_written_kernel, grid, p.write_slots.data<int32_t>(), p.tokens, p.pages.data<int32_t>(),
         p.pages.shape[0], fault_of(context));
}

EDGEWISE_CUDA_KERNEL(TagWritten, tag_written_cuda);

}  // namespace
}  // namespace edgewise::cuda
