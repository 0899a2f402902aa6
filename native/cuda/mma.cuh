// Tensor-core products of a warp: mma.sync.m16n8k16 with f32 sums, and ldmatrix (PTX ISA, "Matrix fragments").
// Lane l = 4 g + t (g = 0..7, t = 0..3) holds, as pairs of 16-bit values (k, k + 1):
//   a[0] row g     k 2t     a[1] row g + 8 k 2t     a[2] row g     k 2t + 8     a[3] row g + 8 k 2t + 8
//   b[0] col g     k 2t     b[1] col g     k 2t + 8
//   c[0] (g, 2t)   c[1] (g, 2t + 1)   c[2] (g + 8, 2t)   c[3] (g + 8, 2t + 1)
#pragma once

#include "cuda/device_code.cuh"

namespace edgewise::cuda {

#ifdef EDGEWISE_CUDA_EMULATED
template <class Unpack>
void emulated_mma(float c[4], const uint32_t a[4], const uint32_t b[2], Unpack unpack) {
  struct Fragment { uint32_t a[4], b[2]; } mine{{a[0], a[1], a[2], a[3]}, {b[0], b[1]}}, all[32];
  emulator::gather(kAllLanes, &mine, all, sizeof mine);
  const int lane = emulator::lane(), g = lane / 4, t = lane % 4;
  for (int i = 0; i < 4; ++i) {
    const int row = g + 8 * (i / 2), col = 2 * t + i % 2;
    float sum = 0;
    for (int k = 0; k < 16; ++k) {
      const int pair = k % 8 / 2, half = k / 8;
      const float2 x = unpack(all[4 * (row % 8) + pair].a[row / 8 + 2 * half]);
      const float2 y = unpack(all[4 * col + pair].b[half]);
      sum += k % 2 ? x.y * y.y : x.x * y.x;
    }
    c[i] += sum;
  }
}
inline void mma_f16(float c[4], const uint32_t a[4], const uint32_t b[2]) { emulated_mma(c, a, b, unpack_f16x2); }
inline void mma_bf16(float c[4], const uint32_t a[4], const uint32_t b[2]) { emulated_mma(c, a, b, unpack_bf16x2); }

template <int kMatrices>
void emulated_ldmatrix(uint32_t* r, const void* row, bool transposed) {
  const void* rows[32];
  emulator::gather(kAllLanes, &row, rows, sizeof row);
  const int lane = emulator::lane(), g = lane / 4, t = lane % 4;
  for (int m = 0; m < kMatrices; ++m) {
    uint16_t pair[2];
    for (int i = 0; i < 2; ++i) {
      const int y = transposed ? 2 * t + i : g, x = transposed ? g : 2 * t + i;
      pair[i] = static_cast<const uint16_t*>(rows[8 * m + y])[x];
    }
    r[m] = pair[0] | static_cast<uint32_t>(pair[1]) << 16;
  }
  emulator::warp_barrier(kAllLanes);  // whoever writes the rows next comes after every lane's read
}
#else
__device__ inline void mma_f16(float c[4], const uint32_t a[4], const uint32_t b[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ inline void mma_bf16(float c[4], const uint32_t a[4], const uint32_t b[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#endif

// a - b of two bf16 each.
__device__ inline uint32_t sub_bf16x2(uint32_t a, uint32_t b) {
#ifdef EDGEWISE_CUDA_EMULATED
  const float2 x = unpack_bf16x2(a), y = unpack_bf16x2(b);
  return pack_bf16x2(x.x - y.x, x.y - y.y);
#else
  uint32_t out;
  asm("sub.rn.bf16x2 %0, %1, %2;" : "=r"(out) : "r"(a), "r"(b));
  return out;
#endif
}

// Four 8 x 8 matrices of 16-bit values from shared memory: lane l gives the address of row l % 8 of matrix l / 8 (16
// bytes, aligned) and gets in r[m] elements (g, 2t), (g, 2t + 1) of matrix m.
__device__ inline void ldmatrix_x4(uint32_t r[4], const void* row) {
#ifdef EDGEWISE_CUDA_EMULATED
  emulated_ldmatrix<4>(r, row, false);
#else
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
#endif
}

// As ldmatrix_x4; lane l gets elements (2t, g), (2t + 1, g).
__device__ inline void ldmatrix_x4_transposed(uint32_t r[4], const void* row) {
#ifdef EDGEWISE_CUDA_EMULATED
  emulated_ldmatrix<4>(r, row, true);
#else
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
#endif
}

// Two matrices: lanes 0..15 give the addresses (the others' are ignored, and must be valid).
__device__ inline void ldmatrix_x2(uint32_t r[2], const void* row) {
#ifdef EDGEWISE_CUDA_EMULATED
  emulated_ldmatrix<2>(r, row, false);
#else
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(shared_address(row))
               : "memory");
#endif
}

}  // namespace edgewise::cuda
