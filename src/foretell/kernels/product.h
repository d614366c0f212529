// y = x W^T + bias in tiles of some rows of W times some rows of x: every weight is read once for 4 rows of x, and a row's
// sums are taken in the same order however many rows there are. So a token has the same bits in a pass over one token and
// in one over several.

#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "vectors.h"

namespace {

struct Product {
    const float* x;
    float* y;
    const float* bias;
    int64_t cols, outs;

    // Spelt as one operation, so that no compiler rounds twice in one place and once in another.
    void put(int64_t token, int64_t row, float total, float scale = 1) const {
        y[token * outs + row] = std::fma(total, scale, bias ? bias[row] : 0.0f);
    }
};

// A kind of W has tile<R, T>: R rows of W from ``row`` on times T rows of x from ``token`` on.
template <int R, class Weights>
void strip(const Weights& w, const Product& p, int64_t row, int64_t tokens) {
    int64_t token = 0;
    for (; token + 4 <= tokens; token += 4) w.template tile<R, 4>(p, row, token);
    if (tokens - token == 3) w.template tile<R, 3>(p, row, token);
    if (tokens - token == 2) w.template tile<R, 2>(p, row, token);
    if (tokens - token == 1) w.template tile<R, 1>(p, row, token);
}

// Rows ``row`` to ``end`` of W.
template <class Weights>
void rows(const Weights& w, const Product& p, int64_t row, int64_t end, int64_t tokens) {
    if (tokens == 1)
        for (; row + 4 <= end; row += 4) w.template tile<4, 1>(p, row, 0);
    for (; row + 2 <= end; row += 2) strip<2>(w, p, row, tokens);
    for (; row < end; row++) strip<1>(w, p, row, tokens);
}

}  // namespace
