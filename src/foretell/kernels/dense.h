// Products of float32 and bfloat16 weights, which are widened to float32.

#pragma once

#include "product.h"

namespace {

// Each gives kLanes values of a row (``at``) and one value (``one``).
struct Float32 {
    const float* weight;
    Floats at(int64_t place) const { return load<Floats>(weight + place); }
    float one(int64_t place) const { return weight[place]; }
};

struct Bfloat16 {
    const uint16_t* weight;
    Floats at(int64_t place) const { return from_bfloats(weight + place); }
    float one(int64_t place) const { return from_bfloat(weight[place]); }
};

template <class Weights>
struct Dense {
    Weights w;

    template <int R, int T>
    void tile(const Product& p, int64_t row, int64_t token) const {
        Floats sums[R][T] = {};
        const float* x = p.x + token * p.cols;
        int64_t i = 0;
        for (; i + kLanes <= p.cols; i += kLanes) {
            Floats xs[T];
            for (int t = 0; t < T; t++) xs[t] = load<Floats>(x + t * p.cols + i);
            for (int r = 0; r < R; r++) {
                __builtin_prefetch(w.weight + (row + r + R) * p.cols + i);  // the CPU alone looks less far ahead
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
            for (int t = 0; t < T; t++) p.put(token + t, row + r, sum(sums[r][t]));
    }
};

}  // namespace
