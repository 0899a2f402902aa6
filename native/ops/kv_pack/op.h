// kv_pack: writes canonical rows into the pages of the KV cache, byte for byte.
#pragma once

#include "core/kv_rows.h"

namespace edgewise {

struct KvPack : KvCopy {};

inline KvPack parse_kv_pack(const Args& a) { return {parse_kv_copy(a)}; }

}  // namespace edgewise
