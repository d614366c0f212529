// y = x W^T + bias for few rows of x, in tiles of some rows of W times some rows of x: every weight is read once, and a
// row's sums are taken in the same order however many rows there are. So a token has the same bits in a pass over one
// token and in one over several. Here W is float32 or bfloat16; bytes.h has the kinds that are rounded.

#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "vectors.h"

namespace {

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

}  // namespace
