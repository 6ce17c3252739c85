// Gradients of attention: tiles are computed again from q, k and the logarithm of each row's sum, and what tables give is
// summed where they are read. A part of its own sums for keys and tables, added up in the order of the parts.
#pragma once
#include "forward.hpp"

namespace {

template <class Real>
struct Backward {
  static constexpr int W = WIDTH<Real>;
  Part<Real> part;
  const Attention &a;
  Real *slopes, *g, *q_slopes, *raw_slopes, *met_slopes;  // of the logits [ROWS][TILE], the output, q turned, as given, and as rows met it
  uint32_t *g_pairs = nullptr;
  Real *outs;                                // outputs of a block [value channels][ROWS]
  Real *row;                                 // one row of keys or values
  Real lse[ROWS], delta[ROWS];
  Sums<Real> k_sums, v_sums;
  int64_t deep, value_deep, unit = -1;
  Block last{};

  Backward(const Attention &attention, Arena &arena)
      : part(attention, arena, true), a(attention), deep(part.deep), value_deep(part.value_deep) {
    slopes = arena.take<Real>(ROWS * TILE);
    g = arena.take<Real>(ROWS * value_deep);
    if (part.v.paired) g_pairs = arena.take<uint32_t>(ROWS * part.v.words());
    q_slopes = arena.take<Real>((ROWS + STRIP) * deep);
    raw_slopes = arena.take<Real>((ROWS + STRIP) * deep);
    met_slopes = arena.take<Real>((ROWS + STRIP) * deep);
    outs = arena.take<Real>(a.value_channels * ROWS);
    row = arena.take<Real>(most(deep, value_deep));
    const int64_t span = most<int64_t>(part.plan.blocks * part.plan.grouped, 1);
    k_sums.lay_out(arena, (a.keys + STRIP) * deep, span);
    v_sums.lay_out(arena, (a.keys + STRIP) * value_deep, span);
  }

  void run(int64_t begin, int64_t end) {
    k_sums.start(begin, end), v_sums.start(begin, end);
    for (int64_t n = 0; n < a.term_count; n++) part.terms[n].start_sums(begin, end);
    for (int64_t item = begin; item < end; item++) {
      const Block block = part.plan.block(a, item);
      if (unit != item / part.plan.blocks) leave_unit();
      k_sums.enter(item, [&](int64_t key, const Real *all) { write_keys(key, all); });
      v_sums.enter(item, [&](int64_t key, const Real *all) { write_values(key, all); });
      part.enter(block);
      for (int64_t n = 0; n < a.term_count; n++) part.terms[n].enter_sums(block);
      unit = item / part.plan.blocks, last = block;
      differentiate(block);
    }
    leave_unit();
    k_sums.leave([&](int64_t key, const Real *all) { write_keys(key, all); });
    v_sums.leave([&](int64_t key, const Real *all) { write_values(key, all); });
    for (int64_t n = 0; n < a.term_count; n++) part.terms[n].leave_sums();
  }

  void differentiate(const Block &block) {
    part.start(block);
    part.is_finite &= read_block(a, a.out_gradient, block, a.value_channels, (block.rows + STRIP - 1) / STRIP * STRIP, g);
    if constexpr (sizeof(Real) == 4)
      if (part.v.paired)
        for (int64_t r = 0; r < block.rows; r++) pair_up(g + r * value_deep, a.value_channels, g_pairs + r * part.v.words());
    read_sums(block);
    sum_outputs(block.rows);
    memset((void *)q_slopes, 0, (block.rows + STRIP) * deep * sizeof(Real));
    for (int64_t n = 0; n < a.term_count; n++)
      if (a.terms[n].kind == ROWS_VALUE) part.terms[n].start(block, g, value_deep);
    if (!part.is_finite) sum_what_is_seen(block);
    int64_t columns;
    Sight sight;
    for (int64_t t = 0; t < part.tiles.count; t++) {
      if (!part.compute_logits(block, t, columns, sight)) continue;
      const Tile &tile = part.tiles.tile[t];
      compute_slopes(block, tile, columns);
      const int64_t count = least(columns, tile.count);
      weigh(block.rows, columns, count, sight == PART);
      for (int64_t n = 0; n < a.term_count; n++) take(block, tile, columns, part.terms[n]);
      accumulate_transposed(v_sums.now + tile.key * value_deep, value_deep, count, part.logits, (int64_t)TILE, g, value_deep, block.rows, value_deep);
      accumulate_transposed(k_sums.now + tile.key * deep, deep, count, slopes, (int64_t)TILE, part.q, deep, block.rows, deep);
      accumulate(q_slopes, deep, block.rows, slopes, (int64_t)TILE, part.k.rows + tile.key * part.k.row_stride, part.k.row_stride, count, deep);
    }
    finish(block);
  }

  // delta, summed in the same order as slopes are, so that their difference is 0 for a query that sees one key.
  void sum_outputs(int64_t rows) {
    for (int64_t r = 0; r < rows; r++) delta[r] = 0;
    for (int64_t e = 0; e < a.value_channels; e++)
      for (int64_t r = 0; r < rows; r++) delta[r] += g[r * value_deep + e] * outs[e * ROWS + r];
  }

  // Slopes of the weights of a tile: the output's gradient meets the values, and the rows that join them.
  void compute_slopes(const Block &block, const Tile &tile, int64_t columns) {
    part.v.meet(g, g_pairs, block.rows, tile, columns, 1, slopes);
    for (int64_t n = 0; n < a.term_count; n++)
      if (a.terms[n].kind == ROWS_VALUE) {
        part.terms[n].prepare(block, tile);
        part.terms[n].add(block, tile, columns, slopes);
      }
  }

  // Where something is not finite, the output is no help: delta_i = sum over j of weight times slope, of what is seen.
  void sum_what_is_seen(const Block &block) {
    int64_t columns;
    Sight sight;
    Real sum[ROWS] = {};
    for (int64_t r = 0; r < block.rows; r++) delta[r] = 0;
    for (int64_t t = 0; t < part.tiles.count; t++) {
      if (!part.compute_logits(block, t, columns, sight)) continue;
      const Tile &tile = part.tiles.tile[t];
      compute_slopes(block, tile, columns);
      weigh(block.rows, columns, least(columns, tile.count), sight == PART);
      for (int64_t r = 0; r < block.rows; r++)
        for (int64_t c = 0; c < columns; c++) sum[r] += slopes[r * TILE + c];
    }
    for (int64_t r = 0; r < block.rows; r++) delta[r] = sum[r];
  }

  // The logarithm of each row's sum, and the outputs: delta_i is the inner product of the output and its gradient.
  void read_sums(const Block &block) {
    for (int64_t r = 0; r < block.rows; r++) {
      const int64_t i = block.query + r, line = (block.b * a.heads + block.h) * a.queries + i;
      lse[r] = ((const Real *)a.lse)[line];
      Real *out = row;
      if (a.exact) out = (Real *)a.exact + line * a.value_channels;
      else read_row(a.dtype, a.out.data, block.b * a.out.batch + block.h * a.out.head + i * a.out.token, a.out.channel, a.value_channels, out);
      for (int64_t e = 0; e < a.value_channels; e++) outs[e * ROWS + r] = out[e];
    }
  }

  // weight = exp(logit - lse), slope = weight (slope of the weight - delta).
  void weigh(int64_t rows, int64_t columns, int64_t count, bool hidden) {
    for (int64_t r = 0; r < rows; r++) {
      Real *logit = part.logits + r * TILE, *slope = slopes + r * TILE;
      const Vector<Real> shift = splat(lse[r]), mean = splat(delta[r]);
      for (int64_t c = 0; c < columns; c += W) {
        const Vector<Real> weight = exponential(load(logit + c) - shift);
        store(logit + c, weight);
        store(slope + c, weight * (load(slope + c) - mean));
      }
      for (int64_t c = count; c < columns; c++) logit[c] = slope[c] = 0;
      if (hidden)
        for (int64_t c = 0; c < columns; c += W) {
          const Bits<Real> visible = load_bits<Real>(part.seen.visible + r * TILE + c);
          store(logit + c, visible ? load(logit + c) : Vector<Real>{});
          store(slope + c, visible ? load(slope + c) : Vector<Real>{});
        }
    }
  }

  void take(const Block &block, const Tile &tile, int64_t columns, Adding<Real> &term) {
    const int64_t kind = term.term->kind;
    if (kind == ROWS_VALUE) term.take(block, tile, columns, part.logits, term.gradients);
    else if (kind == TABLE) term.take(block, tile, columns, slopes, term.sums.now ? term.gradients : nullptr);
    else term.take(block, tile, columns, slopes, term.gradients);
  }

  void finish(const Block &block) {
    bool added = false;
    memset((void *)raw_slopes, 0, (block.rows + STRIP) * deep * sizeof(Real));
    memset((void *)met_slopes, 0, (block.rows + STRIP) * deep * sizeof(Real));
    for (int64_t n = 0; n < a.term_count; n++) {
      Adding<Real> &term = part.terms[n];
      if (!term.is_rows() || !term.by_query()) continue;
      for (int64_t p = 0; p < term.panels(); p++) {
        if (!term.ready[p]) continue;
        const int64_t at = p * TILE, count = least<int64_t>(TILE, term.rows - at);
        if (Real *sums = term.sums_of(block))
          accumulate_transposed(sums + at * term.deep, term.deep, count, term.gradients + at, term.line, term.queries, term.deep, block.rows, term.deep);
        if (term.term->kind == ROWS_QUERY) {
          const Real factor = term.term->scaled ? (Real)a.scale : Real(1);
          if (factor != 1)
            for (int64_t r = 0; r < block.rows; r++)
              for (int64_t c = 0; c < count; c++) term.gradients[r * term.line + at + c] *= factor;
          accumulate(met_slopes, deep, block.rows, term.gradients + at, term.line, term.table + at * term.deep, term.deep, count, deep);
        }
      }
      if (term.term->kind != ROWS_QUERY) continue;
      added = true;
      term.take_added(block, met_slopes, deep);
      for (int64_t n = 0; n < block.rows * deep; n += W) {
        add_to(raw_slopes + n, load(met_slopes + n));
        store(met_slopes + n, Vector<Real>{});
      }
    }
    const auto turned = Turn<Real>::of(a.rotation, true, block.b, block.h, a.query_prefix);
    for (int64_t r = 0; r < block.rows; r++) {
      Real *slope = q_slopes + r * deep;
      const int64_t i = block.query + r;
      for (int64_t d = 0; d < a.channels; d++) slope[d] *= (Real)a.scale;
      turned(slope, i, -1);
      if (added)
        for (int64_t d = 0; d < a.channels; d++) slope[d] += raw_slopes[r * deep + d];
      const Tensor &to = a.q_gradient;
      write_row(a.dtype, to.data, block.b * to.batch + block.h * to.head + i * to.token, to.channel, a.channels, slope);
    }
  }

  // What keys met on their side, once a head: gradients [rows][slots] meet the rows, and the keys.
  void leave_unit() {
    if (unit < 0) return;
    for (int64_t n = 0; n < a.term_count; n++) {
      Adding<Real> &term = part.terms[n];
      term.leave_unit(last);
      if (term.term->kind != ROWS_KEY) continue;
      for (int64_t t = 0; t < part.tiles.count; t++) {
        const Tile &tile = part.tiles.tile[t];
        const Real *met = term.gradients + tile.slot;
        accumulate_transposed(k_sums.now + tile.key * deep, deep, tile.count, met, term.line, term.table, term.deep, term.rows, deep);
        if (Real *sums = term.sums_of(last))
          accumulate(sums, term.deep, term.rows, met, term.line, part.k.rows + tile.key * part.k.row_stride, part.k.row_stride, tile.count, deep);
      }
    }
  }

  void write_keys(int64_t key, const Real *all) {
    const int64_t b = key % a.batch, head = key / a.batch;
    const auto turned = Turn<Real>::of(a.rotation, false, b, head, a.key_prefix);
    for (int64_t j = 0; j < a.keys; j++) {
      memcpy(row, all + j * deep, deep * sizeof(Real));
      turned(row, j, -1);
      const Tensor &to = a.k_gradient;
      write_row(a.dtype, to.data, b * to.batch + head * to.head + j * to.token, to.channel, a.channels, row);
    }
  }
  void write_values(int64_t key, const Real *all) {
    const int64_t b = key % a.batch, head = key / a.batch;
    const Tensor &to = a.v_gradient;
    for (int64_t j = 0; j < a.keys; j++)
      write_row(a.dtype, to.data, b * to.batch + head * to.head + j * to.token, to.channel, a.value_channels, all + j * value_deep);
  }
};

template <class Real>
int backward(const Attention &a) {
  const Plan plan(a);
  Arena counted;
  { Backward<Real> measured(a, counted); }
  const int64_t parts = least(useful_threads(a), most<int64_t>(plan.total, 1));
  Blocks memory(parts, counted.used() + sizeof(Backward<Real>) + 64);
  if (!memory.ok()) return NO_MEMORY;
  auto part_of = [&](int64_t p) { return (Backward<Real> *)memory[p]; };
  parallel(parts, parts, [&](int64_t p) {
    Arena arena(memory[p]);
    void *place = arena.take<Backward<Real>>(1);
    (new (place) Backward<Real>(a, arena))->run(begin_of(p, plan.total, parts), begin_of(p + 1, plan.total, parts));
  });
  Backward<Real> &first = *part_of(0);
  add_up<Real>(parts, [&](int64_t p) -> Sums<Real> & { return part_of(p)->k_sums; }, [&](int64_t key, const Real *all) { first.write_keys(key, all); });
  add_up<Real>(parts, [&](int64_t p) -> Sums<Real> & { return part_of(p)->v_sums; }, [&](int64_t key, const Real *all) { first.write_values(key, all); });
  for (int64_t n = 0; n < a.term_count; n++) {
    auto term = [&](int64_t p) -> Adding<Real> & { return part_of(p)->part.terms[n]; };
    if (term(0).sums.size) add_up<Real>(parts, [&](int64_t p) -> Sums<Real> & { return term(p).sums; }, [&](int64_t key, const Real *all) { term(0).write_sums(key, all); });
    if (term(0).prefix_sums.size)
      add_up<Real>(parts, [&](int64_t p) -> Sums<Real> & { return term(p).prefix_sums; }, [&](int64_t key, const Real *all) { term(0).write_prefix(key, all); });
    if (term(0).added_sums.size)
      add_up<Real>(parts, [&](int64_t p) -> Sums<Real> & { return term(p).added_sums; }, [&](int64_t key, const Real *all) { term(0).write_added(key, all); });
  }
  return DONE;
}

}  // namespace
