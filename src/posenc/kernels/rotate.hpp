// Rotary alone: pairs of channels turn on their way from x to out, which may be the same memory. One pass over it.
#pragma once
#include "arena.hpp"
#include "parallel.h"
#include "problem.h"
#include "vector.hpp"

namespace {

template <class Item, int N> struct Lanes {
  typedef Item Vector __attribute__((vector_size(N * sizeof(Item))));
  typedef Item Loose __attribute__((vector_size(N * sizeof(Item)), aligned(2), may_alias));
  static INLINE Vector load(const void *p) { return *(const Loose *)p; }
  static INLINE void store(void *p, Vector v) { *(Loose *)p = v; }
};
template <int N> using Floats = typename Lanes<float, N>::Vector;
template <int N> using Words = typename Lanes<uint32_t, N>::Vector;

// Two 16-bit numbers lie in a word, the first in its lower half. As floats, and back: what `widen` and `narrow` do.
template <class Store, int N> struct Halves;
template <int N> struct Halves<BFloat16, N> {
  static INLINE Floats<N> first(Words<N> x) { return (Floats<N>)(x << 16); }
  static INLINE Floats<N> second(Words<N> x) { return (Floats<N>)(x & 0xffff0000u); }
  static INLINE Words<N> joined(Floats<N> a, Floats<N> b) { return rounded(a) >> 16 | (rounded(b) & 0xffff0000u); }
  // NaN stays: the lower half of its bits is zero, as there is none among the cosines and sines but such
  static INLINE Words<N> rounded(Floats<N> x) { return (Words<N>)x + 0x7fff + ((Words<N>)x >> 16 & 1); }
};
template <int N> struct Halves<Float16, N> {
  static INLINE Floats<N> first(Words<N> x) { return widened(x & 0xffff); }
  static INLINE Floats<N> second(Words<N> x) { return widened(x >> 16); }
  static INLINE Words<N> joined(Floats<N> a, Floats<N> b) { return narrowed(a) | narrowed(b) << 16; }
  static INLINE Floats<N> widened(Words<N> x) {
    const Words<N> sign = (x & 0x8000) << 16, rest = (x & 0x7fff) << 13, value = (Words<N>)((Floats<N>)rest * 0x1p112f);
    return (Floats<N>)(sign | (rest >= 0x7c00u << 13 ? rest | 0x7f800000u : value));
  }
  static INLINE Words<N> narrowed(Floats<N> x) {
    const Words<N> bits = (Words<N>)x, sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
    const Words<N> normal = (rest + 0xfff + (rest >> 13 & 1) - (112u << 23)) >> 13;
    const Words<N> small = (Words<N>)((Floats<N>)rest + 0.5f) - bits_of(0.5f);
    Words<N> half = rest < (113u << 23) ? small : normal;
    half = rest >= 0x477ff000u ? 0x7c00 - Words<N>{} : half;
    half = rest > 0x7f800000u ? 0x7e00 - Words<N>{} : half;
    return sign | half;
  }
};

// What turns the channels of one token, which lie side by side: N lanes at a time, then those that are left.
// (a, b) -> (a cos - b sin, b cos + a sin), with cosines and sines laid out as they are read.

// a in the first half of the channels, b in the second
template <class Number> struct Apart {
  typedef Number Store, Real;
  static constexpr int EACH = 1;
  static void lay(const Real *cos, const Real *sin, Real sign, int64_t pairs, Real *c, Real *s) {
    for (int64_t p = 0; p < pairs; p++) c[p] = cos[p], s[p] = sign * sin[p];
  }
  template <int N = WIDTH<Real>>
  static INLINE void turn(const Real *x, Real *out, const Real *cos, const Real *sin, int64_t pairs, int64_t p = 0) {
    for (; p + N <= pairs; p += N) {
      const auto a = Lanes<Real, N>::load(x + p), b = Lanes<Real, N>::load(x + pairs + p);
      const auto c = Lanes<Real, N>::load(cos + p), s = Lanes<Real, N>::load(sin + p);
      Lanes<Real, N>::store(out + p, a * c - b * s), Lanes<Real, N>::store(out + pairs + p, b * c + a * s);
    }
    if constexpr (N > 1) turn<N / 2>(x, out, cos, sin, pairs, p);
  }
};

// a and b are neighbours: (a, b) (cos, cos) + (b, a) (-sin, sin)
template <class Number> struct Beside {
  typedef Number Store, Real;
  static constexpr int EACH = 2;  // numbers a pair
  static void lay(const Real *cos, const Real *sin, Real sign, int64_t pairs, Real *c, Real *s) {
    for (int64_t p = 0; p < pairs; p++) {
      c[2 * p] = c[2 * p + 1] = cos[p];
      s[2 * p] = -sign * sin[p], s[2 * p + 1] = sign * sin[p];
    }
  }
  template <int N = WIDTH<Real>>
  static INLINE void turn(const Real *x, Real *out, const Real *cos, const Real *sin, int64_t pairs, int64_t d = 0) {
    for (; d + N <= 2 * pairs; d += N) {
      const auto v = Lanes<Real, N>::load(x + d);
      Lanes<Real, N>::store(out + d, v * Lanes<Real, N>::load(cos + d) + swapped<N>(v) * Lanes<Real, N>::load(sin + d));
    }
    if constexpr (N > 2) turn<N / 2>(x, out, cos, sin, pairs, d);
  }
  template <int N>
  static INLINE typename Lanes<Real, N>::Vector swapped(typename Lanes<Real, N>::Vector v) {
    typedef typename Lanes<Real, N>::Vector Vector;
    if constexpr (sizeof(Real) == 4) {
      const auto pair = (typename Lanes<uint64_t, N / 2>::Vector)v;
      return (Vector)(pair << 32 | pair >> 32);
    } else {
      Vector w{};
      for (int n = 0; n < N; n++) w[n] = v[n ^ 1];
      return w;
    }
  }
};

INLINE float plain(float x) { return x == x ? x : float_of(0x7fc00000); }

// The same for 16-bit numbers. A word is of two pairs: cosines and sines of even pairs lie before those of odd ones.
template <class Half> struct HalvesApart {
  typedef Half Store;
  typedef float Real;
  static constexpr int EACH = 1;
  static void lay(const float *cos, const float *sin, float sign, int64_t pairs, float *c, float *s) {
    for (int64_t odd = 0; odd < 2; odd++)
      for (int64_t p = odd; p < pairs; p += 2) *c++ = plain(cos[p]), *s++ = plain(sign * sin[p]);
  }
  template <int N = WIDTH<float>>
  static INLINE void turn(const Store *x, Store *out, const float *cos, const float *sin, int64_t pairs, int64_t w = 0) {
    typedef Halves<Store, N> Of;
    const int64_t odd = (pairs + 1) / 2;
    for (; 2 * (w + N) <= pairs; w += N) {
      const Words<N> a = Lanes<uint32_t, N>::load(x + 2 * w), b = Lanes<uint32_t, N>::load(x + pairs + 2 * w);
      const Floats<N> a0 = Of::first(a), b0 = Of::first(b), a1 = Of::second(a), b1 = Of::second(b);
      const Floats<N> c0 = Lanes<float, N>::load(cos + w), s0 = Lanes<float, N>::load(sin + w);
      const Floats<N> c1 = Lanes<float, N>::load(cos + odd + w), s1 = Lanes<float, N>::load(sin + odd + w);
      Lanes<uint32_t, N>::store(out + 2 * w, Of::joined(a0 * c0 - b0 * s0, a1 * c1 - b1 * s1));
      Lanes<uint32_t, N>::store(out + pairs + 2 * w, Of::joined(b0 * c0 + a0 * s0, b1 * c1 + a1 * s1));
    }
    if constexpr (N > 1) {
      turn<N / 2>(x, out, cos, sin, pairs, w);
    } else if (pairs % 2) {
      const float a = widen(x[2 * w]), b = widen(x[pairs + 2 * w]);
      out[2 * w] = narrow<Store>(a * cos[w] - b * sin[w]), out[pairs + 2 * w] = narrow<Store>(b * cos[w] + a * sin[w]);
    }
  }
};

// And here a word is a pair.
template <class Half> struct HalvesBeside {
  typedef Half Store;
  typedef float Real;
  static constexpr int EACH = 1;
  static void lay(const float *cos, const float *sin, float sign, int64_t pairs, float *c, float *s) {
    for (int64_t p = 0; p < pairs; p++) c[p] = plain(cos[p]), s[p] = plain(sign * sin[p]);
  }
  template <int N = WIDTH<float>>
  static INLINE void turn(const Store *x, Store *out, const float *cos, const float *sin, int64_t pairs, int64_t p = 0) {
    typedef Halves<Store, N> Of;
    for (; p + N <= pairs; p += N) {
      const Words<N> both = Lanes<uint32_t, N>::load(x + 2 * p);
      const Floats<N> a = Of::first(both), b = Of::second(both);
      const Floats<N> c = Lanes<float, N>::load(cos + p), s = Lanes<float, N>::load(sin + p);
      Lanes<uint32_t, N>::store(out + 2 * p, Of::joined(a * c - b * s, b * c + a * s));
    }
    if constexpr (N > 1) turn<N / 2>(x, out, cos, sin, pairs, p);
  }
};

template <class Store>
INLINE void copy(const Store *x, int64_t from, Store *out, int64_t to, int64_t begin, int64_t end) {
  if (from == 1 && to == 1)
    memcpy(out + begin, x + begin, (end - begin) * sizeof(Store));
  else
    for (int64_t d = begin; d < end; d++) out[d * to] = x[d * from];
}

// Tokens of one head, with the cosines and sines of those after the prefix. `row`: room for the channels of one.
template <class Row, class Store = typename Row::Store, class Real = typename Row::Real>
void turn_tokens(const Rotary &r, int64_t b, int64_t h, int64_t begin, int64_t end, const Real *cos, const Real *sin, Store *row) {
  const Tensor from = r.x, to = r.out;
  const int64_t pairs = r.pairs, channels = r.channels, prefix = r.prefix, each = pairs * Row::EACH;
  const bool close = from.channel == 1 && to.channel == 1, copies = from.data != to.data;
  const Store *x = (const Store *)from.data + b * from.batch + h * from.head + begin * from.token;
  Store *out = (Store *)to.data + b * to.batch + h * to.head + begin * to.token;
  for (int64_t t = begin; t < end; t++, x += from.token, out += to.token) {
    const int64_t turned = t < prefix ? 0 : 2 * pairs;
    if (turned && close) {
      Row::turn(x, out, cos, sin, pairs);
    } else if (turned) {
      copy(x, from.channel, row, 1, 0, turned);
      Row::turn(row, row, cos, sin, pairs);
      copy<Store>(row, 1, out, to.channel, 0, turned);
    }
    if (turned) cos += each, sin += each;
    if (turned < channels && copies) copy(x, from.channel, out, to.channel, turned, channels);
  }
}

template <class Row>
int rotate(const Rotary &r) {
  typedef typename Row::Store Store;
  typedef typename Row::Real Real;
  // Heads of the same tokens follow each other, so that their cosines and sines are read, and laid out, once.
  const int64_t block = least<int64_t>(r.tokens, 64), grain = 32768;
  const int64_t blocks = block ? (r.tokens + block - 1) / block : 0, units = r.batch * blocks * r.heads;
  const int64_t numbers = r.batch * r.heads * r.tokens * r.channels;
  const int64_t parts = least(least(r.threads * 4, numbers / grain + 1), units);
  const bool given = std::is_same<Row, Apart<Real>>::value && !r.backwards;  // as they are read
  const int64_t each = r.pairs * Row::EACH;
  const auto lay_out = [&](Arena arena, Real *&cos, Real *&sin, Store *&row) {
    cos = arena.take<Real>(given ? 0 : block * each), sin = arena.take<Real>(given ? 0 : block * each);
    row = arena.take<Store>(2 * r.pairs);
    return arena.used();
  };
  Real *cos, *sin;
  Store *row;
  Blocks blocks_of(parts, lay_out(Arena(), cos, sin, row));
  return 0;
}

}  // namespace
