// Vectors as wide as the instruction set has them, by the vector extensions of gcc and clang; conversions of 16-bit floats.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
#define POSENC_BYTES 64
#define POSENC_REGISTERS 32
#elif defined(__AVX2__)
#define POSENC_BYTES 32
#define POSENC_REGISTERS 16
#elif defined(__aarch64__)
#define POSENC_BYTES 16
#define POSENC_REGISTERS 32
#else
#define POSENC_BYTES 16
#define POSENC_REGISTERS 16
#endif
#define INLINE inline __attribute__((always_inline))

namespace {

template <class Real> struct Types;
template <> struct Types<float> {
  typedef float Vector __attribute__((vector_size(POSENC_BYTES)));
  typedef float Loose __attribute__((vector_size(POSENC_BYTES), aligned(4), may_alias));
  typedef int32_t Bits __attribute__((vector_size(POSENC_BYTES)));
  typedef int32_t LooseBits __attribute__((vector_size(POSENC_BYTES), aligned(4), may_alias));
  typedef int32_t Integer;
};
template <> struct Types<double> {
  typedef double Vector __attribute__((vector_size(POSENC_BYTES)));
  typedef double Loose __attribute__((vector_size(POSENC_BYTES), aligned(8), may_alias));
  typedef int64_t Bits __attribute__((vector_size(POSENC_BYTES)));
  typedef int64_t LooseBits __attribute__((vector_size(POSENC_BYTES), aligned(8), may_alias));
  typedef int64_t Integer;
};
template <class Real> using Vector = typename Types<Real>::Vector;
template <class Real> using Bits = typename Types<Real>::Bits;
template <class Real> using Integer = typename Types<Real>::Integer;

template <class Real, int N> struct Wide { typedef Real Vector __attribute__((vector_size(N * sizeof(Real)))); };
template <class Real> constexpr int WIDTH = POSENC_BYTES / sizeof(Real);
// A block of products is 6 rows by this many vectors: as many sums as the registers hold.
constexpr int STRIP = 6, VECTORS = POSENC_REGISTERS == 32 ? 4 : 2;

template <class Real> INLINE Vector<Real> load(const Real *p) { return *(const typename Types<Real>::Loose *)p; }
template <class Real> INLINE void store(Real *p, Vector<Real> v) { *(typename Types<Real>::Loose *)p = v; }
template <class Real> INLINE Bits<Real> load_bits(const Integer<Real> *p) { return *(const typename Types<Real>::LooseBits *)p; }
template <class Real> INLINE Vector<Real> splat(Real x) { return x - Vector<Real>{}; }
template <class V> INLINE V larger(V a, V b) { return a > b ? a : b; }  // b if one of them is NaN
template <class Count> INLINE Count least(Count a, Count b) { return a < b ? a : b; }
template <class Count> INLINE Count most(Count a, Count b) { return a > b ? a : b; }
template <class Real> INLINE int64_t padded(int64_t count) { return (count + WIDTH<Real> - 1) / WIDTH<Real> * WIDTH<Real>; }

// Folds a vector in halves, in the same order everywhere.
template <class Real, int N, class Combine> INLINE Real fold(typename Wide<Real, N>::Vector v, Combine combine) {
  if constexpr (N == 1) {
    return v[0];
  } else {
    union { typename Wide<Real, N>::Vector whole; typename Wide<Real, N / 2>::Vector half[2]; } parts = {v};
    return fold<Real, N / 2>(combine(parts.half[0], parts.half[1]), combine);
  }
}
template <class Real> INLINE Real sum_of(Vector<Real> v) {
  return fold<Real, WIDTH<Real>>(v, [](auto a, auto b) { return a + b; });
}
template <class Real> INLINE Real largest_of(Vector<Real> v) {
  return fold<Real, WIDTH<Real>>(v, [](auto a, auto b) { return a > b ? a : b; });
}
// Whether any lane is set.
template <class Real> INLINE bool any(Bits<Real> bits) {
#if defined(__AVX512F__)
  return (sizeof(Real) == 4 ? _mm512_movepi32_mask((__m512i)bits) : _mm512_movepi64_mask((__m512i)bits)) != 0;
#elif defined(__AVX2__)
  return _mm256_movemask_epi8((__m256i)bits) != 0;
#elif defined(__SSE2__)
  return _mm_movemask_epi8((__m128i)bits) != 0;
#else
  Integer<Real> all = 0;
  for (int n = 0; n < WIDTH<Real>; n++) all |= bits[n];
  return all != 0;
#endif
}

// exp(x) for x up to about 88 (708): x = n ln 2 + f, a polynomial in f, and n goes to the exponent. About 1 unit in the
// last place. 0 where the result would be subnormal: there n is clamped to the exponent of all zeros. NaN stays.
INLINE Vector<float> exponential(Vector<float> x) {
  const float lowest = -88.02f, magic = 12582912.f;  // -127 ln 2; 1.5 * 2^23: adding it rounds to a whole number
  x = larger(splat(lowest), x);
  const Vector<float> rounded = x * 1.44269504088896341f + magic, n = rounded - magic;
  const Vector<float> f = (x - n * 0.693359375f) - n * -2.12194440e-4f;
  Vector<float> p = splat(1.9875691500e-4f);  // Cephes' expf
  p = p * f + 1.3981999507e-3f;
  p = p * f + 8.3334519073e-3f;
  p = p * f + 4.1665795894e-2f;
  p = p * f + 1.6666665459e-1f;
  p = p * f + 5.0000001201e-1f;
  p = p * f * f + f + 1.f;
  const Vector<float> power = (Vector<float>)(((Bits<float>)rounded << 23) + (127 << 23));
  return p * power;
}
INLINE Vector<double> exponential(Vector<double> x) {
  const double lowest = -709.08, magic = 6755399441055744.0;  // -1023 ln 2; 1.5 * 2^52
  x = larger(splat(lowest), x);
  const Vector<double> rounded = x * 1.4426950408889634 + magic, n = rounded - magic;
  const Vector<double> f = (x - n * 6.93145751953125e-1) - n * 1.42860682030941723212e-6;
  Vector<double> p = splat(1.0 / 6227020800.0);  // Taylor to the 13th power: 4e-18 for |f| <= ln 2 / 2
  for (double c : {1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040, 1.0 / 720,
                   1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5, 1.0, 1.0})
    p = p * f + c;
  const Vector<double> power = (Vector<double>)(((Bits<double>)rounded << 52) + (1023LL << 52));
  return p * power;
}

INLINE float float_of(uint32_t bits) { float x; memcpy(&x, &bits, sizeof x); return x; }
INLINE uint32_t bits_of(float x) { uint32_t bits; memcpy(&bits, &x, sizeof bits); return bits; }

struct BFloat16 { uint16_t bits; };
struct Float16 { uint16_t bits; };

INLINE float widen(float x) { return x; }
INLINE double widen(double x) { return x; }
INLINE float widen(BFloat16 x) { return float_of((uint32_t)x.bits << 16); }
INLINE float widen(Float16 x) {
  // the exponent moves by 112 through a product, which makes subnormals right too; infinity and NaN keep all ones
  const uint32_t sign = (uint32_t)(x.bits & 0x8000) << 16, rest = x.bits & 0x7fff;
  const float value = float_of(rest << 13) * 0x1p112f;
  return float_of(sign | (rest >= 0x7c00 ? (rest << 13) | 0x7f800000u : bits_of(value)));
}

template <class To> INLINE To narrow(float x);
template <> INLINE float narrow<float>(float x) { return x; }
template <> INLINE BFloat16 narrow<BFloat16>(float x) {  // to nearest, ties to even
  const uint32_t bits = bits_of(x);
  const uint16_t rounded = (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
  return {x == x ? rounded : (uint16_t)0x7fc0};
}
template <> INLINE Float16 narrow<Float16>(float x) {
  const uint32_t bits = bits_of(x), sign = (bits >> 16) & 0x8000, rest = bits & 0x7fffffff;
  // normal: 10 bits of mantissa remain, to nearest even. subnormal: adding 0.5 leaves the right bits at the end
  const uint32_t normal = (rest + 0xfff + ((rest >> 13) & 1) - (112u << 23)) >> 13;
  const uint32_t small = bits_of(float_of(rest) + 0.5f) - bits_of(0.5f);
  uint32_t half = rest < (113u << 23) ? small : normal;
  half = rest >= 0x477ff000u ? 0x7c00 : half;  // beyond 65519
  half = rest > 0x7f800000u ? 0x7e00 : half;
  return {(uint16_t)(sign | half)};
}
template <class To> INLINE To narrow(double x) { return (To)x; }

}  // namespace
