#include <cstdlib>
#include <cstring>

#include "core/op.h"

namespace edgewise {

namespace {

// The compiler flags of each level are in CMakeLists.txt; each needs every feature listed here.
Isa machine_isa() {
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vnni") &&
                      __builtin_cpu_supports("avx512bf16");
  if (avx2 && avx512) return Isa::avx512;
  return avx2 ? Isa::avx2 : Isa::portable;
}

Isa limited_isa() {
  const Isa best = machine_isa();
  const char* limit = std::getenv("EDGEWISE_CPU_ISA");
  if (!limit) return best;
  for (int i = 0; i < static_cast<int>(best); ++i)
    if (std::strcmp(limit, isa_name(static_cast<Isa>(i))) == 0) return static_cast<Isa>(i);
  return best;
}

}  // namespace

const char* isa_name(Isa isa) {
  static constexpr const char* names[kIsaLevels] = {"portable", "avx2", "avx512"};
  return names[static_cast<int>(isa)];
}

Isa cpu_isa() {
  static const Isa isa = limited_isa();
  return isa;
}

}  // namespace edgewise
