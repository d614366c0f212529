// y = x W^T + bias for few rows of x: every weight is read once and widened to float32, and a row's sums are taken in the
// same order however many rows there are. So a token has the same bits in a pass over one token and in one over several.

#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "vectors.h"

namespace {

constexpr int kGroup = 32;        // values of a row that share a scale and a least value in int4
constexpr int64_t kBlock = 16;    // rows of W that a thread takes at a time

// The kinds of W. Each gives kLanes values of a row (``at``), one value (``one``), and what a row's sum is multiplied by.
struct Float32 {
    const float* weight;
    Floats at(int64_t place) const { return load<Floats>(weight + place); }
    float one(int64_t place) const { return weight[place]; }
    float scale(int64_t) const { return 1; }
};

struct Bfloat16 {
    const uint16_t* weight;
    Floats at(int64_t place) const { return from_bfloats(weight + place); }
    float one(int64_t place) const { return from_bfloat(weight[place]); }
    float scale(int64_t) const { return 1; }
};

struct Int8 {
    const int8_t* weight;
    const float* scales;
    Floats at(int64_t place) const { return from_bytes(weight + place); }
    float one(int64_t place) const { return weight[place]; }
    float scale(int64_t row) const { return scales[row]; }
};

struct Product {
    const float* x;
    float* y;
    const float* bias;
    int64_t cols, outs;

    // Spelt as one operation, so that no compiler rounds twice in one place and once in another.
    void put(int64_t token, int64_t row, float total, float scale) const {
        y[token * outs + row] = std::fma(total, scale, bias ? bias[row] : 0.0f);
    }
};

// R rows of W times T rows of x.
template <int R, int T, class Weights>
void tile(const Weights& w, const Product& p, int64_t row, int64_t token) {
    Floats sums[R][T] = {};
    const float* x = p.x + token * p.cols;
    int64_t i = 0;
    for (; i + kLanes <= p.cols; i += kLanes) {
        Floats xs[T];
        for (int t = 0; t < T; t++) xs[t] = load<Floats>(x + t * p.cols + i);
        for (int r = 0; r < R; r++) {
            Floats values = w.at((row + r) * p.cols + i);
            for (int t = 0; t < T; t++) sums[r][t] = multiply_add(values, xs[t], sums[r][t]);
        }
    }
    if (i < p.cols) {  // what is left of the columns, filled up with zeros
        for (int r = 0; r < R; r++) {
            Floats values = {};
            for (int64_t j = i; j < p.cols; j++) values[j - i] = w.one((row + r) * p.cols + j);
            for (int t = 0; t < T; t++) {
                Floats xs = {};
                for (int64_t j = i; j < p.cols; j++) xs[j - i] = x[t * p.cols + j];
                sums[r][t] = multiply_add(values, xs, sums[r][t]);
            }
        }
    }
    for (int r = 0; r < R; r++)
        for (int t = 0; t < T; t++) p.put(token + t, row + r, sum(sums[r][t]), w.scale(row + r));
}

// int4: value = scale * q + least; of a group's 16 bytes the low halves come first.
struct Int4 {
    const uint8_t* weight;
    const float* scales;   // (row, group): scale, least value
    const float* sums;     // (token, group): what the x of a group add up to
};

template <int R, int T>
void tile(const Int4& w, const Product& p, int64_t row, int64_t token) {
    const int64_t groups = p.cols / kGroup;
    Floats sums[R][T] = {};
    float leasts[R][T] = {};
    for (int64_t g = 0; g < groups; g++)
        for (int r = 0; r < R; r++) {
            const int64_t group = (row + r) * groups + g;
            Floats inner[T] = {};
            for (int k = 0; k < kGroup / 2; k += kLanes) {
                Floats low, high;
                from_nibbles(w.weight + group * (kGroup / 2) + k, low, high);
                for (int t = 0; t < T; t++) {
                    const float* x = p.x + (token + t) * p.cols + g * kGroup + k;
                    inner[t] = multiply_add(low, load<Floats>(x), inner[t]);
                    inner[t] = multiply_add(high, load<Floats>(x + kGroup / 2), inner[t]);
                }
            }
            for (int t = 0; t < T; t++) {
                sums[r][t] = multiply_add(inner[t], Floats{} + w.scales[2 * group], sums[r][t]);
                leasts[r][t] = std::fma(w.scales[2 * group + 1], w.sums[(token + t) * groups + g], leasts[r][t]);
            }
        }
    for (int r = 0; r < R; r++)
        for (int t = 0; t < T; t++) p.put(token + t, row + r, sum(sums[r][t]) + leasts[r][t], 1);
}

template <int R, class Weights>
void strip(const Weights& w, const Product& p, int64_t row, int64_t tokens) {
    int64_t token = 0;
    for (; token + 4 <= tokens; token += 4) tile<R, 4>(w, p, row, token);
    if (tokens - token == 3) tile<R, 3>(w, p, row, token);
    if (tokens - token == 2) tile<R, 2>(w, p, row, token);
    if (tokens - token == 1) tile<R, 1>(w, p, row, token);
}

template <class Weights>
void multiply(const Weights& w, const Product& p, int64_t tokens, int threads) {
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t block = 0; block < (p.outs + kBlock - 1) / kBlock; block++) {
        int64_t row = block * kBlock, end = std::min(p.outs, row + kBlock);
        if (tokens == 1)
            for (; row + 4 <= end; row += 4) tile<4, 1>(w, p, row, 0);
        for (; row + 2 <= end; row += 2) strip<2>(w, p, row, tokens);
        for (; row < end; row++) strip<1>(w, p, row, tokens);
    }
}

// A matrix as kernels/linear.py describes it.
struct Matrix {
    int64_t kind, outs, cols;  // kind: 0 float32, 1 bfloat16, 2 int8, 3 int4
    const void* values;
    const float* scales;
    const float* bias;
};

void multiply(const Matrix& m, const float* x, float* y, int64_t tokens, int threads) {
    const Product p{x, y, m.bias, m.cols, m.outs};
    if (m.kind == 0) multiply(Float32{(const float*)m.values}, p, tokens, threads);
    if (m.kind == 1) multiply(Bfloat16{(const uint16_t*)m.values}, p, tokens, threads);
    if (m.kind == 2) multiply(Int8{(const int8_t*)m.values, m.scales}, p, tokens, threads);
    if (m.kind == 3) {
        std::vector<float> sums(tokens * m.cols / kGroup);
        for (size_t g = 0; g < sums.size(); g++)
            for (int k = 0; k < kGroup; k++) sums[g] += x[g * kGroup + k];
        multiply(Int4{(const uint8_t*)m.values, m.scales, sums.data()}, p, tokens, threads);
    }
}

}  // namespace
