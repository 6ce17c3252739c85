// Whether every pair of tokens has a number that it may read: positions may be written anew after they were checked, and a
// term made by hand may have too few.
#pragma once
#include "tiles.hpp"

namespace {

// The codes of some tokens of a term: where they lie, how many, and the least and the largest.
struct Codes {
  const int32_t *code;
  int64_t count, low, high;
  Codes(const int32_t *code_, int64_t count_) : code(code_), count(count_) {
    int32_t least_code = code[0], most_code = code[0];
    for (int64_t n = 1; n < count; n++) least_code = least(least_code, code[n]), most_code = most(most_code, code[n]);
    low = least_code, high = most_code;
  }
};

// Whether every pair's code has a row. Where the codes between the least and the largest all have, none is to be looked at.
inline bool rows_fit(const int32_t *row, const Codes &queries, const Codes &keys) {
  bool all = true;
  for (int64_t code = queries.low + keys.low; code <= queries.high + keys.high; code++) all = all && row[code] >= 0;
  for (int64_t i = 0; i < queries.count && !all; i++)
    for (int64_t j = 0; j < keys.count; j++)
      if (row[queries.code[i] + keys.code[j]] < 0) return false;
  return true;
}

inline Answer checked(const Attention &a, const Term &term) {
  const int64_t count_queries = a.queries - a.query_prefix, count_keys = a.keys - a.key_prefix;
  if (term.kind == PAIRS || count_queries <= 0 || count_keys <= 0) return DONE;
  const int64_t rows = term.query_code_batch || term.key_code_batch || term.row_batch ? a.batch : 1;
  for (int64_t b = 0; b < rows; b++) {
    const Codes queries(term.query_code + b * term.query_code_batch, count_queries);
    const Codes keys(term.key_code + b * term.key_code_batch, count_keys);
    if (queries.low + keys.low < 0 || queries.high + keys.high >= term.codes) return OUTSIDE;
    if (term.kind != TABLE && !rows_fit(term.row + b * term.row_batch, queries, keys)) return NO_ROW;
  }
  return DONE;
}
inline Answer checked(const Attention &a) {
  for (int64_t n = 0; n < a.term_count; n++)
    if (const Answer wrong = checked(a, a.terms[n])) return wrong;
  return DONE;
}

}  // namespace
