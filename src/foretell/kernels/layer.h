// What a decoder layer does between its products: RMSNorm, rotary positions, the gate of its MLP.

#pragma once

#include <algorithm>
#include <cmath>

#include "vectors.h"

namespace {

// RMSNorm.
struct Norm {
    const float* gain;  // null: there is none
    float eps;
};

// Of every row; y may be x.
void normalise(const float* x, const Norm& norm, float* y, int64_t tokens, int64_t size) {
    for (int64_t t = 0; t < tokens; t++, x += size, y += size) {
        Floats squares = {};
        int64_t i = 0;
        for (; i + kLanes <= size; i += kLanes) squares = multiply_add(load<Floats>(x + i), load<Floats>(x + i), squares);
        float total = sum(squares);
        for (; i < size; i++) total = std::fma(x[i], x[i], total);
        const float scale = 1 / std::sqrt(total / size + norm.eps);
        for (i = 0; i < size; i++) y[i] = norm.gain[i] * (x[i] * scale);
    }
}

// Turns the first ``turned`` numbers of every head of a token, the first half of them against the second.
void turn(float* x, const float* cos, const float* sin, int64_t outs, int64_t head_size, int64_t turned) {
    const int64_t half = turned / 2;
    for (float* head = x; head < x + outs; head += head_size)
        for (int64_t i = 0; i < half; i++) {
            const float first = head[i], second = head[i + half];
            head[i] = std::fma(first, cos[i], -(second * sin[i]));
            head[i + half] = std::fma(second, cos[i + half], first * sin[i + half]);
        }
}

// gate = silu(gate) * up
void gate_with(float* gate, const float* up, int64_t count) {
    const Floats one = Floats{} + 1.0f;
    for (int64_t i = 0; i < count; i += kLanes) {
        Floats x = {}, by = {};
        const int64_t left = std::min<int64_t>(kLanes, count - i);
        std::memcpy(&x, gate + i, left * sizeof(float));
        std::memcpy(&by, up + i, left * sizeof(float));
        Floats small = exp_negative(x < Floats{} ? x : -x);
        Floats y = x * (x < Floats{} ? small : one) / (one + small) * by;
        std::memcpy(gate + i, &y, left * sizeof(float));
    }
}

void add(float* x, const float* y, int64_t count) {
    for (int64_t i = 0; i < count; i++) x[i] += y[i];
}

}  // namespace
