// What the library is asked to compute: plain structures that Python fills through ctypes.
//
// Letters are those of the whole project: b batch, h query heads, g key heads, i queries, j keys, d channels of q and k,
// e channels of v. Strides count elements. A stride of 0 shares what it strides over.
#pragma once
#include <cstdint>

extern "C" {

enum Dtype : int64_t { FLOAT32, BFLOAT16, FLOAT16, FLOAT64 };

// A tensor [batch, heads, tokens, channels].
struct Tensor {
  void *data;
  int64_t batch, head, token, channel;
};

// Cosines and sines [batch, heads, tokens after the prefix, pairs] of queries and keys, channels side by side.
struct Rotation {
  const void *query_cos, *query_sin, *key_cos, *key_sin;
  int64_t query_batch, query_head, key_batch, key_head;
  int64_t pairs, interleaved;
};

enum Kind : int64_t {
  TABLE,       // table[b, h, code]: a number by relative position
  PAIRS,       // table[b, h, i, j]: a number a pair
  ROWS_QUERY,  // q_i . table[b, h, row[code]]
  ROWS_KEY,    // k_j . table[b, h, row[code]]
  ROWS_VALUE,  // joins the values: sum_j weight_ij table[b, h, row[code]]
};

// What is added for a pair of tokens after the prefix; its code is query_code[b, i] + key_code[b, j], from 0 to `codes`.
struct Term {
  int64_t kind;
  const void *table;
  void *gradient;  // of the table, of the same sizes and packed close; null where none is wanted
  int64_t batch, head, query, key;  // strides of the table, whose head is 0 only if batch is; query and key are of PAIRS
  int64_t rows, codes;
  const int32_t *query_code, *key_code, *row;  // row: the row of every code, -1 where there is none
  int64_t query_code_batch, key_code_batch, row_batch;
  const void *prefix;  // [h, 3]: from a prefix query to a token, from a token to a prefix key, between prefix tokens
  void *prefix_gradient;
  int64_t prefix_head;
  const void *added;  // [h, d]: added to the queries that meet the rows
  void *added_gradient;
  int64_t added_head;
  int64_t scaled;  // whether the product with rows is multiplied by `scale`
};

// Who sees whom: everything that is not null combines by "and".
struct Visibility {
  int64_t causal, window;                // window: -1 where there is none
  const int64_t *query_order, *key_order;  // a causal query sees keys whose order is not after its own
  const int64_t *query_document, *key_document;
  int64_t query_order_batch, key_order_batch, query_document_batch, key_document_batch;
  const uint8_t *present, *key_mask;  // [batch, keys]
  int64_t present_batch, key_mask_batch, key_mask_key;
  const uint8_t *mask;  // [batch, heads, queries, keys]
  int64_t mask_batch, mask_head, mask_query, mask_key;
};

struct Attention {
  int64_t dtype, threads;
  int64_t batch, heads, groups, queries, keys, channels, value_channels;
  int64_t query_prefix, key_prefix;
  double scale;
  int64_t blind_is_zero;  // a row of no weight at all: zeros where something hides pairs, NaN where only arithmetic did
  Tensor q, k, v, out;
  void *lse;    // [b, h, i], logarithm of the sum of exponentials, in the arithmetic's dtype
  void *exact;  // [b, h, i, e], the output before it is rounded, or null
  const Rotation *rotation;
  const Term *terms;
  int64_t term_count;
  const Visibility *visibility;
  // backward alone
  Tensor out_gradient, q_gradient, k_gradient, v_gradient;
};

// Rotary alone: x to out, which may be x itself.
struct Rotary {
  int64_t dtype, threads;
  int64_t batch, heads, tokens, channels, prefix, pairs, interleaved, backwards;
  Tensor x, out;
  const void *cos, *sin;  // [batch, heads, tokens after the prefix, pairs]
  int64_t turn_batch, turn_head;
};

}  // extern "C"
