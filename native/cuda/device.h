// One NVIDIA GPU: a stream, its memory, CUDA graphs. Opened from the thread that uses it.
#pragma once

#include <deque>
#include <map>

#include "cuda/backend.h"
#include "cuda/memory.h"

namespace edgewise::cuda {

// A bad index or a NaN that a kernel finds is thrown by wait(), naming the op; everything enqueued up to that wait is void.
// An error of CUDA itself (an illegal address, say) is thrown by every call from then on: the device is lost.
// EDGEWISE_CUDA_SYNC=1 waits after every op, so that such an error names its op and the shapes.
class CudaDevice : public Device {
 public:
  explicit CudaDevice(const DeviceConfig& config);
  ~CudaDevice() override { dispose(); }

  std::string isa() const override { return name_; }
  bool disposed() const override { return !stream_; }
  bool capturing() const override { return capture_ != nullptr; }
  std::shared_ptr<Storage> allocate(size_t bytes) override;
  std::shared_ptr<Storage> from_host(const void* data, size_t bytes) override;
  Tensor from_file(const std::shared_ptr<Storage>& file, size_t offset, DType dtype, const Shape& shape) override;
  void run(const OpEntry& op, Args& args) override;
  void read(const Tensor& source, void* out) override;
  uint64_t download(const Tensor& source) override;
  std::vector<char> receive(uint64_t ticket) override;
  void begin_capture() override;
  std::shared_ptr<const Graph> end_capture() override;
  void abandon_capture() noexcept override;
  void replay(const std::shared_ptr<const Graph>& graph) override;
  uint64_t record() override;
  void wait(uint64_t ticket) override;
  uint64_t timestamp() override;
  double elapsed(uint64_t from, uint64_t to) override;
  void dispose() override;

 private:
  class OpContext;
  struct CudaGraph : Graph {
    cudaGraphExec_t exec = nullptr;
    std::vector<Launch> launches_kept;  // and with them the memory that the nodes use
    size_t launches() const override { return launches_kept.size(); }
    ~CudaGraph() override;
  };
  // A point of the stream, and the fault words as they were there.
  struct Mark {
    uint64_t ticket;
    cudaEvent_t event;
    PinnedPool::Block fault;
  };
  struct Download {
    PinnedPool::Block block;
    Tensor layout;  // over host memory that holds the source's bytes with its strides
  };

  std::shared_ptr<Storage> uninitialised(size_t bytes);
  void enqueue_upload(const Tensor& target, const void* data, size_t bytes) override;
  void run_now(const OpEntry& op, const Launch& launch);
  void use_gpu() const;
  void throw_fault(const Mark& mark);

  std::string name_;
  cudaStream_t stream_ = nullptr;
  std::unique_ptr<Allocator> allocator_;
  std::unique_ptr<Staging> staging_;
  std::unique_ptr<PinnedPool> pinned_;
  std::unique_ptr<Scratch> scratch_;
  uint32_t* fault_words_ = nullptr;
  bool synchronous_ = false;

  std::shared_ptr<CudaGraph> capture_;
  uint64_t last_ticket_ = 0;
  std::deque<Mark> marks_;
  std::vector<cudaEvent_t> free_events_;
  std::map<uint64_t, Download> downloads_;
  std::map<uint64_t, cudaEvent_t> timestamps_;
};

}  // namespace edgewise::cuda
