// Attention in one pass over tiles of keys (Milakov and Gimelshein, 2018, arXiv:1805.02867; Dao et al., 2022,
// arXiv:2205.14135): nothing of the size queries x keys is ever written.
#pragma once
#include "part.hpp"

namespace {

template <class Real>
struct Forward {
  static constexpr int W = WIDTH<Real>;
  Part<Real> part;
  const Attention &a;
  Real *sum_values;  // [ROWS][padded value channels]
  Real top[ROWS], total[ROWS * W];  // the largest logit so far, and the sum of weights, lane by lane

  Forward(const Attention &attention, Arena &arena) : part(attention, arena, false), a(attention) {
    sum_values = arena.take<Real>((ROWS + STRIP) * part.value_deep);
  }

  void run(int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; item++) {
      const Block block = part.plan.block(a, item);
      part.enter(block);
      attend(block);
    }
  }

  void attend(const Block &block) {
    part.start(block);
    memset((void *)sum_values, 0, (block.rows + STRIP) * part.value_deep * sizeof(Real));
    for (int64_t r = 0; r < block.rows; r++) top[r] = -(Real)INFINITY;
    memset((void *)total, 0, sizeof total);
    for (int64_t n = 0; n < a.term_count; n++)
      if (a.terms[n].kind == ROWS_VALUE) part.terms[n].start(block, sum_values, part.value_deep);
    int64_t columns;
    Sight sight;
    for (int64_t t = 0; t < part.tiles.count; t++) {
      if (!part.compute_logits(block, t, columns, sight)) continue;
      const Tile &tile = part.tiles.tile[t];
      for (int64_t r = 0; r < block.rows; r++) weigh(r, columns);
      for (int64_t n = 0; n < a.term_count; n++)
        if (a.terms[n].kind == ROWS_VALUE) {
          part.terms[n].prepare(block, tile);
          part.terms[n].take(block, tile, columns, part.logits, part.terms[n].lines);
        }
      accumulate(sum_values, part.value_deep, block.rows, part.logits, (int64_t)TILE, part.v.rows + tile.key * part.v.row_stride,
                 part.v.row_stride, least(columns, tile.count), part.value_deep);
    }
    for (int64_t n = 0; n < a.term_count; n++)
      if (a.terms[n].kind == ROWS_VALUE) join(part.terms[n], block.rows);
    for (int64_t r = 0; r < block.rows; r++) finish(block, r);
  }

  // Logits of a row to weights, relative to a number that grows with the largest so far; earlier sums shrink as it does.
  INLINE void weigh(int64_t r, int64_t columns) {
    Real *row = part.logits + r * TILE;
    if (columns == TILE) weigh_vectors(r, row, std::integral_constant<int, TILE / W>());
    else weigh_vectors(r, row, (int)(columns / W));
  }
  template <class Count>
  INLINE void weigh_vectors(int64_t r, Real *row, Count count) {
    Vector<Real> largest = load(row);
    for (int n = 1; n < count; n++) largest = larger(largest, load(row + n * W));
    if (any<Real>(largest > top[r])) grow(r, largest_of<Real>(largest));
    const Vector<Real> shift = splat(top[r] == -(Real)INFINITY ? Real(0) : top[r]);
    Vector<Real> sum = load(total + r * W);
    for (int n = 0; n < count; n++) {
      const Vector<Real> weight = exponential(load(row + n * W) - shift);
      sum += weight;
      store(row + n * W, weight);
    }
    store(total + r * W, sum);
  }
  void grow(int64_t r, Real now) {
    const Real shrink = std::exp(top[r] - now);
    top[r] = now;
    scale(total + r * W, W, shrink);
    scale(sum_values + r * part.value_deep, part.value_deep, shrink);
    for (int64_t n = 0; n < a.term_count; n++)
      if (a.terms[n].kind == ROWS_VALUE) scale(part.terms[n].lines + r * part.terms[n].line, padded<Real>(part.terms[n].rows), shrink);
  }
  INLINE void scale(Real *x, int64_t count, Real factor) {
    for (int64_t n = 0; n < count; n += W) store(x + n, load(x + n) * factor);
  }

  // Weights by row meet the rows that join the values.
  void join(Adding<Real> &term, int64_t rows) {
    for (int64_t p = 0; p < term.panels(); p++)
      if (term.ready[p])
        accumulate(sum_values, part.value_deep, rows, term.lines + p * TILE, term.line, term.table + p * TILE * term.deep, term.deep,
                   least<int64_t>(TILE, term.rows - p * TILE), part.value_deep);
  }

  void finish(const Block &block, int64_t r) {
    const int64_t i = block.query + r, line = (block.b * a.heads + block.h) * a.queries + i;
    Real *row = sum_values + r * part.value_deep;
    const Real sum = sum_of<Real>(load(total + r * W));
    const bool blind = sum == 0, zero = blind && (a.blind_is_zero || a.keys == 0);
    const Real factor = zero ? Real(0) : Real(1) / sum;
    for (int64_t e = 0; e < a.value_channels; e++) row[e] = zero && row[e] == 0 ? Real(0) : row[e] * factor;
    if (a.lse) ((Real *)a.lse)[line] = zero ? (Real)INFINITY : blind ? (Real)NAN : top[r] + std::log(sum);
    write_row(a.dtype, a.out.data, block.b * a.out.batch + block.h * a.out.head + i * a.out.token, a.out.channel, a.value_channels, row);
    if (a.exact) memcpy((Real *)a.exact + line * a.value_channels, row, a.value_channels * sizeof(Real));
  }
};

template <class Real>
int forward(const Attention &a) {
  const Plan plan(a);
  Arena counted;
  { Forward<Real> measured(a, counted); }
  const int64_t threads = least(useful_threads(a), most<int64_t>(plan.total, 1)), parts = least(plan.total, 4 * threads);
  Free memory(threads, counted.used());
  if (!memory.ok()) return NO_MEMORY;
  parallel(parts, threads, [&](int64_t p) {
    const int64_t n = memory.take();
    Arena arena(memory[n]);
    Forward<Real> part(a, arena);
    part.run(begin_of(p, plan.total, parts), begin_of(p + 1, plan.total, parts));
    memory.give(n);
  });
  return DONE;
}

}  // namespace
