// Few queries against many keys, as when decoding: keys and values are read once, where they lie, for all query heads that
// share them, and nothing is packed. Keys are dealt to threads, and what each found is put together at the end.
#pragma once
#include "forward.hpp"

namespace {

constexpr int64_t FEW_QUERIES = 16;  // of all heads that share a key head

template <class Real>
struct Few {
  static constexpr int W = WIDTH<Real>;
  const Attention &a;
  Plan plan;  // a block is all queries of a head: they are fewer than the rows of a block
  Tiles tiles;
  Seen<Real> seen;
  int64_t grouped, rows, deep, value_deep, head = -1;
  Real *q, *logits, *sums, *key, *values;
  Real top[FEW_QUERIES], total[FEW_QUERIES];
  Turn<Real> turned;

  static bool fits(const Attention &a) {
    if (a.lse || a.heads / a.groups * a.queries > FEW_QUERIES) return false;
    for (int64_t n = 0; n < a.term_count; n++)
      if (a.terms[n].kind != TABLE && a.terms[n].kind != PAIRS) return false;
    return true;
  }

  Few(const Attention &attention, Arena &arena) : a(attention), plan(attention) {
    grouped = a.heads / a.groups, rows = grouped * a.queries;
    deep = padded<Real>(a.channels), value_deep = padded<Real>(a.value_channels);
    tiles.lay_out<Real>(arena, a);
    seen.lay_out(arena, a, tiles);
    q = arena.take<Real>(FEW_QUERIES * deep);
    logits = arena.take<Real>(FEW_QUERIES * TILE);
    sums = arena.take<Real>((FEW_QUERIES + STRIP) * value_deep);
    key = arena.take<Real>(deep);
    values = arena.take<Real>(TILE * value_deep);
  }

  Block block_of(int64_t b, int64_t g, int64_t within) const { return {0, b, g * grouped + within, g, 0, a.queries}; }

  // The queries of a key head against tiles from `begin` to `end`.
  void attend(int64_t b, int64_t g, int64_t begin, int64_t end) {
    memset((void *)q, 0, FEW_QUERIES * deep * sizeof(Real));
    memset((void *)sums, 0, FEW_QUERIES * value_deep * sizeof(Real));
    seen.enter(b, tiles);
    for (int64_t within = 0; within < grouped; within++) {
      const Block block = block_of(b, g, within);
      const auto turn_query = Turn<Real>::of(a.rotation, true, b, block.h, a.query_prefix);
      for (int64_t i = 0; i < a.queries; i++) {
        Real *row = q + (within * a.queries + i) * deep;
        read_row(a.dtype, a.q.data, b * a.q.batch + block.h * a.q.head + i * a.q.token, a.q.channel, a.channels, row);
        turn_query(row, i);
        for (int64_t d = 0; d < a.channels; d++) row[d] *= (Real)a.scale;
      }
    }
    turned = Turn<Real>::of(a.rotation, false, b, g, a.key_prefix);
    for (int64_t r = 0; r < rows; r++) top[r] = -(Real)INFINITY, total[r] = 0;
    for (int64_t t = begin; t < end; t++) {
      const Tile &tile = tiles.tile[t];
      meet_keys(b, g, tile);
      for (int64_t within = 0; within < grouped; within++) {
        const Block block = block_of(b, g, within);
        Real *own = logits + within * a.queries * TILE;
        for (int64_t n = 0; n < a.term_count; n++)
          for (int64_t i = 0; i < a.queries; i++) add(a.terms[n], block, i, tile, own + i * TILE);
        int64_t columns;
        seen.start(block);
        const Sight sight = seen.look(block, tiles, t, columns);
        for (int64_t i = 0; i < a.queries; i++)
          for (int64_t c = 0; c < tile.columns; c++)
            if (c >= tile.count || sight == NONE || (sight == PART && !(seen.visible[i * TILE + c] && c < columns))) own[i * TILE + c] = -(Real)INFINITY;
      }
      for (int64_t r = 0; r < rows; r++) weigh(r, tile.columns);
      const Real *rows_of_values = value_rows(b, g, tile);
      accumulate(sums, value_deep, rows, logits, (int64_t)TILE, rows_of_values, values_direct ? a.v.token : value_deep, tile.count, value_deep);
    }
  }

  // Logits of a query += a term, whose numbers are read where they lie: each of them once.
  static void add_falling(Real *__restrict to, const Real *__restrict line) {
    for (int n = 0; n < W; n++) to[n] += line[-n];
  }
  static bool falls(const int32_t *code) {
    int other = 0;
    for (int n = 0; n < W; n++) other |= code[n] ^ (code[0] - n);
    return !other;
  }
  void add(const Term &term, const Block &block, int64_t i, const Tile &tile, Real *to) const {
    const bool prefix_query = i < a.query_prefix, prefix_tile = tile.key < a.key_prefix;
    const Real *table = (const Real *)term.table + block.b * term.batch + block.h * term.head;
    i -= a.query_prefix;
    const int64_t j = tile.key - a.key_prefix;
    if (prefix_query || prefix_tile) {
      if (!term.prefix) return;
      const Real number = ((const Real *)term.prefix + block.h * term.prefix_head)[!prefix_query ? 1 : prefix_tile ? 2 : 0];
      for (int64_t c = 0; c < tile.count; c++) to[c] += number;
    } else if (term.kind == PAIRS) {
      const Real *pair = table + i * term.query + j * term.key;
      for (int64_t c = 0; c < tile.count; c++) to[c] += pair[c * term.key];
    } else {
      const Real *line = table + term.query_code[block.b * term.query_code_batch + i];
      const int32_t *code = term.key_code + block.b * term.key_code_batch + j;
      int64_t c = 0;
      for (; c + W <= tile.count; c += W) {
        if (falls(code + c)) add_falling(to + c, line + code[c]);
        else
          for (int n = 0; n < W; n++) to[c + n] += line[code[c + n]];
      }
      for (; c < tile.count; c++) to[c] += line[code[c]];
    }
  }

  // Inner products of all queries with the keys of a tile.
  void meet_keys(int64_t b, int64_t g, const Tile &tile) {
    const bool direct = !turned.cos && a.dtype == (sizeof(Real) == 8 ? FLOAT64 : FLOAT32) && a.k.channel == 1 && deep == a.channels;
    for (int64_t d = a.channels; d < deep; d++) key[d] = 0;
    for (int64_t c = 0; c < tile.count; c++) {
      const int64_t at = b * a.k.batch + g * a.k.head + (tile.key + c) * a.k.token;
      const Real *row = key;
      if (direct) {
        row = (const Real *)a.k.data + at;
      } else {
        read_row(a.dtype, a.k.data, at, a.k.channel, a.channels, key);
        turned(key, tile.key + c);
      }
      for (int64_t r = 0; r < rows; r++) {
        Vector<Real> sum{};
        for (int64_t d = 0; d < deep; d += W) sum += load(q + r * deep + d) * load(row + d);
        logits[r * TILE + c] = sum_of<Real>(sum);
      }
    }
  }

  bool values_direct = false;
  const Real *value_rows(int64_t b, int64_t g, const Tile &tile) {
    const int64_t at = b * a.v.batch + g * a.v.head + tile.key * a.v.token;
    values_direct = a.dtype == (sizeof(Real) == 8 ? FLOAT64 : FLOAT32) && a.v.channel == 1 && value_deep == a.value_channels;
    if (values_direct) return (const Real *)a.v.data + at;
    for (int64_t c = 0; c < tile.count; c++) {
      Real *row = values + c * value_deep;
      read_row(a.dtype, a.v.data, at + c * a.v.token, a.v.channel, a.value_channels, row);
      for (int64_t e = a.value_channels; e < value_deep; e++) row[e] = 0;
    }
    return values;
  }

  void weigh(int64_t r, int64_t columns) {
    Real *row = logits + r * TILE;
    Vector<Real> largest = load(row);
    for (int64_t c = W; c < columns; c += W) largest = larger(largest, load(row + c));
    const Real now = most(top[r], largest_of<Real>(largest));
    if (now > top[r]) {
      const Real shrink = std::exp(top[r] - now);
      top[r] = now, total[r] *= shrink;
      for (int64_t e = 0; e < value_deep; e += W) store(sums + r * value_deep + e, load(sums + r * value_deep + e) * shrink);
    }
    const Vector<Real> shift = splat(top[r] == -(Real)INFINITY ? Real(0) : top[r]);
    Vector<Real> sum{};
    for (int64_t c = 0; c < columns; c += W) {
      const Vector<Real> weight = exponential(load(row + c) - shift);
      sum += weight;
      store(row + c, weight);
    }
    total[r] += sum_of<Real>(sum);
  }
};

// What one part found of one row: the largest logit, the sum of weights relative to it, and the weighted values.
template <class Real>
void put_together(const Attention &a, const Real *found, int64_t chunks, int64_t chunk, int64_t b, int64_t h, int64_t i, Real *row) {
  Real top = -(Real)INFINITY, total = 0;
  for (int64_t n = 0; n < chunks; n++) top = most(top, found[n * chunk]);
  for (int64_t e = 0; e < a.value_channels; e++) row[e] = 0;
  for (int64_t n = 0; n < chunks; n++) {
    const Real *part = found + n * chunk;
    const Real share = top == -(Real)INFINITY ? Real(1) : std::exp(part[0] - top);
    total += part[1] * share;
    for (int64_t e = 0; e < a.value_channels; e++) row[e] += part[2 + e] * share;
  }
  const bool zero = total == 0 && (a.blind_is_zero || a.keys == 0);
  for (int64_t e = 0; e < a.value_channels; e++) row[e] = zero && row[e] == 0 ? Real(0) : row[e] / (zero ? Real(1) : total);
  write_row(a.dtype, a.out.data, b * a.out.batch + h * a.out.head + i * a.out.token, a.out.channel, a.value_channels, row);
}

template <class Real>
int few(const Attention &a) {
  Arena counted;
  const Few<Real> measured(a, counted);
  const int64_t units = a.batch * a.groups, threads = useful_threads(a);
  const int64_t chunks = most<int64_t>(1, least(measured.tiles.count, (threads + units - 1) / units));
  const int64_t size = 2 + a.value_channels, rows = measured.rows;
  const int64_t chunk = rows * size + a.value_channels;  // what a part found, and room to put a row together
  Free memory(least(threads, units * chunks), counted.used());
  Blocks found(1, units * chunks * chunk * sizeof(Real));
  if (!memory.ok() || !found.ok()) return NO_MEMORY;
  parallel(units * chunks, threads, [&](int64_t p) {
    const int64_t n = memory.take(), unit = p / chunks, which = p % chunks;
    Arena arena(memory[n]);
    Few<Real> part(a, arena);
    part.attend(unit / a.groups, unit % a.groups, part.tiles.count * which / chunks, part.tiles.count * (which + 1) / chunks);
    Real *to = (Real *)found[0] + p * chunk;
    for (int64_t r = 0; r < rows; r++) {
      to[r * size] = part.top[r], to[r * size + 1] = part.total[r];
      memcpy(to + r * size + 2, part.sums + r * part.value_deep, a.value_channels * sizeof(Real));
    }
    memory.give(n);
  });
  for (int64_t unit = 0; unit < units; unit++)
    for (int64_t r = 0; r < rows; r++) {
      Real *first = (Real *)found[0] + unit * chunks * chunk;
      put_together(a, first + r * size, chunks, chunk, unit / a.groups, unit % a.groups * measured.grouped + r / a.queries, r % a.queries, first + rows * size);
    }
  return DONE;
}

}  // namespace
