// Rotary alone: pairs of channels turn on their way from x to out, which may be the same memory. One pass over it.
#pragma once
#include <type_traits>

#include "parallel.h"
#include "problem.h"
#include "vector.hpp"
// after what it needs
#include "arena.hpp"

namespace {

template <class Item, int N> struct Lanes {
  typedef Item Vector __attribute__((vector_size(N * sizeof(Item))));
  typedef Item Loose __attribute__((vector_size(N * sizeof(Item)), aligned(2), may_alias));
  static INLINE Vector load(const void *p) {
    if constexpr (sizeof(Vector) <= POSENC_BYTES) return *(const Loose *)p;
    Halved parts;
    parts.half[0] = Half::load(p), parts.half[1] = Half::load((const char *)p + sizeof(Vector) / 2);
    return parts.whole;
  }
  // Items that are two numbers: the first one in the lower half.
  static INLINE Vector load_pairs(const void *p) { return in_order(load(p)); }
  template <bool PAST> static INLINE void store_pairs(void *p, Vector v) { store<PAST>(p, in_order(v)); }
  static INLINE Vector in_order(Vector v) {
    if constexpr (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__) return v;
    else return v << (int)sizeof(Item) * 4 | v >> (int)sizeof(Item) * 4;
  }
  typedef Lanes<Item, N == 1 ? 1 : N / 2> Half;
  union Halved { Vector whole; typename Half::Vector half[2]; };
  // PAST: not through the caches, to where lines of theirs begin.
  template <bool PAST> static INLINE void store(void *p, Vector v) {
#if defined(__AVX512F__)
    if constexpr (PAST && sizeof(Vector) == 64) return _mm512_stream_si512((__m512i *)p, (__m512i)v);
#endif
#if defined(__AVX__)
    if constexpr (PAST && sizeof(Vector) == 32) return _mm256_stream_si256((__m256i *)p, (__m256i)v);
#endif
#if defined(__SSE2__)
    if constexpr (PAST && sizeof(Vector) == 16) return _mm_stream_si128((__m128i *)p, (__m128i)v);
#endif
    if constexpr (sizeof(Vector) <= POSENC_BYTES) return void(*(Loose *)p = v);
    const Halved parts = {v};
    Half::template store<PAST>(p, parts.half[0]), Half::template store<PAST>((char *)p + sizeof(Vector) / 2, parts.half[1]);
  }
};
template <int N> using Floats = typename Lanes<float, N>::Vector;
template <int N> using Words = typename Lanes<uint32_t, N>::Vector;

// Two 16-bit numbers in a word, as floats, and back: what `widen` and `narrow` do.
template <class Store, int N> struct Halves;
template <int N> struct Halves<BFloat16, N> {
  static INLINE Floats<N> first(Words<N> x) { return (Floats<N>)(x << 16); }
  static INLINE Floats<N> second(Words<N> x) { return (Floats<N>)(x & 0xffff0000u); }
  static INLINE Words<N> joined(Floats<N> a, Floats<N> b) { return rounded(a) >> 16 | (rounded(b) & 0xffff0000u); }
  // NaN stays: the lower half of its bits is zero, as there is none among the cosines and sines but such
  static INLINE Words<N> rounded(Floats<N> x) {
    const Words<N> bits = (Words<N>)x;
#if defined(__AVX512F__)
    if constexpr (N == 16) {
      const __mmask16 odd = _mm512_test_epi32_mask((__m512i)bits, _mm512_set1_epi32(0x10000));
      return (Words<N>)_mm512_mask_add_epi32((__m512i)(bits + 0x7fff), odd, (__m512i)bits, _mm512_set1_epi32(0x8000));
    }
#endif
    return bits + 0x7fff + (bits >> 16 & 1);
  }
};
template <int N> struct Halves<Float16, N> {
  static INLINE Floats<N> first(Words<N> x) { return widened(x & 0xffff); }
  static INLINE Floats<N> second(Words<N> x) { return widened(x >> 16); }
  static INLINE Words<N> joined(Floats<N> a, Floats<N> b) { return narrowed(a) | narrowed(b) << 16; }
  static INLINE Floats<N> widened(Words<N> x) {
#if defined(__AVX512F__)
    if constexpr (N == 16) return (Floats<N>)_mm512_cvtph_ps(_mm512_cvtepi32_epi16((__m512i)x));
#elif defined(__F16C__) && defined(__AVX2__)
    if constexpr (N == 8) return (Floats<N>)_mm256_cvtph_ps(_mm_packus_epi32(_mm256_castsi256_si128((__m256i)x), _mm256_extracti128_si256((__m256i)x, 1)));
#endif
    const Words<N> sign = (x & 0x8000) << 16, rest = (x & 0x7fff) << 13, value = (Words<N>)((Floats<N>)rest * 0x1p112f);
    return (Floats<N>)(sign | (rest >= 0x7c00u << 13 ? rest | 0x7f800000u : value));
  }
  static INLINE Words<N> narrowed(Floats<N> x) {
#if defined(__AVX512F__)
    if constexpr (N == 16) return (Words<N>)_mm512_cvtepu16_epi32(_mm512_cvtps_ph((__m512)x, _MM_FROUND_TO_NEAREST_INT));
#elif defined(__F16C__) && defined(__AVX2__)
    if constexpr (N == 8) return (Words<N>)_mm256_cvtepu16_epi32(_mm256_cvtps_ph((__m256)x, _MM_FROUND_TO_NEAREST_INT));
#endif
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
// (a, b) -> (a cos - b sin, b cos + a sin)

// Cosines and sines of one token.
template <class Real> struct Angles {
  const Real *cos, *sin;
  int64_t odd;  // numbers from those of even pairs to those of odd ones, where they lie apart
};

// a in the first half of the channels, b in the second
template <class Number> struct Apart {
  typedef Number Store, Real;
  static int64_t numbers(int64_t pairs) { return pairs; }  // from a token's cosines to the next one's
  static void lay(const Real *cos, const Real *sin, Real sign, int64_t tokens, int64_t pairs, Real *__restrict c, Real *__restrict s, int64_t) {
    for (int64_t n = 0; n < tokens * pairs; n++) c[n] = cos[n], s[n] = sign * sin[n];
  }
  template <bool PAST, int N = WIDTH<Real>>
  static INLINE void turn(const Real *x, Real *out, Angles<Real> angles, int64_t pairs, int64_t p = 0) {
    typedef Lanes<Real, N> Reals;
    for (; p + N <= pairs; p += N) {
      const auto a = Reals::load(x + p), b = Reals::load(x + pairs + p);
      const auto c = Reals::load(angles.cos + p), s = Reals::load(angles.sin + p);
      Reals::template store<PAST>(out + p, a * c - b * s), Reals::template store<PAST>(out + pairs + p, b * c + a * s);
    }
    if constexpr (N > 1)
      if (p < pairs) turn<PAST, N / 2>(x, out, angles, pairs, p);
  }
};

// a and b are neighbours: two floats are read as one number of 64 bits
template <class Number> struct Beside : Apart<Number> {
  typedef Number Real;
  template <bool PAST, int N = sizeof(Real) == 8 ? 1 : WIDTH<Real>>
  static INLINE void turn(const Real *x, Real *out, Angles<Real> angles, int64_t pairs, int64_t p = 0) {
    for (; p + N <= pairs; p += N) {
      if constexpr (sizeof(Real) == 4) {
        typedef Lanes<uint64_t, N> Both;
        typedef typename Both::Vector Pairs;
        const Pairs both = Both::load_pairs(x + 2 * p);
        const auto a = (Floats<N>)__builtin_convertvector(both, Words<N>), b = (Floats<N>)__builtin_convertvector(both >> 32, Words<N>);
        const auto c = Lanes<Real, N>::load(angles.cos + p), s = Lanes<Real, N>::load(angles.sin + p);
        const auto first = (Words<N>)(a * c - b * s), second = (Words<N>)(b * c + a * s);
        Both::template store_pairs<PAST>(out + 2 * p, __builtin_convertvector(first, Pairs) | __builtin_convertvector(second, Pairs) << 32);
      } else {
        typedef Lanes<Real, 2> Pair;
        const auto v = Pair::load(x + 2 * p);
        const typename Pair::Vector swapped = {v[1], v[0]}, s = {-angles.sin[p], angles.sin[p]};
        Pair::template store<PAST>(out + 2 * p, v * angles.cos[p] + swapped * s);
      }
    }
    if constexpr (N > 1)
      if (p < pairs) turn<PAST, N / 2>(x, out, angles, pairs, p);
  }
};

INLINE float plain(float x) { return x == x ? x : float_of(0x7fc00000); }

// The same for 16-bit numbers. A word is of two pairs, and cosines and sines of even pairs lie apart from those of odd ones.
template <class Half> struct HalvesApart {
  typedef Half Store;
  typedef float Real;
  static int64_t numbers(int64_t pairs) { return (pairs + 1) / 2; }
  static void lay(const float *cos, const float *sin, float sign, int64_t tokens, int64_t pairs, float *__restrict c, float *__restrict s, int64_t odd) {
    const bool even = pairs % 2 == 0;  // then tokens need not be told apart
    const int64_t rows = even ? 1 : tokens, count = even ? tokens * pairs : pairs, words = (count + 1) / 2;
    for (int64_t t = 0; t < rows; t++, cos += count, sin += count, c += words, s += words) {
      for (int64_t w = 0; w < count / 2; w++) {
        c[w] = plain(cos[2 * w]), c[odd + w] = plain(cos[2 * w + 1]);
        s[w] = plain(sign * sin[2 * w]), s[odd + w] = plain(sign * sin[2 * w + 1]);
      }
      if (!even) c[words - 1] = plain(cos[count - 1]), s[words - 1] = plain(sign * sin[count - 1]);
    }
  }
  template <bool PAST, int N = WIDTH<float>>
  static INLINE void turn(const Store *x, Store *out, Angles<float> angles, int64_t pairs, int64_t w = 0) {
    typedef Halves<Store, N> Of;
    for (; 2 * (w + N) <= pairs; w += N) {
      const Words<N> a = Lanes<uint32_t, N>::load_pairs(x + 2 * w), b = Lanes<uint32_t, N>::load_pairs(x + pairs + 2 * w);
      const Floats<N> a0 = Of::first(a), b0 = Of::first(b), a1 = Of::second(a), b1 = Of::second(b);
      const float *cos = angles.cos + w, *sin = angles.sin + w;
      const Floats<N> c0 = Lanes<float, N>::load(cos), s0 = Lanes<float, N>::load(sin);
      const Floats<N> c1 = Lanes<float, N>::load(cos + angles.odd), s1 = Lanes<float, N>::load(sin + angles.odd);
      Lanes<uint32_t, N>::template store_pairs<PAST>(out + 2 * w, Of::joined(a0 * c0 - b0 * s0, a1 * c1 - b1 * s1));
      Lanes<uint32_t, N>::template store_pairs<PAST>(out + pairs + 2 * w, Of::joined(b0 * c0 + a0 * s0, b1 * c1 + a1 * s1));
    }
    if (2 * w == pairs) return;
    if constexpr (N > 1) {
      turn<PAST, N / 2>(x, out, angles, pairs, w);
    } else {
      const float a = widen(x[2 * w]), b = widen(x[pairs + 2 * w]), c = angles.cos[w], s = angles.sin[w];
      out[2 * w] = narrow<Store>(a * c - b * s), out[pairs + 2 * w] = narrow<Store>(b * c + a * s);
    }
  }
};

// And here a word is a pair.
template <class Half> struct HalvesBeside {
  typedef Half Store;
  typedef float Real;
  static int64_t numbers(int64_t pairs) { return pairs; }
  static void lay(const float *cos, const float *sin, float sign, int64_t tokens, int64_t pairs, float *__restrict c, float *__restrict s, int64_t) {
    for (int64_t n = 0; n < tokens * pairs; n++) c[n] = plain(cos[n]), s[n] = plain(sign * sin[n]);
  }
  template <bool PAST, int N = WIDTH<float>>
  static INLINE void turn(const Store *x, Store *out, Angles<float> angles, int64_t pairs, int64_t p = 0) {
    typedef Halves<Store, N> Of;
    for (; p + N <= pairs; p += N) {
      const Words<N> both = Lanes<uint32_t, N>::load_pairs(x + 2 * p);
      const Floats<N> a = Of::first(both), b = Of::second(both);
      const Floats<N> c = Lanes<float, N>::load(angles.cos + p), s = Lanes<float, N>::load(angles.sin + p);
      Lanes<uint32_t, N>::template store_pairs<PAST>(out + 2 * p, Of::joined(a * c - b * s, b * c + a * s));
    }
    if constexpr (N > 1)
      if (p < pairs) turn<PAST, N / 2>(x, out, angles, pairs, p);
  }
};

template <class Store>
INLINE void copy(const Store *x, int64_t from, Store *out, int64_t to, int64_t count) {
  if (from == 1 && to == 1)
    memcpy(out, x, count * sizeof(Store));
  else
    for (int64_t d = 0; d < count; d++) out[d * to] = x[d * from];
}

// Tokens of one head, all of which turn. PAIRS is the number of pairs, where it is not 0. `row`: room for what turns in one.
template <class Row, bool PAST, int PAIRS, class Store = typename Row::Store, class Real = typename Row::Real>
void turn_tokens(const Rotary &r, const Store *x, Store *out, Angles<Real> angles, int64_t tokens, Store *row) {
  const int64_t pairs = PAIRS ? PAIRS : r.pairs, from = r.x.channel, to = r.out.channel;
  const int64_t kept = r.x.data == r.out.data ? 0 : r.channels - 2 * pairs;
  int64_t next = r.x.token, next_out = r.out.token, numbers = Row::numbers(pairs);
  // A load waits for a store before it whose address agrees in its lowest 12 bits: where what is written lies so before
  // what is read next, the last token comes first.
  const int64_t ahead = ((int64_t)out - (int64_t)x) & 4095;
  if (ahead && ahead < 2048) {
    x += (tokens - 1) * next, out += (tokens - 1) * next_out;
    angles.cos += (tokens - 1) * numbers, angles.sin += (tokens - 1) * numbers;
    next = -next, next_out = -next_out, numbers = -numbers;
  }
  for (int64_t t = 0; t < tokens; t++, x += next, out += next_out, angles.cos += numbers, angles.sin += numbers) {
    if (PAIRS)  // a head begins elsewhere than the one before: nothing else foresees it
      for (int line = 0; line < 2 * PAIRS * (int)sizeof(Store); line += 64) __builtin_prefetch((const char *)(x + 16 * next) + line);
    if (PAIRS || (from == 1 && to == 1)) {
      Row::template turn<PAST>(x, out, angles, pairs);
    } else {
      copy(x, from, row, 1, 2 * pairs);
      Row::template turn<false>(row, row, angles, pairs);
      copy<Store>(row, 1, out, to, 2 * pairs);
    }
    if (kept > 0) copy(x + 2 * pairs * from, from, out + 2 * pairs * to, to, kept);
  }
}

// Heads of the same tokens follow each other, so that their cosines and sines are read, and laid out, once.
template <class Row>
struct Rotating {
  typedef typename Row::Store Store;
  typedef typename Row::Real Real;
  const Rotary &r;
  int64_t block, blocks, units;  // a unit is a block of tokens of one head
  int64_t room;                  // for cosines of a block, those of even pairs or of odd ones
  bool given;                    // cosines and sines lie as they are read
  bool past;                     // so much is written past the caches, which would not hold it until it is read
  Real *cos = nullptr, *sin = nullptr;
  Store *row = nullptr;

  explicit Rotating(const Rotary &rotary)
      : r(rotary), block(least<int64_t>(r.tokens, 128)), blocks(block ? (r.tokens + block - 1) / block : 0),
        units(r.batch * r.heads * blocks), room(block * Row::numbers(r.pairs)),
        given(std::is_same<Store, Real>::value && !r.backwards),
        past(numbers() * (int64_t)sizeof(Store) >= 1 << 22 && r.x.data != r.out.data && in_lines()) {}

  int64_t numbers() const { return r.batch * r.heads * r.tokens * r.channels; }
  // Whether what turns in a token is whole lines of the caches.
  bool in_lines() const {
    const int64_t starts = r.out.batch | r.out.head | r.out.token | r.pairs;
    return r.out.channel == 1 && ((int64_t)r.out.data | starts * (int64_t)sizeof(Store)) % 64 == 0;
  }
  int64_t lay_out(char *base) {
    Arena arena(base);
    if (!given) cos = arena.take<Real>(2 * room), sin = arena.take<Real>(2 * room);
    row = arena.take<Store>(2 * r.pairs);
    return arena.used();
  }
  void turn(int64_t unit, int64_t &laid) {
    const int64_t h = unit % r.heads, tokens = unit / r.heads, b = tokens / blocks;
    const int64_t begin = tokens % blocks * block, end = least(begin + block, r.tokens), first = most(begin, r.prefix);
    const int64_t at = b * r.turn_batch + h * r.turn_head + (first - r.prefix) * r.pairs;
    Angles<Real> angles{(const Real *)r.cos + at, (const Real *)r.sin + at, room};
    const Store *x = (const Store *)r.x.data + b * r.x.batch + h * r.x.head;
    Store *out = (Store *)r.out.data + b * r.out.batch + h * r.out.head;
    for (int64_t t = begin; t < least(first, end) && r.x.data != r.out.data; t++)
      copy(x + t * r.x.token, r.x.channel, out + t * r.out.token, r.out.channel, r.channels);
    if (first >= end) return;
    if (!given) {
      const int64_t now = r.turn_head ? unit : tokens;
      if (now != laid) Row::lay(angles.cos, angles.sin, r.backwards ? -1 : 1, end - first, r.pairs, cos, sin, room);
      laid = now, angles.cos = cos, angles.sin = sin;
    }
    const auto turn = past ? chosen<true>() : chosen<false>();
    turn(r, x + first * r.x.token, out + first * r.out.token, angles, end - first, row);
  }
  // Common widths have loops of their own.
  template <bool PAST>
  auto chosen() const {
    const bool close = r.x.channel == 1 && r.out.channel == 1;
    if (close && r.pairs == 32) return turn_tokens<Row, PAST, 32>;
    if (close && r.pairs == 64) return turn_tokens<Row, PAST, 64>;
    return turn_tokens<Row, PAST, 0>;
  }
};

// Calls `work` with what turns a tensor.
template <class Work>
void with_rotating(const Rotary &r, Work work) {
  const auto either = [&](auto beside, auto apart) { r.interleaved ? work(beside) : work(apart); };
  if (r.dtype == FLOAT64) either(Rotating<Beside<double>>(r), Rotating<Apart<double>>(r));
  if (r.dtype == FLOAT32) either(Rotating<Beside<float>>(r), Rotating<Apart<float>>(r));
  if (r.dtype == BFLOAT16) either(Rotating<HalvesBeside<BFloat16>>(r), Rotating<HalvesApart<BFloat16>>(r));
  if (r.dtype == FLOAT16) either(Rotating<HalvesBeside<Float16>>(r), Rotating<HalvesApart<Float16>>(r));
}

// Several tensors, queries and keys above all: threads are woken once.
int rotate(const Rotary *tensors, int64_t count) {
  constexpr int64_t FEW = 32768;  // numbers, for which another thread is not worth waking
  int64_t parts = 0, bytes = 0, numbers = 0, threads = 1;
  const auto parts_of = [](const auto &each) { return least(least(4 * each.r.threads, each.numbers() / FEW + 1), each.units); };
  for (int64_t n = 0; n < count; n++)
    with_rotating(tensors[n], [&](auto each) {
      parts += parts_of(each), bytes = most(bytes, each.lay_out(nullptr)), numbers += each.numbers(), threads = each.r.threads;
    });
  if (!parts) return 0;
  Blocks memory(parts, bytes);
  if (!memory.ok()) return 1;
  auto run = [&](int64_t part) {
    int64_t before = 0;
    for (int64_t n = 0; n < count; n++)
      with_rotating(tensors[n], [&](auto each) {
        const int64_t own = parts_of(each), which = part - before;
        before += own;
        if (which < 0 || which >= own) return;
        each.lay_out(memory[part]);
        int64_t laid = -1;
        for (int64_t unit = begin_of(which, each.units, own); unit < begin_of(which + 1, each.units, own); unit++) each.turn(unit, laid);
      });
#if defined(__SSE2__)
    _mm_sfence();  // what was written past the caches is there for all
#endif
  };
  posenc_parallel(parts, least(threads, numbers / FEW + 1), [](void *context, int64_t part) { (*(decltype(run) *)context)(part); }, &run);
  return 0;
}

}  // namespace
