// Groups of 32 weights as bytes, and what they give with 32 bytes of x: exact sums, so they are the same on every CPU.

#pragma once

#include "vectors.h"

namespace {

constexpr int kGroup = 32;

typedef float Eight __attribute__((vector_size(32)));  // one sum for every four neighbours of a group

#if defined(__AVX2__)

struct Signed {
    __m256i sizes, values;
};
struct Unsigned {
    __m256i values;
};

Signed int8s(const int8_t* from) {
    const __m256i values = _mm256_loadu_si256((const __m256i*)from);
    return {_mm256_abs_epi8(values), values};
}

// Low halves of the 16 bytes, then the high ones.
Unsigned nibbles(const uint8_t* from) {
    const __m128i both = _mm_loadu_si128((const __m128i*)from);
    return {_mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16(both, 4), both), _mm256_set1_epi8(15))};
}

Eight dot(__m256i not_negative, __m256i x) {
#if defined(__AVX512VNNI__) && defined(__AVX512VL__)
    return (Eight)_mm256_cvtepi32_ps(_mm256_dpbusd_epi32(_mm256_setzero_si256(), not_negative, x));
#else
    const __m256i pairs = _mm256_maddubs_epi16(not_negative, x);  // at most 2 * 127 * 127, which 16 bits hold
    return (Eight)_mm256_cvtepi32_ps(_mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
#endif
}

// The instruction takes one side without signs, so the weights' go to x.
Eight dot(Signed w, const int8_t* x) {
    return dot(w.sizes, _mm256_sign_epi8(_mm256_loadu_si256((const __m256i*)x), w.values));
}
Eight dot(Unsigned w, const int8_t* x) { return dot(w.values, _mm256_loadu_si256((const __m256i*)x)); }

#else

struct Signed {
    int8_t values[kGroup];
};
typedef Signed Unsigned;

Signed int8s(const int8_t* from) { return load<Signed>(from); }

Unsigned nibbles(const uint8_t* from) {
    Unsigned w;
    for (int i = 0; i < kGroup / 2; i++) {
        w.values[i] = from[i] & 15;
        w.values[i + kGroup / 2] = from[i] >> 4;
    }
    return w;
}

Eight dot(const Signed& w, const int8_t* x) {
    Eight sums;
    for (int i = 0; i < 8; i++) {
        int32_t total = 0;
        for (int j = 4 * i; j < 4 * i + 4; j++) total += int32_t(w.values[j]) * x[j];
        sums[i] = total;
    }
    return sums;
}

#endif

Eight add_scaled(Eight a, float b, Eight c) {
#if defined(__AVX2__) && defined(__FMA__)
    return (Eight)_mm256_fmadd_ps((__m256)a, _mm256_set1_ps(b), (__m256)c);
#else
    return a * (Eight{} + b) + c;
#endif
}

float sum_eight(Eight values) {
    typedef float Four __attribute__((vector_size(16)));
    const Four low = load<Four>(&values), high = load<Four>((const float*)&values + 4), four = low + high;
    return (four[0] + four[2]) + (four[1] + four[3]);
}

}  // namespace
