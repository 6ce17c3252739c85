// Rows of tensors to rows of Real and back, whatever their dtype and strides; rotary on the way.
#pragma once
#include "problem.h"
#include "vector.hpp"

namespace {

template <class From, class Real>
INLINE void read_as(const From *__restrict from, int64_t stride, int64_t count, Real *__restrict to) {
  int64_t d = 0;
  if (stride == 1) {
    for (; d + WIDTH<Real> <= count; d += WIDTH<Real>)
      for (int64_t n = 0; n < WIDTH<Real>; n++) to[d + n] = widen(from[d + n]);
  }
  for (; d < count; d++) to[d] = widen(from[d * stride]);
}
template <class To, class Real>
INLINE void write_as(const Real *__restrict from, int64_t stride, int64_t count, To *__restrict to) {
  int64_t d = 0;
  if (stride == 1) {
    for (; d + WIDTH<Real> <= count; d += WIDTH<Real>)
      for (int64_t n = 0; n < WIDTH<Real>; n++) to[d + n] = narrow<To>(from[d + n]);
  }
  for (; d < count; d++) to[d * stride] = narrow<To>(from[d]);
}

template <class Real>
void read_row(int64_t dtype, const void *data, int64_t offset, int64_t stride, int64_t count, Real *to) {
  if constexpr (sizeof(Real) == 8) return read_as((const double *)data + offset, stride, count, to);
  if (dtype == FLOAT32) return read_as((const float *)data + offset, stride, count, to);
  if (dtype == BFLOAT16) return read_as((const BFloat16 *)data + offset, stride, count, to);
  read_as((const Float16 *)data + offset, stride, count, to);
}
template <class Real>
void write_row(int64_t dtype, void *data, int64_t offset, int64_t stride, int64_t count, const Real *from) {
  if constexpr (sizeof(Real) == 8) return write_as(from, stride, count, (double *)data + offset);
  if constexpr (sizeof(Real) == 4) {
    if (dtype == FLOAT32) return write_as(from, stride, count, (float *)data + offset);
    if (dtype == BFLOAT16) return write_as(from, stride, count, (BFloat16 *)data + offset);
    write_as(from, stride, count, (Float16 *)data + offset);
  }
}

// Pairs of channels turn: (a, b) -> (a cos - b sin, b cos + a sin); `sign` -1 turns back (and keeps a factor).
template <class Real>
INLINE void turn(Real *x, const Real *cos, const Real *sin, int64_t pairs, bool interleaved, Real sign) {
  if (interleaved)
    for (int64_t p = 0; p < pairs; p++) {
      const Real a = x[2 * p], b = x[2 * p + 1], c = cos[p], s = sign * sin[p];
      x[2 * p] = a * c - b * s;
      x[2 * p + 1] = b * c + a * s;
    }
  else {
    Real *__restrict first = x, *__restrict second = x + pairs;
    for (int64_t p = 0; p < pairs; p++) {
      const Real a = first[p], b = second[p], c = cos[p], s = sign * sin[p];
      first[p] = a * c - b * s;
      second[p] = b * c + a * s;
    }
  }
}

// Turns the row of one token, if it stands anywhere and there is a rotation.
template <class Real>
struct Turn {
  const Real *cos = nullptr, *sin = nullptr;
  int64_t pairs = 0, prefix = 0;
  bool interleaved = false;

  static Turn of(const Rotation *rotation, bool query, int64_t b, int64_t h, int64_t prefix) {
    if (!rotation) return {};
    const int64_t at = query ? b * rotation->query_batch + h * rotation->query_head : b * rotation->key_batch + h * rotation->key_head;
    return {(const Real *)(query ? rotation->query_cos : rotation->key_cos) + at,
            (const Real *)(query ? rotation->query_sin : rotation->key_sin) + at, rotation->pairs, prefix, rotation->interleaved != 0};
  }
  void operator()(Real *row, int64_t token, Real sign = 1) const {
    if (cos && token >= prefix) turn(row, cos + (token - prefix) * pairs, sin + (token - prefix) * pairs, pairs, interleaved, sign);
  }
};

// panel[d][c] = rows[c][d], for up to a vector of rows; columns beyond them are 0.
template <class Real>
INLINE void transpose(const Real *rows, int64_t row, int64_t count, int64_t depth, Real *panel, int64_t panel_row) {
  for (int64_t d = 0; d < depth; d++)
    for (int64_t c = 0; c < WIDTH<Real>; c++) panel[d * panel_row + c] = c < count ? rows[c * row + d] : Real(0);
}

}  // namespace
