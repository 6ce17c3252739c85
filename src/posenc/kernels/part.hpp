// A part of the blocks of an attention: its keys, its terms, and the logits of one tile after another.
#pragma once
#include "packed.hpp"
#include "parallel.h"
#include "terms.hpp"

namespace {

// What forward and backward share: one part's view of the keys, of who sees whom, and of the terms.
template <class Real>
struct Part {
  const Attention &a;
  Plan plan;
  Tiles tiles;
  Seen<Real> seen;
  Adding<Real> *terms = nullptr;
  Packed<Real> k, v;
  uint32_t *q_pairs = nullptr;
  Real *q = nullptr, *raw = nullptr, *logits = nullptr;  // [ROWS][padded channels], [ROWS][TILE]
  int64_t deep, value_deep, unit = -1, key_head = -1;
  bool is_finite = true;

  Part(const Attention &attention, Arena &arena, bool backward) : a(attention), plan(attention) {
    deep = padded<Real>(a.channels), value_deep = padded<Real>(a.value_channels);
    tiles.lay_out<Real>(arena, a);
    seen.lay_out(arena, a, tiles);
    terms = arena.take<Adding<Real>>(a.term_count);
    Adding<Real> measured;
    for (int64_t n = 0; n < a.term_count; n++) {
      Adding<Real> *term = terms ? new (&terms[n]) Adding<Real>() : &(measured = {});
      term->lay_out(arena, a, a.terms[n], tiles, plan, backward);
    }
    k.lay_out(arena, a, a.k, a.channels, tiles, true, backward, a.rotation != nullptr);
    v.lay_out(arena, a, a.v, a.value_channels, tiles, backward, !backward, false);
    if (k.paired) q_pairs = arena.take<uint32_t>(ROWS * k.words());
    q = arena.take<Real>(ROWS * deep);
    raw = arena.take<Real>(ROWS * deep);
    logits = arena.take<Real>(ROWS * TILE);
  }
  bool new_key_head(const Block &block) const { return key_head != block.g * a.batch + block.b; }

  // Goes to the head of a block: packs its keys, values and tables if they are others than the last block's.
  void enter(const Block &block) {
    if (new_key_head(block)) {
      key_head = block.g * a.batch + block.b;
      k.enter(block, tiles, Turn<Real>::of(a.rotation, false, block.b, block.g, a.key_prefix));
      v.enter(block, tiles, {});
      seen.enter(block.b, tiles);
    }
    if (unit == block.item / plan.blocks) return;
    unit = block.item / plan.blocks;
    for (int64_t n = 0; n < a.term_count; n++) {
      terms[n].enter(block, tiles);
      terms[n].meet_keys(k.panels, tiles);
    }
  }
  // Reads the queries of a block, turns and scales them.
  void start(const Block &block) {
    const int64_t rows = (block.rows + STRIP - 1) / STRIP * STRIP;
    is_finite = read_block(a, a.q, block, a.channels, rows, raw) && k.is_finite && v.is_finite;
    const auto turned = Turn<Real>::of(a.rotation, true, block.b, block.h, a.query_prefix);
    for (int64_t n = 0; n < rows * deep; n += WIDTH<Real>) store(q + n, load(raw + n));
    for (int64_t r = 0; r < block.rows; r++) {
      turned(q + r * deep, block.query + r);
      if constexpr (sizeof(Real) == 4)
        if (k.paired) pair_up(q + r * deep, a.channels, q_pairs + r * k.words());
      for (int64_t d = 0; d < deep; d += WIDTH<Real>) store(q + r * deep + d, load(q + r * deep + d) * (Real)a.scale);
    }
    seen.start(block);
    for (int64_t n = 0; n < a.term_count; n++)
      if (a.terms[n].kind != ROWS_VALUE) terms[n].start(block, raw, deep);
  }
  // Logits of a tile, minus infinity where a query does not see a key. False if nobody sees anything of it; what is not
  // finite goes everywhere, as in a product of matrices.
  bool compute_logits(const Block &block, int64_t t, int64_t &columns, Sight &sight) {
    const Tile &tile = tiles.tile[t];
    sight = seen.look(block, tiles, t, columns);
    if (sight == NONE && is_finite) return false;
    if (!is_finite) columns = tile.columns;
    if (sight == NONE) {
      for (int64_t r = 0; r < block.rows; r++) memset((void *)(seen.visible + r * TILE), 0, TILE * sizeof(Real));
      sight = PART;
    }
    k.meet(q, q_pairs, block.rows, tile, columns, (Real)a.scale, logits);
    for (int64_t n = 0; n < a.term_count; n++)
      if (a.terms[n].kind != ROWS_VALUE) {
        terms[n].prepare(block, tile);
        terms[n].add(block, tile, columns, logits);
      }
    const Vector<Real> lowest = splat((Real)-INFINITY);
    if (sight == PART)
      for (int64_t r = 0; r < block.rows; r++)
        for (int64_t c = 0; c < columns; c += WIDTH<Real>) {
          const Bits<Real> visible = load_bits<Real>(seen.visible + r * TILE + c);
          store(logits + r * TILE + c, visible ? load(logits + r * TILE + c) : lowest);
        }
    else
      for (int64_t r = 0; r < block.rows; r++)
        for (int64_t c = tile.count; c < columns; c++) logits[r * TILE + c] = (Real)-INFINITY;
    return true;
  }
};

// One block of memory for each thread; a part takes one that is free.
class Free {
 public:
  Free(int64_t threads, int64_t bytes) : threads_(threads), blocks_(threads, bytes), taken_((char *)calloc(threads, 1)) {}
  ~Free() { free(taken_); }
  bool ok() const { return blocks_.ok() && taken_; }
  int64_t take() {
    for (int64_t n = 0;; n = (n + 1) % threads_)
      if (!__atomic_test_and_set(&taken_[n], __ATOMIC_ACQUIRE)) return n;
  }
  void give(int64_t n) { __atomic_clear(&taken_[n], __ATOMIC_RELEASE); }
  char *operator[](int64_t n) const { return blocks_[n]; }

 private:
  int64_t threads_;
  Blocks blocks_;
  char *taken_;
};

// Multiplications of a problem, roughly, from which on a second thread is worth waking.
constexpr double FEW = 1 << 18;
inline int64_t useful_threads(const Attention &a) {
  const double work = (double)a.batch * a.heads * a.queries * a.keys * (a.channels + a.value_channels);
  return work < FEW ? 1 : most<int64_t>(a.threads, 1);
}

}  // namespace
