// Keys, values and queries as tiles read them.
#pragma once
#include "packing.hpp"
#include "pairs.hpp"
#include "tiles.hpp"

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

// Whether products of queries and keys are made of pairs of bfloat16 numbers: those that turned would have to be rounded.
template <class Real>
bool in_pairs(const Attention &a) {
  if (a.dtype != BFLOAT16 || a.rotation || !multiplies_pairs()) return false;
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

}  // namespace
