// Vectors of as many floats as a register of this CPU holds, and how stored numbers become them.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__) && defined(__AVX512DQ__)
#define FORETELL_AVX512
#endif

namespace {

#if defined(FORETELL_AVX512)
constexpr int kLanes = 16;
#elif defined(__AVX2__)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif

typedef float Floats __attribute__((vector_size(kLanes * 4)));

template <class V> V load(const void* from) {
    V value;
    std::memcpy(&value, from, sizeof value);
    return value;
}

// Spelt out on x86: compilers fuse the two in some loops and not in others, and the bits would differ.
Floats multiply_add(Floats a, Floats b, Floats c) {
#if defined(FORETELL_AVX512)
    return (Floats)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__AVX2__) && defined(__FMA__)
    return (Floats)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
    return a * b + c;
#endif
}

float sum(Floats values) {
#if defined(__AVX2__)
#if defined(FORETELL_AVX512)
    __m256 folded = _mm256_add_ps(_mm512_castps512_ps256((__m512)values), _mm512_extractf32x8_ps((__m512)values, 1));
#else
    __m256 folded = (__m256)values;
#endif
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(folded), _mm256_extractf128_ps(folded, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
#else
    float lanes[kLanes];
    std::memcpy(lanes, &values, sizeof lanes);
    for (int width = kLanes / 2; width; width /= 2)
        for (int i = 0; i < width; i++) lanes[i] += lanes[i + width];
    return lanes[0];
#endif
}

// e^x for x <= 0: 2^n times a polynomial on [-ln 2 / 2, ln 2 / 2], within 2 units of the last place; 0 below -87.
Floats exp_negative(Floats x) {
    typedef int32_t Ints __attribute__((vector_size(kLanes * 4)));
    const Floats one = Floats{} + 1.0f;
    const Floats magic = Floats{} + 12582912.0f;  // 1.5 * 2^23: adding it rounds to a whole number
    Floats low = Floats{} - 87.0f;
    Ints is_low = x < low, is_nan = x != x;
    Floats whole = multiply_add(x, Floats{} + 1.44269504f, magic) - magic;
    Floats rest = multiply_add(whole, Floats{} - 0.693359375f, x);
    rest = multiply_add(whole, Floats{} + 2.12194440e-4f, rest);
    Floats value = Floats{} + 1.9875691500e-4f;
    for (float c : {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f})
        value = multiply_add(value, rest, Floats{} + c);
    value = multiply_add(value, rest * rest, rest + one);
    Floats clamped = is_low ? Floats{} : whole;
    Ints power = (__builtin_convertvector(is_nan ? Floats{} : clamped, Ints) + 127) << 23;
    Floats scale;
    std::memcpy(&scale, &power, sizeof scale);
    return is_nan ? x : is_low ? Floats{} : value * scale;
}

float from_bfloat(uint16_t stored) {
    uint32_t bits = uint32_t(stored) << 16;
    return load<float>(&bits);
}

uint16_t to_bfloat(float value) {  // to the nearest, ties to even
    uint32_t bits = load<uint32_t>(&value);
    return value != value ? 0x7fc0 : (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
}

Floats from_bfloats(const uint16_t* from) {
    typedef uint16_t Halves __attribute__((vector_size(kLanes * 2)));
    typedef uint32_t Words __attribute__((vector_size(kLanes * 4)));
    Words bits = __builtin_convertvector(load<Halves>(from), Words) << 16;
    return load<Floats>(&bits);
}

Floats widen(const float* from) { return load<Floats>(from); }
Floats widen(const uint16_t* from) { return from_bfloats(from); }
float widen_one(const float* from) { return *from; }
float widen_one(const uint16_t* from) { return from_bfloat(*from); }

template <class Number>
float dot(const float* q, const Number* k, int64_t size) {
    Floats sums = {};
    int64_t i = 0;
    for (; i + kLanes <= size; i += kLanes) sums = multiply_add(load<Floats>(q + i), widen(k + i), sums);
    float total = sum(sums);
    for (; i < size; i++) total = std::fma(q[i], widen_one(k + i), total);
    return total;
}

}  // namespace
