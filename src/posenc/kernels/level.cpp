// Everything that computes, compiled once for each instruction set: POSENC_LEVEL is its name.
#include <new>
#include <type_traits>

#include "backward.hpp"
#include "checked.hpp"
#include "few.hpp"
#include "rotate.hpp"

#define JOIN(name, level) name##_##level
#define NAMED(name, level) JOIN(name, level)
#define EXPORT(name) extern "C" __attribute__((visibility("default"))) int NAMED(name, POSENC_LEVEL)

EXPORT(posenc_forward)(const void *problem) {
  const Attention &a = *(const Attention *)problem;
  if (const int wrong = checked(a)) return wrong;
  if (Few<float>::fits(a)) return a.dtype == FLOAT64 ? few<double>(a) : few<float>(a);
  return a.dtype == FLOAT64 ? forward<double>(a) : forward<float>(a);
}
EXPORT(posenc_backward)(const void *problem) {
  const Attention &a = *(const Attention *)problem;
  if (const int wrong = checked(a)) return wrong;
  return a.dtype == FLOAT64 ? backward<double>(a) : backward<float>(a);
}
EXPORT(posenc_rotate)(const void *problem) {  // how many, and each of them
  return rotate((const Rotary *)((const int64_t *)problem + 1), *(const int64_t *)problem);
}
