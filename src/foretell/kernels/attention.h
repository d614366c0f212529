// Attention of few queries over cached keys. Keys that a query may not see are passed over, and the others are taken in
// their order, so a query has the same bits alone and beside others, whatever lies behind what it sees.

#pragma once

#include <algorithm>
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

// Adds to ``out`` the values that begin at ``seen``, each times its weight. N vectors of the value at a time.
template <int N, class Number>
void mix(float* out, const float* weights, const int64_t* seen, int64_t count, const Number* values) {
    Floats sums[N];
    std::memcpy(sums, out, sizeof sums);
    for (int64_t i = 0; i < count; i++) {
        const Number* value = values + seen[i];
        Floats weight = Floats{} + weights[i];
        for (int j = 0; j < N; j++) sums[j] = multiply_add(weight, widen(value + j * kLanes), sums[j]);
    }
    std::memcpy(out, sums, sizeof sums);
}

template <class Number>
void mix_all(float* out, const float* weights, const int64_t* seen, int64_t count, const Number* values, int64_t size) {
    int64_t i = 0;
    for (; i + 4 * kLanes <= size; i += 4 * kLanes) mix<4>(out + i, weights, seen, count, values + i);
    for (; i + kLanes <= size; i += kLanes) mix<1>(out + i, weights, seen, count, values + i);
    for (; i < size; i++)
        for (int64_t j = 0; j < count; j++) out[i] = std::fma(weights[j], widen_one(values + seen[j] + i), out[i]);
}

struct Query {
    const float* asks;
    const bool* mask;  // of key 0
    float* out;
};

constexpr int64_t kMostQueries = 8;  // that go over the keys together
constexpr int64_t kKeys = 64;        // that they stay with, while those are near

// ``count`` queries over the same keys. ``key_place(key)``, ``value_place(key)``: where the numbers of each begin.
template <class Number, class KeyPlace, class ValuePlace>
void attend(const Query* queries, int64_t count, const Number* keys, const Number* values, int64_t key_size,
            int64_t value_size, int64_t mask_step, int64_t num_keys, float scale, KeyPlace key_place, ValuePlace value_place) {
    static thread_local std::vector<float> weights;
    static thread_local std::vector<int64_t> seen, ends;  // ends: of each block of keys, among those seen
    const int64_t room = num_keys + kLanes, blocks = (num_keys + kKeys - 1) / kKeys;
    weights.resize(count * room);
    seen.resize(count * room);
    ends.resize(count * blocks);
    int64_t found[kMostQueries] = {}, done[kMostQueries] = {};
    float most[kMostQueries];
    std::fill_n(most, kMostQueries, -INFINITY);
    for (int64_t block = 0; block < blocks; block++)
        for (int64_t q = 0; q < count; q++) {
            for (int64_t key = block * kKeys; key < std::min(num_keys, (block + 1) * kKeys); key++)
                if (queries[q].mask[key * mask_step]) {
                    const float score = scale * dot(queries[q].asks, keys + key_place(key), key_size);
                    if (!(score <= most[q])) most[q] = score;  // what is no number is kept, for others to find
                    seen[q * room + found[q]] = value_place(key);
                    weights[q * room + found[q]++] = score;
                }
            ends[q * blocks + block] = found[q];
        }
    for (int64_t q = 0; q < count; q++) {
        float* own = weights.data() + q * room;
        const float total = exponentials(own, found[q], most[q]);
        for (int64_t i = 0; i < found[q]; i++) own[i] /= total;
        std::fill_n(queries[q].out, value_size, 0.0f);
    }
    for (int64_t block = 0; block < blocks; block++)
        for (int64_t q = 0; q < count; q++) {
            const int64_t begin = q * room + done[q], end = ends[q * blocks + block];
            mix_all(queries[q].out, weights.data() + begin, seen.data() + begin, end - done[q], values, value_size);
            done[q] = end;
        }
}

}  // namespace
