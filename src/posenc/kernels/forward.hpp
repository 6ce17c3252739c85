// Attention in one pass over tiles of keys (Milakov and Gimelshein, 2018, arXiv:1805.02867; Dao et al., 2022,
// arXiv:2205.14135): nothing of the size queries x keys is ever written.
#pragma once
#include "parallel.h"
#include "terms.hpp"

namespace {

// Notices infinities and NaN: exponents of all ones.
template <class Real>
class Finite {
 public:
  // Looks at a row whose last vector is whole.
  INLINE void look(const Real *row, int64_t count) {
    for (int64_t n = 0; n < count; n += WIDTH<Real>) {
      const Bits<Real> bits = (Bits<Real>)load(row + n);
      found_ |= (bits & ONES) == ONES;
    }
  }
  bool holds() const { return !any<Real>(found_); }

 private:
  static constexpr Integer<Real> ONES = sizeof(Real) == 8 ? (Integer<Real>)0x7ff0000000000000 : 0x7f800000;
  Bits<Real> found_{};
};

// Whether products of queries and keys are made of pairs of bfloat16 numbers.
template <class Real>
bool in_pairs(const Attention &a) {
  if (a.dtype != BFLOAT16 || !multiplies_pairs()) return false;
  for (int64_t n = 0; n < a.term_count; n++)
    if (a.terms[n].kind == ROWS_KEY) return false;  // they meet keys in float32
  return true;
}

// Keys and values of one key head as tiles read them: `transposed` panels [tile][channel][column], and rows.
template <class Real>
struct Packed {
  static constexpr int W = WIDTH<Real>;
  const Attention *a = nullptr;
  const Tensor *tensor = nullptr;
  int64_t channels = 0, deep = 0, row_stride = 0;
  bool direct = false, paired = false, is_finite = true;  // direct: rows are read where they lie
  Real *panels = nullptr, *own = nullptr, *buffer = nullptr;
  const Real *rows = nullptr;

  void lay_out(Arena &arena, const Attention &attention, const Tensor &given, int64_t channels_, const Tiles &tiles, bool transposed, bool in_rows, bool turned) {
    a = &attention, tensor = &given, channels = channels_, deep = padded<Real>(channels);
    paired = in_pairs<Real>(attention);
    direct = !turned && a->dtype == (sizeof(Real) == 8 ? FLOAT64 : FLOAT32) && given.channel == 1 && deep == channels;
    if (transposed) panels = arena.take<Real>(tiles.slots * channels);
    if (in_rows && !direct) own = arena.take<Real>((a->keys + STRIP) * deep);
    buffer = arena.take<Real>(W * deep);
  }
  void enter(const Block &block, const Tiles &tiles, const Turn<Real> &turned) {
    const int64_t at = block.b * tensor->batch + block.g * tensor->head;
    rows = direct ? (const Real *)tensor->data + at : own;
    row_stride = direct ? tensor->token : deep;
    Finite<Real> all;
    if (direct && !panels) {  // nothing is to be packed
      for (int64_t j = 0; j < a->keys; j++) all.look(rows + j * row_stride, deep);
      is_finite = all.holds();
      return;
    }
    for (int64_t n = 0; n < W; n++)
      for (int64_t d = channels; d < deep; d++) buffer[n * deep + d] = 0;
    for (int64_t t = 0; t < tiles.count; t++) {
      const Tile &tile = tiles.tile[t];
      for (int64_t c = 0; c < tile.columns; c += W) {
        const int64_t count = least<int64_t>(W, tile.count - c);
        for (int64_t n = 0; n < count; n++) {
          const int64_t key = tile.key + c + n;
          Real *row = buffer + n * deep;
          read_row(a->dtype, tensor->data, at + key * tensor->token, tensor->channel, channels, row);
          all.look(row, deep);
          turned(row, key);
          if (own)
            for (int64_t d = 0; d < deep; d += W) store(own + key * deep + d, load(row + d));
        }
        if (!panels) continue;
        if constexpr (sizeof(Real) == 4)
          if (paired) {
            for (int64_t n = 0; n < count; n++) pair_up(buffer + n * deep, channels, (uint32_t *)buffer + n * deep);
            transpose((const float *)buffer, deep, count, words(), (float *)panels + tile.slot * words() + c, tile.columns);
            continue;
          }
        transpose(buffer, deep, count, channels, panels + tile.slot * channels + c, tile.columns);
      }
    }
    is_finite = all.holds();
  }
  int64_t words() const { return (channels + 1) / 2; }
  // s = factor x (rows of all channels, or `pairs` of them) times the keys of a tile.
  void meet(const Real *x, const uint32_t *pairs, int64_t rows, const Tile &tile, int64_t columns, Real factor, Real *s) const {
    if constexpr (sizeof(Real) == 4)
      if (paired)
        return product_of_pairs(pairs, words(), rows, (const uint32_t *)panels + tile.slot * words(), tile.columns, columns, words(), factor, s, TILE);
    product(x, deep, rows, panels + tile.slot * channels, tile.columns, columns, channels, s, (int64_t)TILE);
  }
};

// A block of rows [ROWS][padded channels] of queries (or their gradients); the rows after the last are 0.
template <class Real>
bool read_block(const Attention &a, const Tensor &tensor, const Block &block, int64_t channels, int64_t rows, Real *to) {
  const int64_t deep = padded<Real>(channels);
  Finite<Real> all;
  for (int64_t r = 0; r < rows; r++) {
    Real *row = to + r * deep;
    for (int64_t d = r < block.rows ? channels / WIDTH<Real> * WIDTH<Real> : 0; d < deep; d += WIDTH<Real>) store(row + d, Vector<Real>{});
    if (r >= block.rows) continue;
    const int64_t at = block.b * tensor.batch + block.h * tensor.head + (block.query + r) * tensor.token;
    read_row(a.dtype, tensor.data, at, tensor.channel, channels, row);
    all.look(row, deep);
  }
  return all.holds();
}

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
