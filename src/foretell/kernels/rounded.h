// Products of int8 and int4 weights. The rows of x are rounded to bytes as well, with a scale for every 32 numbers, each row
// by itself; sums are exact within a group and in float32 over a row's groups.

#pragma once

#include "bytes.h"
#include "product.h"

namespace {

// Rows of x as bytes; ``groups`` a row, the last one filled up with zeros.
struct RoundedRows {
    int64_t groups;
    std::vector<int8_t> values;         // (token, group, 32)
    std::vector<float> scales, totals;  // (token, group); totals: what the rounded numbers of a group add up to

    RoundedRows(const float* x, int64_t tokens, int64_t cols)
        : groups((cols + kGroup - 1) / kGroup), values(tokens * groups * kGroup), scales(tokens * groups), totals(tokens * groups) {
        for (int64_t t = 0; t < tokens; t++)
            for (int64_t g = 0; g < groups; g++) {
                float group[kGroup] = {};
                std::memcpy(group, x + t * cols + g * kGroup, std::min<int64_t>(kGroup, cols - g * kGroup) * sizeof(float));
                round(group, t * groups + g);
            }
    }

    void round(const float* group, int64_t place) {
        typedef int32_t Ints __attribute__((vector_size(kLanes * 4)));
        const Floats magic = Floats{} + 12582912.0f;  // 1.5 * 2^23: adding it rounds to a whole number
        Floats most = {}, numbers = {};
        for (int i = 0; i < kGroup; i += kLanes) {
            const Floats x = load<Floats>(group + i), size = x < Floats{} ? -x : x;
            most = most < size ? size : most;
            numbers += x * 0.0f;  // no number where one is not
        }
        float top = 0;
        for (int i = 0; i < kLanes; i++) top = std::max(top, most[i]);
        const float scale = top / 127 + sum(numbers), inverse = scale > 0 ? 1 / scale : 0;
        int32_t total = 0;
        for (int i = 0; i < kGroup; i += kLanes) {
            const Ints whole = __builtin_convertvector(multiply_add(load<Floats>(group + i), Floats{} + inverse, magic) - magic, Ints);
            for (int j = 0; j < kLanes; j++) {
                values[place * kGroup + i + j] = int8_t(whole[j]);
                total += int8_t(whole[j]);
            }
        }
        scales[place] = scale;
        totals[place] = total * scale;
    }

    const int8_t* at(int64_t token, int64_t group) const { return values.data() + (token * groups + group) * kGroup; }
    float scale(int64_t token, int64_t group) const { return scales[token * groups + group]; }
};

// One scale a row; rows are filled up to whole groups with zeros.
struct Int8 {
    const int8_t* weight;
    const float* scales;
    int64_t groups;

    const int8_t* where(int64_t row, int64_t group) const { return weight + (row * groups + group) * kGroup; }
    Signed at(int64_t row, int64_t group) const { return int8s(where(row, group)); }
    float scale(int64_t, int64_t) const { return 1; }
    float finish(float total, int64_t row, const float*) const { return total * scales[row]; }
};

// value = scale * q + least, both for every group.
struct Int4 {
    const uint8_t* weight;
    const float *scales, *leasts;  // (row, group)
    int64_t groups;

    const uint8_t* where(int64_t row, int64_t group) const { return weight + (row * groups + group) * (kGroup / 2); }
    Unsigned at(int64_t row, int64_t group) const { return nibbles(where(row, group)); }
    float scale(int64_t row, int64_t group) const { return scales[row * groups + group]; }
    float finish(float total, int64_t row, const float* totals) const {
        return total + dot(leasts + row * groups, totals, groups);
    }
};

template <class Weights>
struct Rounded {
    Weights w;
    const RoundedRows& x;

    template <int R, int T>
    void tile(const Product& p, int64_t row, int64_t token) const {
        Eight sums[R][T] = {};
        for (int64_t g = 0; g < x.groups; g++)
            for (int r = 0; r < R; r++) {
                const auto values = w.at(row + r, g);
                __builtin_prefetch(w.where(row + r + R, g));  // rows are shorter than what the CPU itself looks ahead
                const float scale = w.scale(row + r, g);
                for (int t = 0; t < T; t++)
                    sums[r][t] = add_scaled(dot(values, x.at(token + t, g)), scale * x.scale(token + t, g), sums[r][t]);
            }
        for (int r = 0; r < R; r++)
            for (int t = 0; t < T; t++)
                p.put(token + t, row + r, w.finish(sum_eight(sums[r][t]), row + r, x.totals.data() + (token + t) * x.groups));
    }
};

}  // namespace
