// The two halves of a decoder layer around its attention: norm, queries, keys and values with their positions; then the
// output of attention, the norm behind it, and the gated MLP, each added to what came in.

#include "linear.h"

namespace {

struct Layer {
    Matrix q, k, v, o, gate, up, down;
    const float *norm, *mlp_norm;
    float eps, mlp_eps;
    int64_t head_size;
};

// RMSNorm of every row.
void normalise(const float* x, const float* gain, float eps, float* y, int64_t tokens, int64_t size) {
    for (int64_t t = 0; t < tokens; t++, x += size, y += size) {
        Floats squares = {};
        int64_t i = 0;
        for (; i + kLanes <= size; i += kLanes) squares = multiply_add(load<Floats>(x + i), load<Floats>(x + i), squares);
        float total = sum(squares);
        for (; i < size; i++) total = std::fma(x[i], x[i], total);
        const float scale = 1 / std::sqrt(total / size + eps);
        for (i = 0; i < size; i++) y[i] = gain[i] * (x[i] * scale);
    }
}

// Turns the first ``turned`` numbers of every head, the first half of them against the second.
void turn(float* x, const float* cos, const float* sin, int64_t tokens, int64_t outs, int64_t head_size, int64_t turned) {
    const int64_t half = turned / 2;
    for (int64_t t = 0; t < tokens; t++, cos += turned, sin += turned)
        for (float* head = x + t * outs; head < x + (t + 1) * outs; head += head_size)
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

float* room(int which, int64_t count) {
    static thread_local std::vector<float> rooms[3];
    if ((int64_t)rooms[which].size() < count) rooms[which].resize(count);
    return rooms[which].data();
}

}  // namespace

extern "C" {

void layer_before(const Layer* layer, const float* x, const float* cos, const float* sin, int64_t turned, float* q, float* k,
                  float* v, int64_t tokens, int threads) {
    const int64_t size = layer->q.cols;
    float* normed = room(0, tokens * size);
    normalise(x, layer->norm, layer->eps, normed, tokens, size);
    multiply(layer->q, normed, q, tokens, threads);
    multiply(layer->k, normed, k, tokens, threads);
    multiply(layer->v, normed, v, tokens, threads);
    turn(q, cos, sin, tokens, layer->q.outs, layer->head_size, turned);
    turn(k, cos, sin, tokens, layer->k.outs, layer->head_size, turned);
}

void layer_after(const Layer* layer, const float* x, const float* mixed, float* y, int64_t tokens, int threads) {
    const int64_t size = layer->o.outs, inner = layer->gate.outs;
    float *normed = room(0, tokens * size), *gate = room(1, tokens * inner), *up = room(2, tokens * inner);
    multiply(layer->o, mixed, y, tokens, threads);
    add(y, x, tokens * size);
    normalise(y, layer->mlp_norm, layer->mlp_eps, normed, tokens, size);
    multiply(layer->gate, normed, gate, tokens, threads);
    multiply(layer->up, normed, up, tokens, threads);
    gate_with(gate, up, tokens * inner);
    multiply(layer->down, gate, normed, tokens, threads);
    add(y, normed, tokens * size);
}

}
