/* Numbers in bfloat16, by pairs: a part of cpu.c.

   A lane of 32 bits holds a pair, and one instruction of AVX512_BF16 multiplies 16 pairs with 16
   others and adds both products of each to a float32: twice the products of a fused multiply-add.
   Where a processor lacks it, two fused multiply-adds make the same sums (but for numbers below
   1e-38, which the instruction takes for zero). */

#ifdef __AVX512BF16__
#include <immintrin.h>
#endif

typedef unsigned short half __attribute__((may_alias));
typedef half halves __attribute__((vector_size(2 * LANES), aligned(2), may_alias));
typedef int pair __attribute__((may_alias));
typedef int pairs __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

enum { ONES = 0x3f803f80, UPPER = (int)0xffff0000 };  /* two ones; where a pair's second one is */

INLINE pairs read_pairs(const int *from) { return *(const pairs *)from; }
INLINE pairs both(int pair) { return (pairs){0} + pair; }

/* Both products of every pair are added to its sum, one after the other: the second one first. */
INLINE vector dot(vector sum, pairs a, pairs b) {
#ifdef __AVX512BF16__
  return (vector)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
#else
  sum += (vector)(a & UPPER) * (vector)(b & UPPER);
  return sum + (vector)(a << 16) * (vector)(b << 16);
#endif
}

/* Rounded to the nearest, ties to even; what is not a number stays so. */
INLINE halves rounded(vector value) {
#ifdef __AVX512BF16__
  return (halves)_mm512_cvtneps_pbh((__m512)value);
#else
  const pairs bits = (pairs)value, number = (pairs)(value == value);
  const pairs near = bits + 0x7fff + (bits >> 16 & 1), none = bits | 0x400000;
  return __builtin_convertvector(((near & number) | (none & ~number)) >> 16, halves);
#endif
}

INLINE half round_one(float value) {
  unsigned bits;
  memcpy(&bits, &value, sizeof bits);
  return (value == value ? bits + 0x7fff + (bits >> 16 & 1) : bits | 0x400000) >> 16;
}
INLINE int pair_of(half first, half second) { return first | (int)((unsigned)second << 16); }
INLINE vector widened(const half *from) {
  return (vector)(__builtin_convertvector(*(const halves *)from, pairs) << 16);
}

/* A row of numbers, rounded. */
INLINE void round_row(const float *from, half *to, long count) {
  long i = 0;
  for (; i + LANES <= count; i += LANES) *(halves *)(to + i) = rounded(read(from + i));
  for (; i < count; i++) to[i] = round_one(from[i]);
}

/* Pairs of the numbers at one place of two rows. */
INLINE void interleave(const half *first, const half *second, int *to, long count) {
  for (long i = 0; i < count; i++) to[i] = pair_of(first[i], second[i]);
}

/* Whether this processor has the instruction. */
long multiplies_pairs(void) {
#ifdef __AVX512BF16__
  return 1;
#else
  return 0;
#endif
}
