// Codes of tokens: which number of a line each pair reads, and how neighbouring keys go along it.
#pragma once
#include "tiles.hpp"

namespace {

// How a vector of neighbouring codes (or rows) goes.
enum Shape : uint8_t {
  RISING,     // one by one
  CONSTANT,   // all the same
  SPLIT,      // two parts that rise one by one
  SCATTERED,  // anyhow
};

template <class Real>
INLINE Shape shape_of(const int32_t *code, int64_t count, int64_t &split) {
  split = 0;
  int64_t rising = 1, constant = 1, breaks = 0;
  for (int64_t n = 1; n < count; n++) {
    constant += code[n] == code[0];
    if (code[n] == code[n - 1] + 1) rising++;
    else breaks++, split = n;
  }
  if (rising == count) return RISING;
  if (constant == count) return CONSTANT;
  return breaks == 1 ? SPLIT : SCATTERED;
}

// Codes of packed keys, a shape for each vector of them.
template <class Real>
struct KeyCodes {
  int32_t *code = nullptr;
  uint8_t *shape = nullptr, *split = nullptr;
  int64_t batch = -1;

  void lay_out(Arena &arena, const Tiles &tiles) {
    code = arena.take<int32_t>(tiles.slots);
    shape = arena.take<uint8_t>(tiles.slots / WIDTH<Real>);
    split = arena.take<uint8_t>(tiles.slots / WIDTH<Real>);
  }
  void enter(const Attention &a, const Term &term, int64_t b, const Tiles &tiles) {
    if (batch >= 0 && (b == batch || !term.key_code_batch)) return;
    batch = b;
    const int32_t *given = term.key_code + b * term.key_code_batch;
    for (int64_t t = 0; t < tiles.count; t++) {
      const Tile &tile = tiles.tile[t];
      if (tile.key < a.key_prefix) continue;
      for (int64_t c = 0; c < tile.columns; c += WIDTH<Real>) {
        int32_t *own = code + tile.slot + c;
        const int64_t count = least<int64_t>(WIDTH<Real>, tile.count - c);
        for (int64_t n = 0; n < count; n++) own[n] = -given[tile.key - a.key_prefix + c + n];
        int64_t at;
        const Shape found = shape_of<Real>(own, count, at);
        for (int64_t n = count; n < WIDTH<Real>; n++) own[n] = own[n - 1] + (found == RISING || found == SPLIT);
        shape[(tile.slot + c) / WIDTH<Real>] = found;
        split[(tile.slot + c) / WIDTH<Real>] = (uint8_t)at;
      }
    }
  }
};

template <class Real>
INLINE Bits<Real> before(int64_t split) {
  Integer<Real> lane[WIDTH<Real>];
  for (int n = 0; n < WIDTH<Real>; n++) lane[n] = -(Integer<Real>)(n < split);
  Bits<Real> mask;
  memcpy(&mask, lane, sizeof mask);
  return mask;
}
template <class Real, class At>
INLINE Vector<Real> gathered(At at) {
  Real lane[WIDTH<Real>];
  for (int n = 0; n < WIDTH<Real>; n++) lane[n] = at(n);
  return load(lane);
}
// Adds a vector to a line where it is scattered; lanes that are not of a pair are 0.
template <class Real, class At>
INLINE void scatter(Vector<Real> v, At at) {
  Real lane[WIDTH<Real>];
  store(lane, v);
  for (int n = 0; n < WIDTH<Real>; n++) at(n) += lane[n];
}
template <class Real>
INLINE void add_to(Real *at, Vector<Real> v) { store(at, load(at) + v); }

// Numbers of a line at the codes of a vector of keys; `line` is where the query's own code has its number.
template <class Real>
INLINE Vector<Real> read(const Real *line, const int32_t *code, int shape, int split) {
  constexpr int last = WIDTH<Real> - 1;
  if (shape == RISING) return load(line + code[0]);
  if (shape == CONSTANT) return splat(line[code[0]]);
  if (shape == SPLIT) return before<Real>(split) ? load(line + code[0]) : load(line + code[last] - last);
  return gathered<Real>([&](int n) { return line[code[n]]; });
}
template <class Real>
INLINE void write(Real *line, const int32_t *code, int shape, int split, Vector<Real> v) {
  constexpr int last = WIDTH<Real> - 1;
  if (shape == RISING) return add_to(line + code[0], v);
  if (shape == CONSTANT) {
    line[code[0]] += sum_of<Real>(v);
  } else if (shape == SPLIT) {
    const Bits<Real> mask = before<Real>(split);
    add_to(line + code[0], mask ? v : Vector<Real>{});
    add_to(line + code[last] - last, mask ? Vector<Real>{} : v);
  } else {
    scatter<Real>(v, [&](int n) -> Real & { return line[code[n]]; });
  }
}

}  // namespace
