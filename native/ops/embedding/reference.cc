#include "ops/embedding/op.h"

namespace edgewise {

static void embedding_reference(const Embedding& p, Context& context) { row_lookup_reference(p, context); }

EDGEWISE_OP(embedding, Embedding, parse_embedding, embedding_reference,
            {{"ids", ArgKind::in}, {"table", ArgKind::in}, {"out", ArgKind::out}});

}  // namespace edgewise
