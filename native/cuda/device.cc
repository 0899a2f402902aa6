#include "cuda/device.h"

#include <cstdlib>
#include <cstring>
#include <utility>

#include "cuda/counters.h"
#include "cuda/status.h"

namespace edgewise::cuda {

namespace {

constexpr int kMajor = 9, kMinor = 0;  // sm_90a: Hopper, and only Hopper
constexpr size_t kMarksKept = 256;
constexpr size_t kFaultBytes = 2 * sizeof(uint32_t);

const char* fault_text(uint32_t code) {
  switch (code) {
    case 1: return "index out of range";
    case 2: return "NaN in the input";
    default: return "bad input";
  }
}

// Elements from the first to the last of a strided tensor, gaps included.
int64_t span(const Tensor& t) {
  if (t.elements() == 0) return 0;
  int64_t last = 0;
  for (int i = 0; i < t.rank; ++i) last += (t.shape[i] - 1) * t.stride[i];
  return last + 1;
}

}  // namespace

bool emulated() {
#ifdef EDGEWISE_CUDA_EMULATED
  return true;
#else
  return false;
#endif
}

std::string unavailable() {
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) {
    cudaGetLastError();
    return std::string("no usable NVIDIA driver or GPU: ") + cudaGetErrorString(error);
  }
  if (count == 0) return "the NVIDIA driver reports no GPU";
  int major = 0, minor = 0;
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0);
  cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0);
  if (major != kMajor || minor != kMinor)
    return "the GPU has compute capability " + std::to_string(major) + "." + std::to_string(minor) +
           "; the kernels are built for 9.0 (H100, H200)";
  return "";
}

std::shared_ptr<Device> open_device(const DeviceConfig& config) { return std::make_shared<CudaDevice>(config); }

// What a kernel's launch may use.
class CudaDevice::OpContext : public Context {
 public:
  OpContext(CudaDevice& device, const OpEntry& op) : device_(device), index_(&op - op_registry().data()) {}
  void parallel_for(int64_t, int64_t, const std::function<void(int64_t, int64_t, int)>&) override {
    throw std::logic_error("parallel_for: not on a GPU");
  }
  int workers() const override { return 1; }
  void* scratch(size_t bytes) override { return device_.scratch_->take(bytes); }
  void* stream() const override { return device_.stream_; }
  void* fault_words() const override { return device_.fault_words_; }
  uint32_t op_index() const override { return static_cast<uint32_t>(index_); }

 private:
  CudaDevice& device_;
  std::ptrdiff_t index_;
};

CudaDevice::CudaDevice(const DeviceConfig& config) : Device(config) {
  if (const std::string reason = unavailable(); !reason.empty()) throw std::runtime_error(reason);
  int count = 0;
  cuda_check(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
  if (config.gpu >= count)
    throw std::runtime_error("there is no GPU " + std::to_string(config.gpu) + ", only " + std::to_string(count));
  use_gpu();
  cudaDeviceProp properties;
  cuda_check(cudaGetDeviceProperties(&properties, config.gpu), "cudaGetDeviceProperties");
  name_ = properties.name;
  const char* sync = std::getenv("EDGEWISE_CUDA_SYNC");
  synchronous_ = sync && std::strcmp(sync, "1") == 0;
  cuda_check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream");
  allocator_ = std::make_unique<Allocator>(stream_);
  staging_ = std::make_unique<Staging>(stream_);
  pinned_ = std::make_unique<PinnedPool>();
  scratch_ = std::make_unique<Scratch>();
  cuda_check(cudaMalloc(reinterpret_cast<void**>(&fault_words_), kDeviceWordBytes), "fault words");
  cuda_check(cudaMemsetAsync(fault_words_, 0, kDeviceWordBytes, stream_), "fault words");
}

void CudaDevice::use_gpu() const { cuda_check(cudaSetDevice(config_.gpu), "cudaSetDevice"); }

std::shared_ptr<Storage> CudaDevice::uninitialised(size_t bytes) {
  auto memory = allocator_->allocate(bytes);
  auto storage = std::make_shared<Storage>(Storage{memory.get(), bytes, memory});
  adopt_counted(storage);
  return storage;
}

std::shared_ptr<Storage> CudaDevice::allocate(size_t bytes) {
  auto storage = uninitialised(bytes);
  if (bytes > 0) cuda_check(cudaMemsetAsync(storage->data, 0, bytes, stream_), "alloc");
  return storage;
}

std::shared_ptr<Storage> CudaDevice::from_host(const void* data, size_t bytes) {
  auto storage = uninitialised(bytes);
  staging_->upload(storage->data, data, bytes);
  return storage;
}

Tensor CudaDevice::from_file(const std::shared_ptr<Storage>& file, size_t offset, DType dtype, const Shape& shape) {
  const Tensor mapped = make_tensor(file, offset, dtype, shape);
  return make_tensor(from_host(mapped.raw(), checked_bytes(dtype, shape)), 0, dtype, shape);
}

void CudaDevice::enqueue_upload(const Tensor& target, const void* data, size_t bytes) {
  staging_->upload(target.raw(), data, bytes);
}

void CudaDevice::run(const OpEntry& op, Args& args) {
  Launch launch = op.bind({Backend::cuda, config_.isa}, args);
  try {
    run_now(op, launch);
    if (synchronous_ && !capture_) cuda_check(cudaStreamSynchronize(stream_), "EDGEWISE_CUDA_SYNC");
  } catch (const std::exception& e) {
    throw std::runtime_error(std::string(e.what()) + ", for " + args.describe());
  }
  if (capture_) capture_->launches_kept.push_back(std::move(launch));
  else ++launches_;
}

void CudaDevice::run_now(const OpEntry& op, const Launch& launch) {
  OpContext context(*this, op);
  scratch_->begin_op();
  launch(context);
}

uint64_t CudaDevice::download(const Tensor& source) {
  const auto bytes = static_cast<size_t>(span(source)) * dtype_size(source.dtype);
  Download d{pinned_->take(bytes), source};
  d.layout.storage = std::make_shared<Storage>(Storage{d.block.memory, bytes, nullptr});
  d.layout.byte_offset = 0;
  if (bytes > 0)
    cuda_check(cudaMemcpyAsync(d.block.memory, source.raw(), bytes, cudaMemcpyDeviceToHost, stream_), "download");
  const uint64_t ticket = record();
  downloads_[ticket] = std::move(d);
  return ticket;
}

std::vector<char> CudaDevice::receive(uint64_t ticket) {
  auto node = downloads_.extract(ticket);
  if (node.empty()) throw std::runtime_error("receive: no download has the ticket " + std::to_string(ticket));
  const Download& d = node.mapped();
  try {
    wait(ticket);
  } catch (...) {
    pinned_->give_back(d.block);
    throw;
  }
  std::vector<char> out(static_cast<size_t>(d.layout.elements()) * dtype_size(d.layout.dtype));
  copy_out(d.layout, out.data());
  pinned_->give_back(d.block);
  return out;
}

void CudaDevice::read(const Tensor& source, void* out) {
  const std::vector<char> bytes = receive(download(source));
  if (!bytes.empty()) std::memcpy(out, bytes.data(), bytes.size());
}

void CudaDevice::begin_capture() {
  cuda_check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed), "capture");
  capture_ = std::make_shared<CudaGraph>();
}

std::shared_ptr<const Graph> CudaDevice::end_capture() {
  auto captured = std::exchange(capture_, nullptr);
  cudaGraph_t graph = nullptr;
  cuda_check(cudaStreamEndCapture(stream_, &graph), "capture");
  const cudaError_t error = cudaGraphInstantiate(&captured->exec, graph, 0);
  cudaGraphDestroy(graph);
  cuda_check(error, "capture");
  return captured;
}

void CudaDevice::abandon_capture() noexcept {
  if (!std::exchange(capture_, nullptr)) return;
  cudaGraph_t graph = nullptr;
  if (cudaStreamEndCapture(stream_, &graph) == cudaSuccess) cudaGraphDestroy(graph);
  else cudaGetLastError();
}

CudaDevice::CudaGraph::~CudaGraph() {
  if (exec) cudaGraphExecDestroy(exec);
}

void CudaDevice::replay(const std::shared_ptr<const Graph>& graph) {
  cuda_check(cudaGraphLaunch(static_cast<const CudaGraph&>(*graph).exec, stream_), "replay");
  launches_ += graph->launches();
}

uint64_t CudaDevice::record() {
  if (marks_.size() >= kMarksKept) {
    // The oldest is long done, or this waits for it.
    Mark& oldest = marks_.front();
    cuda_check(cudaEventSynchronize(oldest.event), "record");
    free_events_.push_back(oldest.event);
    pinned_->give_back(oldest.fault);
    marks_.pop_front();
  }
  Mark mark{++last_ticket_, nullptr, pinned_->take(kFaultBytes)};
  if (free_events_.empty()) {
    cuda_check(cudaEventCreateWithFlags(&mark.event, cudaEventDisableTiming), "event");
  } else {
    mark.event = free_events_.back();
    free_events_.pop_back();
  }
  cuda_check(cudaMemcpyAsync(mark.fault.memory, fault_words_, kFaultBytes, cudaMemcpyDeviceToHost, stream_), "record");
  cuda_check(cudaEventRecord(mark.event, stream_), "record");
  marks_.push_back(mark);
  return mark.ticket;
}

void CudaDevice::wait(uint64_t ticket) {
  if (ticket > last_ticket_) throw std::runtime_error("wait: no such ticket " + std::to_string(ticket));
  for (const Mark& mark : marks_) {
    if (mark.ticket != ticket) continue;
    cuda_check(cudaEventSynchronize(mark.event), "the GPU has failed");
    if (*static_cast<const uint32_t*>(mark.fault.memory) != 0) throw_fault(mark);
    allocator_->collect();
    return;
  }
}

// Marks that were enqueued since hold the same words, and throw them too; later ones start clean.
void CudaDevice::throw_fault(const Mark& mark) {
  cuda_check(cudaMemsetAsync(fault_words_, 0, kFaultBytes, stream_), "fault words");
  const auto* words = static_cast<const uint32_t*>(mark.fault.memory);
  const std::vector<OpEntry>& ops = op_registry();
  const uint32_t op = words[0] >> 8;
  throw std::runtime_error((op < ops.size() ? ops[op].name : "op") + ": " + fault_text(words[0] & 0xffu) + ": " +
                           std::to_string(static_cast<int32_t>(words[1])));
}

uint64_t CudaDevice::timestamp() {
  cudaEvent_t event = nullptr;
  cuda_check(cudaEventCreateWithFlags(&event, 0), "event");
  cuda_check(cudaEventRecord(event, stream_), "timestamp");
  timestamps_[++last_ticket_] = event;
  return last_ticket_;
}

double CudaDevice::elapsed(uint64_t from, uint64_t to) {
  const auto a = timestamps_.find(from), b = timestamps_.find(to);
  if (a == timestamps_.end() || b == timestamps_.end()) throw std::runtime_error("elapsed: no such timestamp");
  float milliseconds = 0;
  cuda_check(cudaEventSynchronize(a->second), "the GPU has failed");
  cuda_check(cudaEventSynchronize(b->second), "the GPU has failed");
  cuda_check(cudaEventElapsedTime(&milliseconds, a->second, b->second), "elapsed");
  return milliseconds;
}

void CudaDevice::dispose() {
  if (!stream_) return;
  cudaSetDevice(config_.gpu);
  abandon_capture();
  cudaStreamSynchronize(stream_);
  for (Mark& mark : marks_) {
    cudaEventDestroy(mark.event);
    pinned_->give_back(mark.fault);
  }
  for (cudaEvent_t event : free_events_) cudaEventDestroy(event);
  for (auto& [ticket, event] : timestamps_) cudaEventDestroy(event);
  timestamps_.clear();
  for (auto& [ticket, d] : downloads_) pinned_->give_back(d.block);
  marks_.clear();
  free_events_.clear();
  downloads_.clear();
  empty_storages();
  allocator_->collect();
  cudaStreamSynchronize(stream_);
  cudaFree(fault_words_);
  scratch_.reset();
  pinned_.reset();
  staging_.reset();
  cudaStreamDestroy(std::exchange(stream_, nullptr));
}

}  // namespace edgewise::cuda
