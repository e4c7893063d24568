/* Inside the room: the words of JSON for the enums, in their order. */
#ifndef PLAN_NAMES_H
#define PLAN_NAMES_H

#define NAMES_DTYPE { "f32", "f64", "f16", "bf16", "i8", "i32", "u8", "u64" }
#define NAMES_OP { "sum", "max", "mean" }
#define NAMES_EXTENT { "flat", "tensor", "op" }
#define NAMES_KEEP { "none", "input", "all" }
#define NAMES_MISSING { "fail", "without", "newest" }
#define NAMES_SCOPE { "self", "shard", "group" }
#define NAMES_WITH { "alone", "peer", "group", "any", "reply" }
#define NAMES_SECTION { "prologue", "body", "epilogue" }

#endif
