#include "ops/linear_fp8/op.h"
#include "ops/linear_common/reference.h"

namespace edgewise {
namespace {

void linear_fp8_reference(const LinearFp8& p, Context&) { linear_reference(p); }

EDGEWISE_OP(linear_fp8, LinearFp8, parse_linear_fp8, linear_fp8_reference,
            {{"x", ArgKind::in}, {"w", ArgKind::in}, {"scale", ArgKind::in}, {"bias", ArgKind::optional},
             {"out", ArgKind::out}, {"block_n", ArgKind::number}, {"block_k", ArgKind::number}});

}  // namespace
}  // namespace edgewise
