// Decode and draft rows of attention_gqa (at most 8 new tokens) on tensor cores, split over the context.
//
//   work   all (row, slice of 16 queries, kv head) units in a line, each as long as its pages and a fixed cost; every
//          block takes an equal piece of the line, so a unit may be cut at any page
//   block  a producer warp copies tiles (keys and values of a head, contiguous in a page) into a ring; 8 warps take the
//          tiles in turn, each with softmax state and sums of its own, merged when the block's piece of a unit ends
//   unit   cut between blocks: they leave partial results, and the last one to arrive adds them in the order of blocks
//
// Per tile of a warp, queries are the 16 rows of m16n8k16, so that scores leave the first product as the second one wants
// its weights: nothing is transposed or exchanged. Half of the rows are idle with 8 queries; the tensor cores have the time
// (3 of the 13 clocks that a token's bytes take at head_dim 128 in fp8). fp8 codes become f16, exactly; scales are applied
// to scores, weights and results.
#pragma once

#include "cuda/bulk_copy.cuh"
#include "cuda/launch.h"
#include "cuda/mma.cuh"
#include "ops/attention_gqa/cuda.cuh"

namespace edgewise::cuda {

constexpr int kDecodeTokens = 8;      // rows with more new tokens are prefill
constexpr int kUnitQueries = 16;
constexpr int kUnitCost = 2;          // of starting a unit, in pages
constexpr int kLeastPages = 4;        // a block's piece: fewer cost more in the combination than they save
constexpr int kDecodeWarps = 8;
constexpr int kDecodeThreads = 32 * (kDecodeWarps + 1);
constexpr float kWeightShift = 12;    // weights up to 2^12: what f16 holds exactly enough goes down to 2^-26 of the largest
constexpr float kLog2e = 1.4426950408889634f;

// Made by plan_kernel from the rows of the call. All in scratch.
struct DecodePlan {
  int* header;    // [2]: cost of all units; blocks that get work
  int* prefix;    // [rows + 1]: cost of the rows before
  int* block_row; // [blocks]: the row that a block starts in
  int* arrived;   // [blocks]: by the first block of a unit, how many have left their part
  float* partial; // [2 * blocks][16 * D + 32]: sums in the order of fragments, largest scores, totals
};

struct UnitShape {
  int pages, slices, length;
};

__device__ inline UnitShape unit_shape(const DeviceRow& row, int group) {
  if (!row.live || row.count > kDecodeTokens) return {0, 0, 0};
  const int pages = (row.past + kPageTokens - 1) / kPageTokens;
  return {pages, (row.count * group + kUnitQueries - 1) / kUnitQueries, pages + kUnitCost};
}

__device__ inline int block_begin(int block, int blocks, int total) {
  return static_cast<int>(static_cast<int64_t>(block) * total / blocks);
}
__device__ inline int block_of(int at, int blocks, int total) {
  return static_cast<int>((static_cast<int64_t>(at + 1) * blocks - 1) / total);
}

// A block's piece of a unit.
struct Segment {
  DeviceRow row;
  int kv_head, slice;
  int page_begin, page_end;
  int first_block, last_block;  // that the unit is cut between
};

// The segments of this block in order.
class SegmentWalk {
 public:
  __device__ SegmentWalk(const DeviceRows& rows, const DecodePlan& plan, int group, int kv_heads, Fault fault)
      : rows_(rows), plan_(plan), group_(group), kv_heads_(kv_heads), fault_(fault), total_(plan.header[0]),
        blocks_(plan.header[1]) {
    const int block = blockIdx.x;
    if (block >= blocks_) return;
    at_ = block_begin(block, blocks_, total_);
    end_ = block_begin(block + 1, blocks_, total_);
    row_ = plan.block_row[block];
  }

  __device__ bool next(Segment& s) {
    while (at_ < end_) {
      while (plan_.prefix[row_ + 1] <= at_) ++row_;
      s.row = rows_.row(row_, fault_);
      const UnitShape shape = unit_shape(s.row, group_);
      const int unit = (at_ - plan_.prefix[row_]) / shape.length;
      const int begin = plan_.prefix[row_] + unit * shape.length, end = min(begin + shape.length, end_);
      s.kv_head = unit % kv_heads_;
      s.slice = unit / kv_heads_;
      s.page_begin = max(0, at_ - begin - kUnitCost);
      s.page_end = max(0, end - begin - kUnitCost);
      s.last_block = block_of(begin + shape.length - 1, blocks_, total_);
      s.first_block = shape.pages > 0 ? block_of(begin + kUnitCost, blocks_, total_) : s.last_block;
      at_ = end;
      // The piece may lie in the fixed cost alone; a unit without pages belongs to whoever has its end.
      if (s.page_end > s.page_begin || (shape.pages == 0 && s.last_block == static_cast<int>(blockIdx.x))) return true;
    }
    return false;
  }

 private:
  const DeviceRows& rows_;
  const DecodePlan& plan_;
  const int group_, kv_heads_;
  const Fault fault_;
  const int total_, blocks_;
  int at_ = 0, end_ = 0, row_ = 0;
};

// Sizes that follow from the stored type and the head dimension.
template <class Kv, int kDim>
struct DecodeShape {
  static constexpr bool kFp8 = sizeof(Kv) == 1;
  static constexpr int kVectorBytes = kDim * static_cast<int>(sizeof(Kv));
  static constexpr int kGroupBytes = 32 * kVectorBytes;  // keys and values of 16 tokens
  static constexpr int kGroups = kGroupBytes >= 16384 ? 1 : 16384 / kGroupBytes > 4 ? 4 : 16384 / kGroupBytes;
  static constexpr int kTileTokens = 16 * kGroups;
  static constexpr int kTilesPerPage = kPageTokens / kTileTokens;
  static constexpr int kTileBytes = kGroups * kGroupBytes;
  static constexpr int kSteps = kDim / 16;                  // k16 steps of the scores
  static constexpr int kChunks = kVectorBytes / 64;
  static constexpr int kStepsPerChunk = kSteps / kChunks;   // 4 or 2
  static constexpr int kChunkDims = kFp8 ? 4 : 2;           // per 16 bytes of values
  static constexpr int kColumns = kDim / 8;                 // n8 tiles of the sums
  static constexpr bool kQueryInShared = kDim > 128;
  static constexpr int kQueryBytes = kQueryInShared ? kUnitQueries * kDim * 2 : 0;
  static constexpr int kMergeBytes = kDecodeWarps / 2 * kUnitQueries * kDim * 4;
  static constexpr int kTables = 8192;  // barriers, maxima and totals, token scales
  static constexpr int kStagesThatFit = ((227 << 10) - kMergeBytes - kQueryBytes - kTables) / kTileBytes;
  static constexpr int kStages = kStagesThatFit > 16 ? 16 : kStagesThatFit;
  static constexpr int kShared = kStages * kTileBytes + kMergeBytes + kQueryBytes + kTables;
  static constexpr int kPartialFloats = kUnitQueries * kDim + 2 * kUnitQueries;
};

// Host side, cuda_plan.cu: launches the kernel that zeroes the outputs of tokens without a row and makes the plan for a
// grid of `blocks`.
template <class Act>
DecodePlan plan_decode(const GqaArgs<Act>& a, const DeviceRows& rows, int blocks, int partial_floats, Context& context);

// Rows with at most 8 new tokens, and zeros for tokens without a row: cuda_decode_*.cu. Formats bf16, fp8 and fp8_token;
// tensors as can_decode says.
template <int kDim>
void gqa_decode(const GqaArgs<bf16>& a, const DeviceRows& rows, Context& context);
template <>
void gqa_decode<64>(const GqaArgs<bf16>&, const DeviceRows&, Context&);
template <>
void gqa_decode<128>(const GqaArgs<bf16>&, const DeviceRows&, Context&);
template <>
void gqa_decode<256>(const GqaArgs<bf16>&, const DeviceRows&, Context&);

}  // namespace edgewise::cuda
