#include "cuda/cublaslt.h"

#include <cuda_runtime.h>

#ifdef EDGEWISE_CUDA_EMULATED

namespace edgewise::cuda {
std::string cublaslt_unavailable() { return "the GPU is emulated"; }
bool cublaslt_product(Context&, const DenseProduct&) { return false; }
}  // namespace edgewise::cuda

#else

#include <dlfcn.h>

#include <array>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>

#include "cuda/status.h"

namespace edgewise::cuda {

namespace {

// The C interface, as far as it is used (cublasLt.h of CUDA 12 and 13; NVIDIA keeps these numbers).
using Opaque = void*;
struct Algorithm {
  uint64_t data[8];
};
struct Heuristic {
  Algorithm algorithm;
  size_t workspace;
  int status;
  float waves;
  int reserved[4];
};
static_assert(sizeof(Heuristic) == 96);
enum { kF32 = 0, kBf16 = 14 };                                        // cudaDataType_t
enum { kComputeF32 = 68 };                                            // cublasComputeType_t
enum { kTransposed = 1 };                                             // cublasOperation_t
enum { kDescTransA = 3, kDescEpilogue = 7, kDescBiasPointer = 8 };    // cublasLtMatmulDescAttributes_t
enum { kEpilogueBias = 4 };                                           // cublasLtEpilogue_t
enum { kPreferWorkspace = 1, kPreferReductions = 3, kPreferAlignA = 5 };  // cublasLtMatmulPreferenceAttributes_t, A B C D
enum { kReductionInF32 = 2 };  // cublasLtReductionScheme_t: no other kind of split-K, so that every run has the same bits

constexpr size_t kWorkspace = size_t{32} << 20;  // what NVIDIA recommends for Hopper
constexpr size_t kPlansKept = 1024;

struct Library {
  int (*create)(Opaque*) = nullptr;
  int (*desc_create)(Opaque*, int compute, int scale) = nullptr;
  int (*desc_set)(Opaque, int attribute, const void*, size_t) = nullptr;
  int (*desc_destroy)(Opaque) = nullptr;
  int (*layout_create)(Opaque*, int type, uint64_t rows, uint64_t columns, int64_t leading) = nullptr;
  int (*layout_destroy)(Opaque) = nullptr;
  int (*preference_create)(Opaque*) = nullptr;
  int (*preference_set)(Opaque, int attribute, const void*, size_t) = nullptr;
  int (*preference_destroy)(Opaque) = nullptr;
  int (*heuristic)(Opaque handle, Opaque desc, Opaque a, Opaque b, Opaque c, Opaque d, Opaque preference, int wanted, Heuristic*,
                   int* found) = nullptr;
  int (*matmul)(Opaque handle, Opaque desc, const void* alpha, const void* a, Opaque, const void* b, Opaque, const void* beta,
                const void* c, Opaque, void* d, Opaque, const Algorithm*, void* workspace, size_t, cudaStream_t) = nullptr;
  std::string missing;  // why it can't be used
};

template <class F>
void find(void* handle, const char* name, F* function, std::string* missing) {
  *function = reinterpret_cast<F>(dlsym(handle, name));
  if (!*function && missing->empty()) *missing = std::string("libcublasLt has no ") + name;
}

Library open_library() {
  Library l;
  void* handle = nullptr;
  std::string reasons;
  const char* chosen = std::getenv("EDGEWISE_CUBLASLT");
  for (const char* name : {chosen, "libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"}) {
    if (!name) continue;
    if ((handle = dlopen(name, RTLD_NOW | RTLD_LOCAL))) break;
    reasons += (reasons.empty() ? "" : "; ") + std::string(dlerror());
  }
  if (!handle) {
    l.missing = "cuBLASLt was not found: " + reasons;
    return l;
  }
  find(handle, "cublasLtCreate", &l.create, &l.missing);
  find(handle, "cublasLtMatmulDescCreate", &l.desc_create, &l.missing);
  find(handle, "cublasLtMatmulDescSetAttribute", &l.desc_set, &l.missing);
  find(handle, "cublasLtMatmulDescDestroy", &l.desc_destroy, &l.missing);
  find(handle, "cublasLtMatrixLayoutCreate", &l.layout_create, &l.missing);
  find(handle, "cublasLtMatrixLayoutDestroy", &l.layout_destroy, &l.missing);
  find(handle, "cublasLtMatmulPreferenceCreate", &l.preference_create, &l.missing);
  find(handle, "cublasLtMatmulPreferenceSetAttribute", &l.preference_set, &l.missing);
  find(handle, "cublasLtMatmulPreferenceDestroy", &l.preference_destroy, &l.missing);
  find(handle, "cublasLtMatmulAlgoGetHeuristic", &l.heuristic, &l.missing);
  find(handle, "cublasLtMatmul", &l.matmul, &l.missing);
  return l;
}

const Library& library() {
  static const Library l = open_library();
  return l;
}

std::string choice() {
  const char* value = std::getenv("EDGEWISE_CUDA_GEMM");
  return value ? value : "";
}

void check(int status, const char* what) {
  if (status != 0) throw std::runtime_error(std::string("cuBLASLt: ") + what + ": status " + std::to_string(status));
}

// Ends what cuBLASLt made.
struct Handle {
  Opaque value = nullptr;
  int (*destroy)(Opaque) = nullptr;
  Handle() = default;
  Handle(const Handle&) = delete;
  ~Handle() {
    if (value) destroy(value);
  }
};

// Row-major out = x . w^T is column-major out^T = w . x^T: "A" is w, stored as its transpose.
struct Plan {
  Handle desc, w, x, out;
  Algorithm algorithm;
  size_t workspace = 0;
  bool usable = false;
};

using GemmShape = std::array<int64_t, 7>;  // m, n, k, strides, out32, bias

void make_layout(const Library& l, Handle* layout, int type, int64_t rows, int64_t columns, int64_t leading) {
  layout->destroy = l.layout_destroy;
  check(l.layout_create(&layout->value, type, static_cast<uint64_t>(rows), static_cast<uint64_t>(columns), leading), "layout");
}

void make_plan(const Library& l, Opaque handle, const DenseProduct& p, Plan* plan) {
  plan->desc.destroy = l.desc_destroy;
  check(l.desc_create(&plan->desc.value, kComputeF32, kF32), "matmul");
  const int transposed = kTransposed, epilogue = kEpilogueBias;
  check(l.desc_set(plan->desc.value, kDescTransA, &transposed, sizeof transposed), "transpose");
  if (p.bias) {
    check(l.desc_set(plan->desc.value, kDescEpilogue, &epilogue, sizeof epilogue), "epilogue");
    check(l.desc_set(plan->desc.value, kDescBiasPointer, &p.bias, sizeof p.bias), "bias");
  }
  make_layout(l, &plan->w, kBf16, p.k, p.n, p.k);
  make_layout(l, &plan->x, kBf16, p.k, p.m, p.x_stride);
  make_layout(l, &plan->out, p.out32 ? kF32 : kBf16, p.n, p.m, p.out_stride);
  Handle preference;
  preference.destroy = l.preference_destroy;
  check(l.preference_create(&preference.value), "preference");
  const uint64_t workspace = kWorkspace;
  const uint32_t reductions = kReductionInF32, alignment = 16;
  check(l.preference_set(preference.value, kPreferWorkspace, &workspace, sizeof workspace), "workspace");
  check(l.preference_set(preference.value, kPreferReductions, &reductions, sizeof reductions), "reductions");
  for (int i = 0; i < 4; ++i)
    check(l.preference_set(preference.value, kPreferAlignA + i, &alignment, sizeof alignment), "alignment");
  Heuristic best{};
  int found = 0;
  const int status = l.heuristic(handle, plan->desc.value, plan->w.value, plan->x.value, plan->out.value, plan->out.value,
                                 preference.value, 1, &best, &found);
  if (status != 0 || found < 1 || best.status != 0) return;
  plan->algorithm = best.algorithm;
  plan->workspace = best.workspace;
  plan->usable = true;
}

// Of one GPU. Lives as long as the process: the library must not be torn down after the driver.
struct Instance {
  Opaque handle = nullptr;
  std::map<GemmShape, std::unique_ptr<Plan>> plans;
};

bool aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

}  // namespace

std::string cublaslt_unavailable() {
  if (choice() == "own") return "EDGEWISE_CUDA_GEMM=own";
  return library().missing;
}

bool cublaslt_product(Context& context, const DenseProduct& p) {
  static const std::string wanted = choice(), unavailable = cublaslt_unavailable();
  if (!unavailable.empty()) {
    if (wanted == "cublaslt") throw std::runtime_error("EDGEWISE_CUDA_GEMM=cublaslt: " + unavailable);
    return false;
  }
  const int64_t out_bytes = p.out32 ? 4 : 2;
  if (!aligned(p.x) || !aligned(p.w) || !aligned(p.out) || !aligned(p.bias) || p.k % 8 != 0 || p.x_stride % 8 != 0 ||
      p.out_stride * out_bytes % 16 != 0)
    return false;

  static std::mutex mutex;
  static auto& instances = *new std::map<int, Instance>;
  const std::lock_guard lock(mutex);
  const Library& l = library();
  int gpu = 0;
  cuda_check(cudaGetDevice(&gpu), "cudaGetDevice");
  Instance& instance = instances[gpu];
  if (!instance.handle) check(l.create(&instance.handle), "create");
  if (instance.plans.size() >= kPlansKept) instance.plans.clear();
  std::unique_ptr<Plan>& plan = instance.plans[{p.m, p.n, p.k, p.x_stride, p.out_stride, p.out32, p.bias != nullptr}];
  if (!plan) {
    auto made = std::make_unique<Plan>();
    make_plan(l, instance.handle, p, made.get());
    plan = std::move(made);
  }
  if (!plan->usable) return false;
  if (p.bias) check(l.desc_set(plan->desc.value, kDescBiasPointer, &p.bias, sizeof p.bias), "bias");
  const float one = 1, zero = 0;
  void* workspace = context.scratch(kWorkspace);
  check(l.matmul(instance.handle, plan->desc.value, &one, p.w, plan->w.value, p.x, plan->x.value, &zero, p.out, plan->out.value,
                 p.out, plan->out.value, &plan->algorithm, workspace, kWorkspace, static_cast<cudaStream_t>(context.stream())),
        "product");
  return true;
}

}  // namespace edgewise::cuda

#endif
