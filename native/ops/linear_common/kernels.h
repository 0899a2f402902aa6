// The CPU kernels behind the linear and expert ops, compiled once per instruction set in cpu_linear.cc and cpu_moe.cc.
#pragma once

#include "ops/linear_common/parse.h"

namespace edgewise::EDGEWISE_ISA {

void run_linear(const LinearCall& p, Context& context);
void run_head_linear(const HeadLinear& p, Context& context);
void run_gate_up(const GateUpCall& p, Context& context);
void run_down(const DownCall& p, Context& context);

}  // namespace edgewise::EDGEWISE_ISA
