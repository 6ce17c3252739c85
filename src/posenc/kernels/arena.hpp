// Memory of one part, laid out once: counted with no base, then taken from one block.
#pragma once
#include <cstdint>
#include <cstdlib>

namespace {

class Arena {
 public:
  explicit Arena(char *base = nullptr) : base_(base) {}
  template <class Item>
  Item *take(int64_t count) {
    char *at = base_ + used_;
    used_ += (count * (int64_t)sizeof(Item) + 63) / 64 * 64;
    return base_ ? (Item *)at : nullptr;
  }
  int64_t used() const { return used_; }

 private:
  char *base_;
  int64_t used_ = 0;
};

// A block for each of some parts; `ok` is false where there is not so much memory.
class Blocks {
 public:
  Blocks(int64_t parts, int64_t bytes) : bytes_((bytes + 4095) / 4096 * 4096 + 64), data_((char *)aligned_alloc(64, parts * bytes_)) {}
  ~Blocks() { free(data_); }
  Blocks(const Blocks &) = delete;
  bool ok() const { return data_ != nullptr; }
  char *operator[](int64_t part) const { return data_ + part * bytes_; }

 private:
  int64_t bytes_;
  char *data_;
};

// What several tiles add to: the gradient of a head's keys, or of a table. Parts go through the items of a problem in
// order, and `span` neighbouring items add to the same sums. A part that has all of them writes the result; what is shared
// with other parts is kept, and added up in their order.
template <class Real>
struct Sums {
  Real *first = nullptr, *rest = nullptr, *now = nullptr;
  int64_t size = 0, span = 1, key = -1, begin = 0, end = 0;

  void lay_out(Arena &arena, int64_t size_, int64_t span_) {
    size = size_, span = span_;
    first = arena.take<Real>(size);
    rest = arena.take<Real>(size);
  }
  void start(int64_t begin_, int64_t end_) { begin = begin_, end = end_, key = -1; }
  bool shared(int64_t which) const { return which * span < begin || (which + 1) * span > end; }
  // Makes `now` the sums of this item, written out first if they were another's.
  template <class Write>
  void enter(int64_t item, Write write) {
    const int64_t wanted = item / span;
    if (wanted == key) return;
    leave(write);
    key = wanted;
    now = key == begin / span ? first : rest;
    memset((void *)now, 0, size * sizeof(Real));
  }
  template <class Write>
  void leave(Write write) {
    if (key >= 0 && !shared(key)) write(key, (const Real *)now);
  }
};

// The part that has an item, where `total` items are dealt to `parts`.
INLINE int64_t begin_of(int64_t part, int64_t total, int64_t parts) { return total * part / parts; }

// Adds up what parts share. `sums(part)` gives the sums of a part.
template <class Real, class Of, class Write>
void add_up(int64_t parts, Of sums, Write write) {
  for (int64_t part = 0; part < parts; part++) {
    Sums<Real> &own = sums(part);
    if (own.begin == own.end) continue;
    for (int64_t key : {own.begin / own.span, (own.end - 1) / own.span}) {
      if (!own.shared(key) || key * own.span < own.begin) continue;  // the first of the parts that share it adds them up
      Real *all = key == own.begin / own.span ? own.first : own.rest;
      for (int64_t other = part + 1; other < parts; other++) {
        Sums<Real> &more = sums(other);
        if (more.begin == more.end) continue;
        if (more.begin >= (key + 1) * own.span) break;
        const Real *added = key == more.begin / more.span ? more.first : more.rest;
        for (int64_t n = 0; n < own.size; n++) all[n] += added[n];
      }
      write(key, (const Real *)all);
      if (own.begin / own.span == (own.end - 1) / own.span) break;
    }
  }
}

}  // namespace
