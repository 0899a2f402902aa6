// Operators: how one describes its arguments, checks them, and registers a kernel per backend.
//
// An op is a folder native/ops/<op>/ with
//   op.h          a params struct P (the only argument of every kernel) and `P parse(Args&)`, which checks
//                 dtypes, shapes and bounds and throws OpError naming the argument
//   reference.cc  the obvious kernel, and EDGEWISE_OP(name, P, parse, {args...})
//   cpu.cc        the fast kernel; compiled once per instruction set (portable, avx2, avx512)
//   cuda.cu       the CUDA kernel
// The addon binds any registered op; gpu-node/native/ops.ts has one line per op with the same argument list.
#pragma once

#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace edgewise {

enum class Backend : uint8_t { reference, cpu, cuda };

// in, out, inout: a tensor. optional: a tensor or null. number: a JS number (integers are checked by Args::integer).
enum class ArgKind : uint8_t { in, out, inout, optional, number };

struct ArgSpec {
  const char* name;
  ArgKind kind;
};

// What is wrong with a call: becomes the JS error "<op>: <argument>: <what>".
struct OpError : std::runtime_error {
  OpError(const std::string& argument, const std::string& what) : std::runtime_error(argument + ": " + what) {}
};

// The arguments of one call, by name. Tensor getters check dtype and shape in one line:
//   args.tensor("x", {DType::f32, DType::bf16}, {T, K})  where a dimension of -1 accepts any size.
class Args {
 public:
  Args(const std::vector<ArgSpec>& specs, std::vector<Tensor> tensors, std::vector<double> numbers);

  Tensor tensor(const char* name, std::initializer_list<DType> dtypes, std::initializer_list<int64_t> shape) const;
  // An optional argument: `storage` is null when it was not given.
  Tensor optional(const char* name, std::initializer_list<DType> dtypes, std::initializer_list<int64_t> shape) const;
  // As `tensor`, and every dimension contiguous.
  Tensor dense(const char* name, std::initializer_list<DType> dtypes, std::initializer_list<int64_t> shape) const;
  // As `tensor`, with the shape of `like`, of any rank.
  Tensor shaped(const char* name, std::initializer_list<DType> dtypes, const Tensor& like) const;
  // A required tensor before any check of its dtype and shape: for ops that take several ranks.
  const Tensor& peek(const char* name) const;
  int64_t integer(const char* name, int64_t low, int64_t high) const;
  double number(const char* name) const;  // finite

  // What an op writes must not overlap any other argument. This allows `written` to be exactly the tensor `other`
  // (same address, dtype, shape and strides), for elementwise ops; partial overlap stays an error.
  void may_alias(const char* written, const char* other) const;
  // Called after parse().
  void check_overlaps() const;
  // "x bf16[4, 256], eps 0.000001", for messages.
  std::string describe() const;

 private:
  size_t index_of(const char* name) const;
  Tensor checked(const char* name, std::initializer_list<DType> dtypes, const int64_t* shape, int rank) const;
  const std::vector<ArgSpec>* specs_;
  std::vector<Tensor> tensors_;   // one per spec; numbers hold an empty tensor
  std::vector<double> numbers_;   // one per spec; tensors hold 0
  mutable std::vector<std::pair<size_t, size_t>> aliases_;
};

// What a kernel may use beside its params.
class Context {
 public:
  virtual ~Context() = default;
  // Calls fn(begin, end, worker) over [0, n) in pieces of `grain`, the last one shorter; worker < workers(). Not nested.
  virtual void parallel_for(int64_t n, int64_t grain, const std::function<void(int64_t, int64_t, int)>& fn) = 0;
  virtual int workers() const = 0;
  // Uninitialised bytes, valid until the kernel returns; 64-byte aligned. One region per call of scratch(), which the
  // kernel calls outside parallel_for.
  virtual void* scratch(size_t bytes) = 0;
  // CUDA: the stream, and where kernels report bad input (cuda/device_code.cuh). Null elsewhere.
  virtual void* stream() const { return nullptr; }
  virtual void* fault_words() const { return nullptr; }
  virtual uint32_t op_index() const { return 0; }
};

using Launch = std::function<void(Context&)>;

// Levels of the CPU backend, each with the instructions of the one before it.
enum class Isa : uint8_t { portable, avx2, avx512 };
constexpr int kIsaLevels = 3;
const char* isa_name(Isa isa);
// The best level that this machine has and that is not above the limit set by EDGEWISE_CPU_ISA=portable|avx2|avx512.
Isa cpu_isa();

// Where an op is to run: the backend, and for the CPU the highest instruction set to use.
struct Target {
  Backend backend;
  Isa isa;
};

// A registered op, type-erased. bind() parses the arguments and returns the closure that runs the kernel.
struct OpEntry {
  std::string name;
  std::vector<ArgSpec> args;
  std::function<Launch(Target, Args&)> bind;
  std::function<bool(Backend)> has;  // a kernel of its own
};

// All ops, sorted by name; kernels attach to them from any translation unit, in any order.
const std::vector<OpEntry>& op_registry();
void register_op(OpEntry entry);

template <class P>
struct Kernels {
  using Fn = void (*)(const P&, Context&);
  Fn reference = nullptr;
  Fn cpu[kIsaLevels] = {};
  Fn cuda = nullptr;
  static Kernels& instance() {
    static Kernels k;
    return k;
  }
  // The CPU backend falls back to a lower level, then to the reference, for an op without a fast kernel.
  Fn pick(Target target) const {
    if (target.backend == Backend::cuda) return cuda;
    if (target.backend == Backend::cpu)
      for (int i = static_cast<int>(target.isa); i >= 0; --i)
        if (cpu[i]) return cpu[i];
    return reference;
  }
  bool has(Backend b) const {
    if (b == Backend::cuda) return cuda != nullptr;
    if (b == Backend::cpu) return cpu[0] || cpu[1] || cpu[2];
    return reference != nullptr;
  }
};

template <class P>
struct OpRegistrar {
  OpRegistrar(const char* name, P (*parse)(const Args&), typename Kernels<P>::Fn reference, std::vector<ArgSpec> args) {
    Kernels<P>::instance().reference = reference;
    auto bind = [parse](Target target, Args& args) -> Launch {
      P params = parse(args);
      args.check_overlaps();
      auto kernel = Kernels<P>::instance().pick(target);
      if (!kernel) throw OpError("backend", "no kernel for this backend");
      return [params, kernel](Context& context) { kernel(params, context); };
    };
    register_op({name, std::move(args), bind, [](Backend b) { return Kernels<P>::instance().has(b); }});
  }
};

}  // namespace edgewise

#define EDGEWISE_CONCAT_(a, b) a##b
#define EDGEWISE_CONCAT(a, b) EDGEWISE_CONCAT_(a, b)

// In reference.cc: EDGEWISE_OP(rms_norm, RmsNorm, parse_rms_norm, rms_norm_reference, {{"x", ArgKind::in}, ...});
#define EDGEWISE_OP(name, P, parse, reference, ...) \
  static const ::edgewise::OpRegistrar<P> edgewise_op_##name(#name, parse, reference, __VA_ARGS__)

// In cpu.cc, which CMake compiles three times with EDGEWISE_ISA set to portable, avx2 or avx512.
// Put everything of the file into `namespace edgewise::EDGEWISE_ISA { namespace { ... } }`.
#define EDGEWISE_CPU_KERNEL(P, fn)                                                             \
  static const int EDGEWISE_CONCAT(edgewise_cpu_kernel_, __COUNTER__) = [] {                      \
    ::edgewise::Kernels<P>::instance().cpu[static_cast<int>(::edgewise::Isa::EDGEWISE_ISA)] = fn; \
    return 0;                                                                                  \
  }()

// In cuda.cu.
#define EDGEWISE_CUDA_KERNEL(P, fn)                                                \
  static const int EDGEWISE_CONCAT(edgewise_cuda_kernel_, __COUNTER__) = [] {         \
    ::edgewise::Kernels<P>::instance().cuda = fn;                                  \
    return 0;                                                                      \
  }()
