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
  int64_t integer(const char* name, int64_t low, int64_t high) const;
  double number(const char* name) const;

 private:
  const std::vector<ArgSpec>* specs_;
  std::vector<Tensor> tensors_;   // one per spec; numbers hold an empty tensor
  std::vector<double> numbers_;   // one per spec; tensors hold 0
};

// What a kernel may use beside its params.
class Context {
 public:
  virtual ~Context() = default;
  // Calls fn(begin, end, worker) over [0, n) in pieces of about `grain`; worker < workers().
  virtual void parallel_for(int64_t n, int64_t grain, const std::function<void(int64_t, int64_t, int)>& fn) = 0;
  virtual int workers() const = 0;
  // Uninitialised bytes, valid until the kernel returns; 64-byte aligned. One region per call of scratch().
  virtual void* scratch(size_t bytes) = 0;
  // The CUDA stream, or null.
  virtual void* stream() const = 0;
};

using Launch = std::function<void(Context&)>;

// A registered op, type-erased. bind() parses the arguments and returns the closure that runs the kernel.
struct OpEntry {
  std::string name;
  std::vector<ArgSpec> args;
  std::function<Launch(Backend, Args&)> bind;
};

// All ops by name; kernels attach to them from any translation unit, in any order.
const std::vector<OpEntry>& op_registry();
void register_op(OpEntry entry);

// Levels of the CPU backend. The best level that the machine has and that is not above the limit set by
// EDGEWISE_CPU_ISA=portable|avx2|avx512 is used.
enum class Isa : uint8_t { portable, avx2, avx512 };
Isa cpu_isa();

template <class P>
struct Kernels {
  using Fn = void (*)(const P&, Context&);
  Fn reference = nullptr;
  Fn cpu[3] = {};
  Fn cuda = nullptr;
  static Kernels& instance() {
    static Kernels k;
    return k;
  }
  // The CPU backend falls back to a lower level, then to the reference, for an op without a fast kernel.
  Fn pick(Backend b) const {
    if (b == Backend::cuda) return cuda;
    if (b == Backend::cpu)
      for (int i = static_cast<int>(cpu_isa()); i >= 0; --i)
        if (cpu[i]) return cpu[i];
    return reference;
  }
};

template <class P>
struct OpRegistrar {
  OpRegistrar(const char* name, P (*parse)(const Args&), typename Kernels<P>::Fn reference, std::vector<ArgSpec> args) {
    Kernels<P>::instance().reference = reference;
    register_op({name, std::move(args), [parse](Backend b, Args& a) -> Launch {
                   P p = parse(a);
                   auto fn = Kernels<P>::instance().pick(b);
                   if (!fn) throw OpError("backend", "no kernel for this backend");
                   return [p, fn](Context& c) { fn(p, c); };
                 }});
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
  static const int EDGEWISE_CONCAT(edgewise_cpu_kernel_, __LINE__) = [] {                      \
    ::edgewise::Kernels<P>::instance().cpu[static_cast<int>(::edgewise::Isa::EDGEWISE_ISA)] = fn; \
    return 0;                                                                                  \
  }()

// In cuda.cu.
#define EDGEWISE_CUDA_KERNEL(P, fn)                                                \
  static const int EDGEWISE_CONCAT(edgewise_cuda_kernel_, __LINE__) = [] {         \
    ::edgewise::Kernels<P>::instance().cuda = fn;                                  \
    return 0;                                                                      \
  }()
