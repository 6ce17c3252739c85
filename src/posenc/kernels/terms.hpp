// Position terms in the tile loop. A term reads a line of numbers at the code of a pair, which is the sum of a number of
// the query and one of the key: codes of neighbouring keys mostly rise one by one, and then one load reads a vector of
// them. That is found from the codes themselves, so that sequences, grids, packed and shuffled tokens are all alike.
//
// Tables come ascending in query - key, so neighbouring keys would read backwards: lines are turned round here.
#pragma once
#include "packing.hpp"
#include "pairs.hpp"
#include "codes.hpp"

namespace {

// One term in one part: its numbers as tiles read them, and the sums of their gradients.
template <class Real>
struct Adding {
  static constexpr int W = WIDTH<Real>;
  const Attention *a = nullptr;
  const Term *term = nullptr;
  bool backward = false;
  bool straight = false, monotone = false;  // whether rows rise one by one as codes do, or never fall
  int64_t depth = 0, rows = 0, line = 0;    // channels of a row, rows, and the room that a line of products takes
  const Tiles *tiles = nullptr;
  bool repeated = false;      // whether a TABLE is read by the same pairs again and again, as by windows: all are laid out
  Real *pairs = nullptr;      // its numbers then: [queries][slots], of one head
  KeyCodes<Real> keys;
  int32_t *own = nullptr;     // [ROWS] code of each query of the block
  int32_t *row = nullptr;     // row of every code, turned round
  uint8_t *shape = nullptr;   // of the rows of a vector of codes from each on
  Real *table = nullptr;      // TABLE: the line. Rows: [rows][deep]
  Real *panel = nullptr;      // rows, transposed, in panels of TILE
  Real *lines = nullptr;      // products with the rows: [ROWS][line], or [rows][slots] of all keys
  Real *gradients = nullptr;  // of those, or of a TABLE: what one head and batch row gives, as sums of sums round less
  Real *queries = nullptr;    // [ROWS][deep] that meet the rows
  uint8_t *ready = nullptr;   // of each panel of lines
  Sums<Real> sums, prefix_sums, added_sums;
  int64_t packed_head = -1, packed_batch = -1, row_batch = -1, deep = 0;
  static constexpr int32_t NOWHERE = INT32_MIN;

  // Whether each head has numbers of its own; those of a batch row always are (there may be one head, whose stride is 0).
  bool each_head() const { return term->head || term->batch; }
  bool is_rows() const { return term->kind >= ROWS_QUERY; }
  bool by_query() const { return term->kind == ROWS_QUERY || term->kind == ROWS_VALUE; }
  bool keeps_table() const { return backward || term->kind != ROWS_QUERY; }
  // Of a TABLE of one head, as tiles read them and add up their gradients.
  int64_t numbers() const { return repeated ? a->queries * tiles->slots : term->codes + 2 * W; }
  int64_t panels() const { return (rows + TILE - 1) / TILE; }
  int64_t panel_columns(int64_t p) const { return padded<Real>(least<int64_t>(TILE, rows - p * TILE)); }

  void lay_out(Arena &arena, const Attention &attention, const Term &given, const Tiles &of_keys, const Plan &plan, bool back) {
    a = &attention, term = &given, tiles = &of_keys, backward = back;
    rows = term->rows;
    own = arena.take<int32_t>(ROWS);
    if (term->kind != PAIRS) keys.lay_out(arena, *tiles);
    const bool alike = !term->batch && !term->query_code_batch && !term->key_code_batch && (plan.grouped == 1 || !term->head);
    repeated = term->kind == TABLE && alike && a->batch > 1 && a->queries * tiles->slots <= 1 << 15;
    const bool by_batch = term->batch != 0, by_head = each_head();
    const int64_t heads = by_head ? plan.grouped : 1, all = plan.total;
    // neighbouring items of one key head, batch row or all: units go by key head, batch row, query head
    const int64_t span = by_batch ? plan.blocks * plan.grouped : by_head ? plan.blocks * plan.grouped * a->batch : all;
    if (term->kind == TABLE) {
      table = arena.take<Real>(term->codes + 2 * W);
      if (repeated) clear(pairs = arena.take<Real>(numbers()), numbers());
      if (backward && term->gradient) {
        sums.lay_out(arena, heads * numbers(), most<int64_t>(span, 1));
        if (!repeated) clear(gradients = arena.take<Real>(numbers()), numbers());
      }
    }
    if (term->prefix && backward && term->prefix_gradient)
      prefix_sums.lay_out(arena, plan.grouped * 3, most<int64_t>(term->prefix_head ? plan.blocks * plan.grouped * a->batch : all, 1));
    if (term->added && backward && term->added_gradient)
      added_sums.lay_out(arena, plan.grouped * padded<Real>(a->channels), most<int64_t>(term->added_head ? plan.blocks * plan.grouped * a->batch : all, 1));
    if (!is_rows()) return;
    depth = term->kind == ROWS_VALUE ? a->value_channels : a->channels;
    deep = padded<Real>(depth);
    row = arena.take<int32_t>(term->codes + 3 * W);
    shape = arena.take<uint8_t>(term->codes + 3 * W);
    if (keeps_table()) table = arena.take<Real>((rows + STRIP) * deep);
    if (by_query()) panel = arena.take<Real>(depth * padded<Real>(rows));
    line = by_query() ? padded<Real>(rows) + W : tiles->slots;
    const int64_t height = by_query() ? ROWS : rows + STRIP;
    lines = arena.take<Real>(height * line);
    if (backward) gradients = arena.take<Real>(height * line);
    if (by_query()) queries = arena.take<Real>(ROWS * deep);
    ready = arena.take<uint8_t>(panels());
    if (backward && term->gradient) sums.lay_out(arena, heads * (rows + STRIP) * deep, most<int64_t>(span, 1));
  }

  static void clear(Real *x, int64_t count) {
    if (x) memset((void *)x, 0, count * sizeof(Real));
  }

  // A table of a head, turned round, and the row of every code.
  void enter(const Block &block, const Tiles &tiles) {
    if (term->kind != PAIRS) keys.enter(*a, *term, block.b, tiles);
    if (term->kind == PAIRS) return;
    if (is_rows() && (row_batch < 0 || (term->row_batch && row_batch != block.b))) read_rows(block.b);
    const int64_t head = term->head ? block.h : 0, batch = term->batch ? block.b : 0;
    if (packed_head == head && packed_batch == batch) return;
    packed_head = head, packed_batch = batch;
    const Real *given = (const Real *)term->table + batch * term->batch + head * term->head;
    if (term->kind == TABLE) {
      for (int64_t n = 0; n < W; n++) table[n] = table[W + term->codes + n] = 0;
      for (int64_t n = 0; n < term->codes; n++) table[W + n] = given[term->codes - 1 - n];
      if (repeated) each_pair([&](int64_t code, Real &pair) { pair = given[code]; }, pairs);
      return;
    }
    const Real factor = term->kind == ROWS_KEY && term->scaled ? (Real)a->scale : Real(1);
    if (keeps_table())
      for (int64_t r = 0; r < rows + STRIP; r++)
        for (int64_t d = 0; d < deep; d++) table[r * deep + d] = r < rows && d < depth ? given[(rows - 1 - r) * depth + d] * factor : 0;
    if (by_query())
      for (int64_t p = 0; p < panels(); p++)
        for (int64_t c = 0; c < panel_columns(p); c += W)
          transpose(given + (rows - 1 - p * TILE - c) * depth, -depth, least<int64_t>(W, rows - p * TILE - c), depth, panel + p * TILE * depth + c, panel_columns(p));
  }
  // Calls use(code, number) for the numbers [queries][slots] of all pairs of a table that is laid out.
  template <class Use, class Number>
  void each_pair(Use use, Number *of_pairs) const {
    for (int64_t i = a->query_prefix; i < a->queries; i++)
      for (int64_t t = 0; t < tiles->count; t++) {
        const Tile &tile = tiles->tile[t];
        Number *row = of_pairs + i * tiles->slots + tile.slot;
        const int32_t *code = term->key_code + tile.key - a->key_prefix;
        for (int64_t c = 0; c < tile.count && tile.key >= a->key_prefix; c++) use(term->query_code[i - a->query_prefix] + code[c], row[c]);
      }
  }
  void read_rows(int64_t b) {
    row_batch = b;
    const int32_t *given = term->row + b * term->row_batch;
    for (int64_t n = 0; n < term->codes + 3 * W; n++) {
      const int64_t code = most<int64_t>(0, least<int64_t>(term->codes - 1, n - W));
      row[n] = (int32_t)rows - 1 - most(0, given[term->codes - 1 - code]);  // no pair has a code without a row
    }
    row += W, shape += W;  // so that a code is an index
    for (int64_t n = -W; n < term->codes + W; n++) {
      int64_t split;
      shape[n] = shape_of<Real>(row + n, W, split);
    }
    row -= W, shape -= W;
    straight = monotone = true;
    for (int64_t code = 1; code < term->codes; code++) {
      straight = straight && *row_at(code) == *row_at(code - 1) + 1;
      monotone = monotone && *row_at(code) >= *row_at(code - 1);
    }
  }
  const int32_t *row_at(int64_t code) const { return row + W + code; }
  int shape_at(int64_t code) const { return shape[W + code]; }

  // A block of queries: their codes, and their products with the rows. `raw` holds the queries as they were given.
  void start(const Block &block, const Real *raw, int64_t raw_row) {
    const int32_t *given = term->query_code + (term->kind == PAIRS ? 0 : block.b * term->query_code_batch);
    for (int64_t r = 0; r < block.rows; r++) {
      const int64_t i = block.query + r;
      own[r] = i < a->query_prefix ? NOWHERE : term->kind == PAIRS ? 0 : (int32_t)term->codes - 1 - given[i - a->query_prefix];
    }
    if (!is_rows() || !by_query()) return;
    const Real factor = term->kind == ROWS_QUERY && term->scaled ? (Real)a->scale : Real(1);
    const Real *added = term->added ? (const Real *)term->added + block.h * term->added_head : nullptr;
    for (int64_t r = 0; r < ROWS; r++)
      for (int64_t d = 0; d < deep; d++)
        queries[r * deep + d] = r < block.rows && d < depth ? (raw[r * raw_row + d] + (added ? added[d] : Real(0))) * factor : 0;
    memset(ready, 0, panels());
    if (rows <= 4 * TILE)
      for (int64_t p = 0; p < panels(); p++) meet(p, block.rows);
  }
  // Products of the block with a panel of rows (or room for weights by row, and for gradients).
  void meet(int64_t p, int64_t count) {
    ready[p] = 1;
    const int64_t at = p * TILE, columns = panel_columns(p);
    if (term->kind == ROWS_QUERY || backward)
      product(queries, deep, count, panel + at * depth, columns, columns, depth, lines + at, line);
    Real *zero = backward ? gradients : term->kind == ROWS_VALUE ? lines : nullptr;
    if (zero)
      for (int64_t r = 0; r < ROWS; r++) memset((void *)(zero + r * line + at), 0, columns * sizeof(Real));
  }
  // Makes the products ready that a block needs for a tile: rows between the least and the largest code of both.
  void prepare(const Block &block, const Tile &tile) {
    if (!is_rows() || !by_query() || rows <= 4 * TILE || tile.key < a->key_prefix) return;
    int32_t low = INT32_MAX, high = INT32_MIN, first = INT32_MAX, last = INT32_MIN;
    for (int64_t r = 0; r < block.rows; r++)
      if (own[r] != NOWHERE) low = least(low, own[r]), high = most(high, own[r]);
    if (low > high) return;
    for (int64_t c = 0; c < tile.count; c++) {
      const int32_t code = keys.code[tile.slot + c];
      first = least(first, code), last = most(last, code);
    }
    int32_t least_row = INT32_MAX, most_row = INT32_MIN;
    for (int64_t code = (int64_t)low + first; code <= (int64_t)high + last; code++)
      least_row = least(least_row, *row_at(code)), most_row = most(most_row, *row_at(code));
    for (int64_t p = least_row / TILE; p <= most_row / TILE; p++)
      if (!ready[p]) meet(p, block.rows);
  }
  // Products of all keys with the rows, once a head.
  void meet_keys(const Real *key_panels, const Tiles &tiles) {
    if (term->kind != ROWS_KEY) return;
    for (int64_t t = 0; t < tiles.count; t++) {
      const Tile &tile = tiles.tile[t];
      product(table, deep, rows, key_panels + tile.slot * depth, tile.columns, tile.columns, depth, lines + tile.slot, line);
    }
    if (backward) memset((void *)gradients, 0, (rows + STRIP) * line * sizeof(Real));
  }

  // The numbers of a query, at the code of each key: those of a table, or products with rows that go as codes do.
  bool has_line() const { return term->kind == TABLE || (by_query() && straight); }
  template <class Number>
  INLINE Number *line_of(Number *from, int64_t r) const {
    return term->kind == TABLE ? from + own[r] : from + r * line + *row_at(0) + own[r];
  }
  // Whether a query meets the same row at all keys of a tile.
  INLINE bool is_constant(int64_t r, const int32_t *code, int64_t columns) const {
    return monotone && *row_at(own[r] + code[0]) == *row_at(own[r] + code[columns - 1]);
  }

  // The number of a row and a vector of keys, where rows go otherwise.
  INLINE Vector<Real> vector_of(const Real *from, int64_t r, int64_t slot, const int32_t *code, int how, int split) const {
    const int64_t mine = own[r];
    if (term->kind == ROWS_KEY) {
      if (how == CONSTANT || (how == RISING && shape_at(mine + code[0]) == CONSTANT)) return load(from + *row_at(mine + code[0]) * line + slot);
      return gathered<Real>([&](int n) { return from[*row_at(mine + code[n]) * line + slot + n]; });
    }
    const Real *products = from + r * line;
    const int32_t first = *row_at(mine + code[0]);
    if (how == CONSTANT) return splat(products[first]);
    if (how == RISING) {
      how = shape_at(mine + code[0]);
      if (how == RISING) return load(products + first);
      if (how == CONSTANT) return splat(products[first]);
    } else if (how == SPLIT && shape_at(mine + code[0]) == RISING && shape_at(mine + code[W - 1] - (W - 1)) == RISING) {
      return before<Real>(split) ? load(products + first) : load(products + *row_at(mine + code[W - 1] - (W - 1)));
    }
    return gathered<Real>([&](int n) { return products[*row_at(mine + code[n])]; });
  }
  INLINE void add_vector(Real *to, int64_t r, int64_t slot, const int32_t *code, int how, Vector<Real> v) const {
    const int64_t mine = own[r];
    if (term->kind == ROWS_KEY) {
      if (how == CONSTANT || (how == RISING && shape_at(mine + code[0]) == CONSTANT)) return add_to(to + *row_at(mine + code[0]) * line + slot, v);
      return scatter<Real>(v, [&](int n) -> Real & { return to[*row_at(mine + code[n]) * line + slot + n]; });
    }
    Real *products = to + r * line;
    const int32_t first = *row_at(mine + code[0]);
    if (how == RISING) how = shape_at(mine + code[0]);
    else if (how == SPLIT) how = SCATTERED;
    if (how == RISING) return add_to(products + first, v);
    if (how == CONSTANT) {
      products[first] += sum_of<Real>(v);
      return;
    }
    scatter<Real>(v, [&](int n) -> Real & { return products[*row_at(mine + code[n])]; });
  }

  // Calls use(c, code, shape, split) for every vector of a tile.
  template <class Use>
  INLINE void in_codes(const Tile &tile, int64_t columns, Use use) const {
    const int32_t *code = keys.code + tile.slot;
    const uint8_t *shape_of_keys = keys.shape + tile.slot / W, *split = keys.split + tile.slot / W;
    for (int64_t c = 0; c < columns; c += W) use(c, code + c, (int)shape_of_keys[c / W], (int)split[c / W]);
  }
  // How the codes of a tile go: in one run, all vectors of them rising, or all constant, or neither.
  enum Course { RUN, RISING_VECTORS, CONSTANT_VECTORS, MIXED };
  Course course_of(const Tile &tile, int64_t columns) const {
    bool run = true, rising = true, constant = true;
    in_codes(tile, columns, [&](int64_t c, const int32_t *code, int how, int) {
      run = run && code[0] == keys.code[tile.slot] + c;
      rising = rising && how == RISING;
      constant = constant && how == CONSTANT;
    });
    return run && rising ? RUN : rising ? RISING_VECTORS : constant ? CONSTANT_VECTORS : MIXED;
  }

  const Real *pair_of(const Block &block, int64_t r, const Tile &tile) const {
    return (const Real *)term->table + block.b * term->batch + block.h * term->head +
           (block.query + r - a->query_prefix) * term->query + (tile.key - a->key_prefix) * term->key;
  }
  const Real *prefix_of(const Block &block) const { return (const Real *)term->prefix + block.h * term->prefix_head; }

  // logits += the term, or what its rows give the values' gradients.
  void add(const Block &block, const Tile &tile, int64_t columns, Real *logits) const {
    const bool prefix_tile = tile.key < a->key_prefix, coded = term->kind != PAIRS && !prefix_tile && !repeated;
    const Real *from = term->kind == TABLE ? table + W : lines;
    const Course course = coded ? course_of(tile, columns) : MIXED;
    const bool has = coded && has_line();
    const int32_t *codes = keys.code + tile.slot;
    for (int64_t r = 0; r < block.rows; r++) {
      Real *to = logits + r * TILE;
      if (own[r] == NOWHERE || prefix_tile) {
        if (!term->prefix) continue;
        const Real number = prefix_of(block)[own[r] != NOWHERE ? 1 : prefix_tile ? 2 : 0];
        for (int64_t c = 0; c < columns; c += W) add_to(to + c, splat(number));
      } else if (term->kind == PAIRS) {
        const Real *pair = pair_of(block, r, tile);
        for (int64_t c = 0; c < least(tile.count, columns); c++) to[c] += pair[c * term->key];
      } else if (repeated) {
        const Real *pair = pairs + (block.query + r) * tiles->slots + tile.slot;
        for (int64_t c = 0; c < columns; c += W) add_to(to + c, load(pair + c));
      } else if (has) {
        const Real *at = line_of(from, r);
        if (course == RUN)
          for (int64_t c = 0; c < columns; c += W) add_to(to + c, load(at + codes[0] + c));
        else if (course == RISING_VECTORS)
          for (int64_t c = 0; c < columns; c += W) add_to(to + c, load(at + codes[c]));
        else if (course == CONSTANT_VECTORS)
          for (int64_t c = 0; c < columns; c += W) add_to(to + c, splat(at[codes[c]]));
        else
          in_codes(tile, columns, [&](int64_t c, const int32_t *code, int how, int split) { add_to(to + c, read(at, code, how, split)); });
      } else if (course == RUN && is_constant(r, codes, columns)) {
        const int64_t constant = *row_at(own[r] + codes[0]);
        if (by_query())
          for (int64_t c = 0; c < columns; c += W) add_to(to + c, splat(from[r * line + constant]));
        else
          for (int64_t c = 0; c < columns; c += W) add_to(to + c, load(from + constant * line + tile.slot + c));
      } else {
        in_codes(tile, columns, [&](int64_t c, const int32_t *code, int how, int split) { add_to(to + c, vector_of(from, r, tile.slot + c, code, how, split)); });
      }
    }
  }
  // Gradients of the term's numbers += those of the logits (or weights by row += weights). Columns beyond keys are 0.
  void take(const Block &block, const Tile &tile, int64_t columns, const Real *logits, Real *to) const {
    const bool prefix_tile = tile.key < a->key_prefix, coded = term->kind != PAIRS && !prefix_tile && !repeated && to;
    const Course course = coded ? course_of(tile, columns) : MIXED;
    const bool has = coded && has_line();
    const int32_t *codes = keys.code + tile.slot;
    for (int64_t r = 0; r < block.rows; r++) {
      const Real *from = logits + r * TILE;
      if (own[r] == NOWHERE || prefix_tile) {
        if (!prefix_sums.now) continue;
        Vector<Real> sum{};
        for (int64_t c = 0; c < columns; c += W) sum += load(from + c);
        Real *numbers = prefix_sums.now + (term->prefix_head ? block.h - block.g * (a->heads / a->groups) : 0) * 3;
        numbers[own[r] != NOWHERE ? 1 : prefix_tile ? 2 : 0] += sum_of<Real>(sum);
      } else if (term->kind == PAIRS) {
        if (!term->gradient) continue;
        Real *pair = (Real *)term->gradient + (pair_of(block, r, tile) - (const Real *)term->table);
        for (int64_t c = 0; c < least(tile.count, columns); c++) pair[c] = from[c];
      } else if (repeated) {
        if (!sums.now) continue;
        Real *pair = sums_of(block) + (block.query + r) * tiles->slots + tile.slot;
        for (int64_t c = 0; c < columns; c += W) add_to(pair + c, load(from + c));
      } else if (has) {
        Real *at = line_of(term->kind == TABLE ? to + W : to, r);
        if (course == RUN)
          for (int64_t c = 0; c < columns; c += W) add_to(at + codes[0] + c, load(from + c));
        else if (course == RISING_VECTORS)
          for (int64_t c = 0; c < columns; c += W) add_to(at + codes[c], load(from + c));
        else if (course == CONSTANT_VECTORS)
          for (int64_t c = 0; c < columns;) {
            const int32_t code = codes[c];
            Vector<Real> sum{};
            for (; c < columns && codes[c] == code; c += W) sum += load(from + c);
            at[code] += sum_of<Real>(sum);
          }
        else
          in_codes(tile, columns, [&](int64_t c, const int32_t *code, int how, int split) { write(at, code, how, split, load(from + c)); });
      } else if (course == RUN && is_constant(r, codes, columns)) {
        const int64_t constant = *row_at(own[r] + codes[0]);
        Vector<Real> sum{};
        if (by_query())
          for (int64_t c = 0; c < columns; c += W) sum += load(from + c);
        else
          for (int64_t c = 0; c < columns; c += W) add_to(to + constant * line + tile.slot + c, load(from + c));
        if (by_query()) to[r * line + constant] += sum_of<Real>(sum);
      } else if (to) {
        in_codes(tile, columns, [&](int64_t c, const int32_t *code, int how, int) { add_vector(to, r, tile.slot + c, code, how, load(from + c)); });
      }
    }
  }

  // Sums of a head's gradients, among those of its key head.
  Real *sums_of(const Block &block) const {
    if (!sums.now) return nullptr;
    const int64_t within = each_head() ? block.h - block.g * (a->heads / a->groups) : 0;
    return sums.now + within * (term->kind == TABLE ? numbers() : (rows + STRIP) * deep);
  }
  void start_sums(int64_t begin, int64_t end) {
    for (Sums<Real> *each : {&sums, &prefix_sums, &added_sums}) each->start(begin, end);
  }
  // A TABLE's gradients of one head and batch row go to the sums, if they are not there already.
  void leave_unit(const Block &block) {
    if (term->kind != TABLE || !sums.now || repeated) return;
    Real *to = sums_of(block);
    for (int64_t n = 0; n < term->codes + 2 * W; n++) to[n] += gradients[n], gradients[n] = 0;
  }
  void enter_sums(const Block &block) {
    if (sums.size) sums.enter(block.item, [&](int64_t key, const Real *all) { write_sums(key, all); });
    if (prefix_sums.size) prefix_sums.enter(block.item, [&](int64_t key, const Real *all) { write_prefix(key, all); });
    if (added_sums.size) added_sums.enter(block.item, [&](int64_t key, const Real *all) { write_added(key, all); });
  }
  void leave_sums() {
    if (sums.size) sums.leave([&](int64_t key, const Real *all) { write_sums(key, all); });
    if (prefix_sums.size) prefix_sums.leave([&](int64_t key, const Real *all) { write_prefix(key, all); });
    if (added_sums.size) added_sums.leave([&](int64_t key, const Real *all) { write_added(key, all); });
  }
  // The gradient of the tables of one key head: turned round again.
  void write_sums(int64_t key, const Real *all) const {
    const int64_t grouped = a->heads / a->groups, heads = each_head() ? grouped : 1;
    const int64_t each = term->kind == TABLE ? term->codes : rows * depth;
    const Real factor = term->kind == ROWS_KEY && term->scaled ? (Real)a->scale : Real(1);
    int64_t first = 0;  // among the tables [b, h]
    if (term->batch) first = key % a->batch * a->heads + key / a->batch * grouped;
    else if (term->head) first = key * grouped;
    for (int64_t h = 0; h < heads; h++) {
      Real *to = (Real *)term->gradient + (first + h) * each;
      if (term->kind == TABLE) {
        const Real *from = all + h * numbers();
        for (int64_t n = 0; n < term->codes; n++) to[n] = repeated ? 0 : from[W + term->codes - 1 - n];
        if (repeated) each_pair([&](int64_t code, const Real &number) { to[code] += number; }, from);
      } else {
        const Real *from = all + h * (rows + STRIP) * deep;
        for (int64_t r = 0; r < rows; r++)
          for (int64_t d = 0; d < depth; d++) to[r * depth + d] = from[(rows - 1 - r) * deep + d] * factor;
      }
    }
  }
  // The slopes of the queries that met the rows: what is added to all queries of a head has their sum.
  void take_added(const Block &block, const Real *slopes, int64_t slope_row) const {
    if (!added_sums.now) return;
    Real *to = added_sums.now + (term->added_head ? block.h - block.g * (a->heads / a->groups) : 0) * deep;
    for (int64_t r = 0; r < block.rows; r++)
      for (int64_t d = 0; d < deep; d += W) add_to(to + d, load(slopes + r * slope_row + d));
  }
  void write_added(int64_t key, const Real *all) const {
    const int64_t heads = term->added_head ? a->heads / a->groups : 1;
    for (int64_t h = 0; h < heads; h++)
      memcpy((Real *)term->added_gradient + ((term->added_head ? key * heads : 0) + h) * depth, all + h * deep, depth * sizeof(Real));
  }
  void write_prefix(int64_t key, const Real *all) const {
    const int64_t grouped = a->heads / a->groups;
    for (int64_t n = 0; n < (term->prefix_head ? grouped * 3 : 3); n++)
      ((Real *)term->prefix_gradient)[(term->prefix_head ? key * grouped * 3 : 0) + n] = all[n];
  }
};

}  // namespace
