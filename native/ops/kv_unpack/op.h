// kv_unpack: reads tokens of the KV cache as canonical rows, byte for byte.
#pragma once

#include "core/kv_rows.h"

namespace edgewise {

struct KvUnpack : KvCopy {};

inline KvUnpack parse_kv_unpack(const Args& a) { return {parse_kv_copy(a)}; }

}  // namespace edgewise
