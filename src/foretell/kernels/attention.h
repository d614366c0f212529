// Attention of few queries over cached keys. Keys that a query may not see are passed over, and the others are taken in
// their order, so a query has the same bits alone and beside others, whatever lies behind what it sees.

#pragma once

#include <cmath>
#include <vector>

#include "vectors.h"

namespace {

// e^(score - most) in place of every score; returns what they add up to. ``scores`` has room for whole vectors.
float exponentials(float* scores, int64_t count, float most) {
    for (int64_t i = count; i % kLanes; i++) scores[i] = -INFINITY;
    Floats totals = {};
    for (int64_t i = 0; i < count; i += kLanes) {
        Floats values = exp_negative(load<Floats>(scores + i) - most);
        std::memcpy(scores + i, &values, sizeof values);
        totals += values;
    }
    return sum(totals);
}

// out = sum of the values that begin at ``seen``, each times its weight. N vectors of the value at a time.
template <int N, class Number>
void mix(float* out, const float* weights, const int64_t* seen, int64_t count, const Number* values) {
    Floats sums[N] = {};
    for (int64_t i = 0; i < count; i++) {
        const Number* value = values + seen[i];
        Floats weight = Floats{} + weights[i];
        for (int j = 0; j < N; j++) sums[j] = multiply_add(weight, widen(value + j * kLanes), sums[j]);
    }
    std::memcpy(out, sums, sizeof sums);
}

// One query of one head. ``place(key)``: where the numbers of a key, and of its value, begin in ``keys`` and ``values``.
template <class Number, class KeyPlace, class ValuePlace>
void attend(const float* query, const Number* keys, const Number* values, int64_t key_size, int64_t value_size, const bool* mask,
            int64_t mask_step, int64_t num_keys, float scale, KeyPlace key_place, ValuePlace value_place, float* out) {
    static thread_local std::vector<float> weights;
    static thread_local std::vector<int64_t> seen;
    weights.resize(num_keys + kLanes);
    seen.resize(num_keys);
    int64_t count = 0;
    float most = -INFINITY;
    for (int64_t key = 0; key < num_keys; key++)
        if (mask[key * mask_step]) {
            const float score = scale * dot(query, keys + key_place(key), key_size);
            if (!(score <= most)) most = score;  // what is no number is kept, for others to find
            seen[count] = value_place(key);
            weights[count++] = score;
        }
    const float total = exponentials(weights.data(), count, most);
    for (int64_t i = 0; i < count; i++) weights[i] /= total;
    int64_t i = 0;
    for (; i + 4 * kLanes <= value_size; i += 4 * kLanes) mix<4>(out + i, weights.data(), seen.data(), count, values + i);
    for (; i + kLanes <= value_size; i += kLanes) mix<1>(out + i, weights.data(), seen.data(), count, values + i);
    for (; i < value_size; i++) {
        out[i] = 0;
        for (int64_t j = 0; j < count; j++) out[i] = std::fma(weights[j], widen_one(values + seen[j] + i), out[i]);
    }
}

}  // namespace
