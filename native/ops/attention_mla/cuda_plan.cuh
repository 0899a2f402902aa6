// Which block of the decode kernel works on what. Made on the device by one small kernel from the lengths of the rows; it
// depends on nothing of a layer, so that one plan could serve all layers of a step.
//
//   column  one query token x one head. The columns of a row are its tokens' heads, token after token
//   unit    kColumns neighbouring columns of a row: they read the same past, so they go through it together
//   item    `chunk` pages of the past of a unit; the items of all units form one list, row after row
//   block   an equal part of that list, cut where it may fall. `segment`: the part of one unit in one block
//
// Each segment leaves a partial result in a slot of its own: largest exponent, sum of weights, weighted values. Normally
// chunk is 1 and the slot is block + unit, which both only grow along the list. Deterministic: an item is its own segment
// whoever works on it, and the cuts depend on positions alone; the slot is the item.
#pragma once

#include "ops/attention_mla/cuda_args.cuh"

namespace edgewise::cuda {

constexpr int kFirstPages = 4;

struct alignas(16) RowWork {
  int unit, item;    // its first ones
  int items;         // per unit; 0: nothing stored before, or no tokens in the window
  int begin, count;  // query tokens of the window
  int first, past;   // its first new token; stored tokens
  int slot;
};

struct alignas(16) BlockWork {
  int row, group, item, items;  // where it starts: unit row.unit + group, at `item`; how many it has
  RowWork work;                 // of that row, and its first physical pages: the first copies wait for one read only
  int pages[kFirstPages];
};
static_assert(sizeof(BlockWork) == 64);

// The tokens [first, end) of a call, as many as the partial results have memory for.
struct Window {
  int first, end;
  int columns;        // of a unit
  int blocks;         // at most
  int chunk;          // pages per item
  bool deterministic;
};

struct MlaPlan {
  int* items;  // the length of the list
  RowWork* rows;
  BlockWork* blocks;
  int* token_row;  // [end - first], -1: no live row
};

__device__ inline int ceil_of(int a, int b) { return (a + b - 1) / b; }

__device__ inline int units_of(const RowWork& row, int heads, int columns) {
  return row.items == 0 ? 0 : ceil_of(row.count * heads, columns);
}

// Blocks that have work: at least one item each.
__device__ inline int busy_blocks(const Window& w, int items) { return min(w.blocks, items); }

// The block that has an item.
__device__ inline int block_of(int item, int items, int busy) {
  return static_cast<int>(((item + int64_t{1}) * busy - 1) / items);
}

// A physical page of a row; a bad one is reported and becomes page 0.
__device__ inline int page_id(const DeviceRows& rows, int slot, int index, Fault fault) {
  const int page = rows.page_table[slot * rows.table_stride + index];
  if (page >= 0 && page < rows.pages) return page;
  raise(fault, FaultCode::bad_index, page);
  return 0;
}

constexpr int kLatent = 512, kRope = 64, kWidth = kLatent + kRope;  // what the decode kernel is made for

// Of the segments: what the decode kernel leaves for the combining one.
struct Partials {
  float* values;  // [slots, columns, kLatent]
  float2* sums;   // [slots, columns]: largest exponent, sum of weights
};

}  // namespace edgewise::cuda
