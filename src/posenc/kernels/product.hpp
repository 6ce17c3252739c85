// The three matrix products that attention and its gradients are made of, a strip of rows and a few vectors at a time, so
// that the sums stay in registers. Rows of what is written are always whole vectors; up to 5 rows after the last may be written too.
#pragma once
#include "vector.hpp"

namespace {

#define UNROLL _Pragma("GCC unroll 8")

// s[r][c] = sum over d of a[r][d] panel[d][c], for R rows and N vectors of columns.
template <class Real, int R, int N>
INLINE void product_block(const Real *a, int64_t a_row, const Real *panel, int64_t panel_row, int64_t depth, Real *s, int64_t s_row) {
  Vector<Real> sum[R][N] = {};
  for (int64_t d = 0; d < depth; d++) {
    Vector<Real> column[N];
    UNROLL for (int y = 0; y < N; y++) column[y] = load(panel + d * panel_row + y * WIDTH<Real>);
    UNROLL for (int x = 0; x < R; x++) {
      const Vector<Real> factor = splat(a[x * a_row + d]);
      UNROLL for (int y = 0; y < N; y++) sum[x][y] += factor * column[y];
    }
  }
  UNROLL for (int x = 0; x < R; x++) UNROLL for (int y = 0; y < N; y++) store(s + x * s_row + y * WIDTH<Real>, sum[x][y]);
}

// c[r][e] += sum over n of a[r][n] b[n][e], for R rows and N vectors of columns.
template <class Real, int R, int N>
INLINE void accumulate_block(Real *c, int64_t c_row, const Real *a, int64_t a_row, const Real *b, int64_t b_row, int64_t count) {
  Vector<Real> sum[R][N] = {};  // of these n alone: sums of sums round less
  for (int64_t n = 0; n < count; n++) {
    Vector<Real> row[N];
    UNROLL for (int y = 0; y < N; y++) row[y] = load(b + n * b_row + y * WIDTH<Real>);
    UNROLL for (int x = 0; x < R; x++) {
      const Vector<Real> factor = splat(a[x * a_row + n]);
      UNROLL for (int y = 0; y < N; y++) sum[x][y] += factor * row[y];
    }
  }
  UNROLL for (int x = 0; x < R; x++) UNROLL for (int y = 0; y < N; y++) {
    Real *at = c + x * c_row + y * WIDTH<Real>;
    store(at, load(at) + sum[x][y]);
  }
}

// c[n][e] += sum over r of a[r][n] b[r][e], for `lines` <= 6 neighbouring n and N vectors of columns.
template <class Real, int N>
INLINE void transposed_block(Real *c, int64_t c_row, int lines, const Real *a, int64_t a_row, const Real *b, int64_t b_row, int64_t count) {
  Vector<Real> sum[STRIP][N] = {};
  for (int64_t r = 0; r < count; r++) {
    Vector<Real> row[N];
    UNROLL for (int y = 0; y < N; y++) row[y] = load(b + r * b_row + y * WIDTH<Real>);
    UNROLL for (int x = 0; x < STRIP; x++) {
      const Vector<Real> factor = splat(a[r * a_row + x]);
      UNROLL for (int y = 0; y < N; y++) sum[x][y] += factor * row[y];
    }
  }
  for (int x = 0; x < lines; x++)
    UNROLL for (int y = 0; y < N; y++) {
      Real *at = c + x * c_row + y * WIDTH<Real>;
      store(at, load(at) + sum[x][y]);
    }
}

// Calls block(column, N) for all columns, `VECTORS` vectors at a time and fewer at the end.
template <class Real, class Block>
INLINE void in_vectors(int64_t columns, Block block) {
  int64_t c = 0;
  for (; c + VECTORS * WIDTH<Real> <= columns; c += VECTORS * WIDTH<Real>) block(c, std::integral_constant<int, VECTORS>());
  const int64_t left = (columns - c) / WIDTH<Real>;
  if constexpr (VECTORS == 4) {
    if (left == 3) block(c, std::integral_constant<int, 3>());
    if (left == 2) block(c, std::integral_constant<int, 2>());
  }
  if (left == 1) block(c, std::integral_constant<int, 1>());
}

// Calls block(row, R) for all rows, a strip at a time and fewer at the end: 5 as 6, and 3 as 4.
template <class Block>
INLINE void in_strips(int64_t rows, Block block) {
  int64_t r = 0;
  for (; r + STRIP <= rows; r += STRIP) block(r, std::integral_constant<int, STRIP>());
  const int64_t left = rows - r;
  if (left > 4) block(r, std::integral_constant<int, STRIP>());
  else if (left > 2) block(r, std::integral_constant<int, 4>());
  else if (left == 2) block(r, std::integral_constant<int, 2>());
  else if (left == 1) block(r, std::integral_constant<int, 1>());
}

// s[rows][columns] = a[rows][depth] panel[depth][columns]. `rows` is rounded up to strips, `columns` are whole vectors.
template <class Real>
void product(const Real *a, int64_t a_row, int64_t rows, const Real *panel, int64_t panel_row, int64_t columns, int64_t depth, Real *s, int64_t s_row) {
  in_vectors<Real>(columns, [&](int64_t c, auto n) {
    in_strips(rows, [&](int64_t r, auto strip) {
      product_block<Real, strip(), n()>(a + r * a_row, a_row, panel + c, panel_row, depth, s + r * s_row + c, s_row);
    });
  });
}

// c[rows][columns] += a[rows][count] b[count][columns]. `rows` is rounded up to strips.
template <class Real>
void accumulate(Real *c, int64_t c_row, int64_t rows, const Real *a, int64_t a_row, const Real *b, int64_t b_row, int64_t count, int64_t columns) {
  in_vectors<Real>(columns, [&](int64_t e, auto n) {
    in_strips(rows, [&](int64_t r, auto strip) {
      accumulate_block<Real, strip(), n()>(c + r * c_row + e, c_row, a + r * a_row, a_row, b + e, b_row, count);
    });
  });
}

// c[lines][columns] += transpose(a[count][lines]) b[count][columns]. a must be readable up to whole strips of lines.
template <class Real>
void accumulate_transposed(Real *c, int64_t c_row, int64_t lines, const Real *a, int64_t a_row, const Real *b, int64_t b_row, int64_t count, int64_t columns) {
  in_vectors<Real>(columns, [&](int64_t e, auto n) {
    for (int64_t x = 0; x < lines; x += STRIP)
      transposed_block<Real, n()>(c + x * c_row + e, c_row, (int)least<int64_t>(STRIP, lines - x), a + x, a_row, b + e, b_row, count);
  });
}

}  // namespace
