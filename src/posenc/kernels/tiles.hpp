// How a problem is cut: blocks of queries and tiles of keys, and which of the tiles a block sees.
#pragma once
#include "arena.hpp"
#include "problem.h"
#include "vector.hpp"

namespace {

constexpr int TILE = 128, ROWS = 54;  // at most; a multiple of the widest vector, and of a strip

struct Tile {
  int64_t key, count;     // keys from `key` on
  int64_t slot, columns;  // where it lies among packed keys, and how many there: count in whole vectors
};

// One or the other: prefix keys have tiles of their own, so that a tile is all prefix or none.
struct Tiles {
  Tile *tile = nullptr;
  int64_t count = 0, slots = 0;
  template <class Real>
  void lay_out(Arena &arena, const Attention &a) {
    const int64_t most_tiles = a.keys / TILE + 3;
    tile = arena.take<Tile>(most_tiles);
    count = slots = 0;
    const int64_t prefix = least(a.key_prefix, a.keys);
    for (int64_t key = 0; key < a.keys;) {
      const int64_t end = key < prefix ? prefix : a.keys, taken = least<int64_t>(TILE, end - key), columns = padded<Real>(taken);
      if (tile) tile[count] = {key, taken, slots, columns};
      count++, slots += columns, key += taken;
    }
  }
};

// Queries of one head.
struct Block {
  int64_t item, b, h, g, query, rows;
};

// All blocks in the order in which parts take them: by key head, batch row, query head of that key head, and queries.
struct Plan {
  int64_t rows, blocks, grouped, total;
  explicit Plan(const Attention &a) {
    rows = a.queries <= ROWS ? (a.queries + STRIP - 1) / STRIP * STRIP : 48;
    blocks = rows ? (a.queries + rows - 1) / rows : 0;
    grouped = a.heads / a.groups;
    total = a.groups * a.batch * grouped * blocks;
  }
  Block block(const Attention &a, int64_t item) const {
    const int64_t query = item % blocks * rows, unit = item / blocks;
    const int64_t within = unit % grouped, b = unit / grouped % a.batch, g = unit / grouped / a.batch;
    return {item, b, g * grouped + within, g, query, least(rows, a.queries - query)};
  }
};

// Whether a tile is seen by no query of a block, by all wholly, or in part.
enum Sight { NONE, PART, WHOLE };

struct Range {
  int64_t low, high;
  static Range of(const int64_t *from, int64_t count) {
    Range range{from[0], from[0]};
    for (int64_t n = 1; n < count; n++) range.low = least(range.low, from[n]), range.high = most(range.high, from[n]);
    return range;
  }
};

// What a function of the library returns.
enum Answer { DONE, NO_MEMORY, OUTSIDE, NO_ROW };

// Who sees whom, for the tiles of one batch row.
template <class Real>
struct Seen {
  const Attention *a = nullptr;
  const Visibility *v = nullptr;
  Range *orders = nullptr, *documents = nullptr;  // of each tile
  uint8_t *there = nullptr;                       // [slots], whether there is a key
  uint8_t *all_there = nullptr;                   // of each tile
  int64_t batch = -1;
  Integer<Real> *visible = nullptr;  // [ROWS][TILE], all bits set where a query sees a key
  Range block_order{}, block_document{};

  void lay_out(Arena &arena, const Attention &attention, const Tiles &tiles) {
    a = &attention, v = attention.visibility;
    if (!v) return;
    orders = arena.take<Range>(tiles.count);
    documents = arena.take<Range>(tiles.count);
    all_there = arena.take<uint8_t>(tiles.count);
    there = arena.take<uint8_t>(tiles.slots);
    visible = arena.take<Integer<Real>>(ROWS * TILE);
  }
  const int64_t *query_order(int64_t b) const { return v->query_order + b * v->query_order_batch; }
  const int64_t *key_order(int64_t b) const { return v->key_order + b * v->key_order_batch; }
  const int64_t *query_document(int64_t b) const { return v->query_document + b * v->query_document_batch; }
  const int64_t *key_document(int64_t b) const { return v->key_document + b * v->key_document_batch; }
  bool ordered() const { return v->causal || v->window >= 0; }

  void enter(int64_t b, const Tiles &tiles) {
    if (!v || b == batch) return;
    batch = b;
    for (int64_t t = 0; t < tiles.count; t++) {
      const Tile &tile = tiles.tile[t];
      if (ordered()) orders[t] = Range::of(key_order(b) + tile.key, tile.count);
      if (v->key_document) documents[t] = Range::of(key_document(b) + tile.key, tile.count);
      all_there[t] = 1;
      for (int64_t c = 0; c < tile.columns; c++) {
        uint8_t is = c < tile.count;
        if (is && v->present) is = v->present[b * v->present_batch + tile.key + c];
        if (is && v->key_mask) is = v->key_mask[b * v->key_mask_batch + (tile.key + c) * v->key_mask_key];
        there[tile.slot + c] = is;
        if (c < tile.count) all_there[t] &= is;
      }
    }
  }
  void start(const Block &block) {
    if (!v) return;
    if (ordered()) block_order = Range::of(query_order(block.b) + block.query, block.rows);
    if (v->query_document) block_document = Range::of(query_document(block.b) + block.query, block.rows);
  }

  // Whether two orders are within the window; their difference may need all 64 bits.
  INLINE bool near(int64_t one, int64_t other) const {
    return (uint64_t)most(one, other) - (uint64_t)least(one, other) <= (uint64_t)v->window;
  }

  // What a block sees of a tile, from the ranges of both.
  Sight by_range(int64_t t) const {
    bool whole = all_there[t] && !v->mask;
    if (v->causal) {
      if (orders[t].low > block_order.high) return NONE;
      whole = whole && orders[t].high <= block_order.low;
    }
    if (v->window >= 0) {
      const Range &keys = orders[t], &own = block_order;
      if ((keys.low > own.high && !near(keys.low, own.high)) || (own.low > keys.high && !near(own.low, keys.high))) return NONE;
      whole = whole && near(keys.high, own.low) && near(own.high, keys.low);
    }
    if (v->query_document) {
      if (documents[t].low > block_document.high || documents[t].high < block_document.low) return NONE;
      whole = whole && documents[t].low == documents[t].high && block_document.low == block_document.high;
    }
    return whole ? WHOLE : PART;
  }

  // The same, with `visible` filled where it is PART; `columns` becomes how many of the tile's are needed.
  Sight look(const Block &block, const Tiles &tiles, int64_t t, int64_t &columns) {
    const Tile &tile = tiles.tile[t];
    columns = tile.columns;
    if (!v) return WHOLE;
    const Sight sight = by_range(t);
    if (sight != PART) return sight;
    Integer<Real> any[TILE] = {};
    for (int64_t r = 0; r < block.rows; r++) {
      Integer<Real> *row = visible + r * TILE;
      const int64_t i = block.query + r;
      const uint8_t *present = there + tile.slot;
      for (int64_t c = 0; c < tile.columns; c++) row[c] = -(Integer<Real>)present[c];
      if (v->causal) {
        const int64_t own = query_order(block.b)[i], *order = key_order(block.b) + tile.key;
        for (int64_t c = 0; c < tile.count; c++) row[c] &= -(Integer<Real>)(order[c] <= own);
      }
      if (v->window >= 0) {
        const int64_t own = query_order(block.b)[i], *order = key_order(block.b) + tile.key;
        for (int64_t c = 0; c < tile.count; c++)
          row[c] &= -(Integer<Real>)near(order[c], own);
      }
      if (v->query_document) {
        const int64_t own = query_document(block.b)[i], *document = key_document(block.b) + tile.key;
        for (int64_t c = 0; c < tile.count; c++) row[c] &= -(Integer<Real>)(document[c] == own);
      }
      if (v->mask) {
        const uint8_t *mask = v->mask + block.b * v->mask_batch + block.h * v->mask_head + i * v->mask_query + tile.key * v->mask_key;
        for (int64_t c = 0; c < tile.count; c++) row[c] &= -(Integer<Real>)(mask[c * v->mask_key] != 0);
      }
      for (int64_t c = 0; c < tile.columns; c++) any[c] |= row[c];
    }
    int64_t seen = tile.columns;
    while (seen > 0 && !any[seen - 1]) seen--;
    columns = padded<Real>(seen);
    return seen ? PART : NONE;
  }
};

}  // namespace
