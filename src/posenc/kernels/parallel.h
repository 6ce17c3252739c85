// Several threads: torch's own where it has them for the asking, and ours after a fork, which they do not survive.
#pragma once
#include <cstdint>

// Calls body(context, part) for every part from 0 to `parts`, on at most `threads` threads, this one among them. What is
// computed does not depend on which thread takes which part.
void posenc_parallel(int64_t parts, int64_t threads, void (*body)(void *context, int64_t part), void *context);

template <class Body>
static inline void parallel(int64_t parts, int64_t threads, Body &&body) {
  posenc_parallel(parts, threads, [](void *context, int64_t part) { (*static_cast<Body *>(context))(part); }, &body);
}
