// Attention of few queries over cached keys. Keys that a query may not see are passed over, and the others are taken in
// their order, so a query has the same bits alone and beside others, whatever lies behind what it sees.

#include <cmath>
#include <vector>

#include "vectors.h"

namespace {

struct Sizes {
    int64_t rows, heads, kv_heads, queries, keys, key_size, value_size;
};
struct Strides {  // in numbers; the last dimension of queries, keys and values lies side by side
    int64_t q_row, q_head, q_query, k_row, k_head, k_key, v_row, v_head, v_key, mask_row, mask_query, mask_key;
};

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

// out = sum of the values seen, each times its weight. N vectors of the value at a time.
template <int N, class Number>
void mix(float* out, const float* weights, const int64_t* seen, int64_t count, const Number* values, int64_t stride) {
    Floats sums[N] = {};
    for (int64_t i = 0; i < count; i++) {
        const Number* value = values + seen[i] * stride;
        Floats weight = Floats{} + weights[i];
        for (int j = 0; j < N; j++) sums[j] = multiply_add(weight, widen(value + j * kLanes), sums[j]);
    }
    std::memcpy(out, sums, sizeof sums);
}

template <class Number>
void attend(const float* q, const Number* k, const Number* v, const bool* mask, float* out, float scale, const Sizes& n,
            const Strides& s, int threads) {
#pragma omp parallel for collapse(2) schedule(static) num_threads(threads)
    for (int64_t row = 0; row < n.rows; row++)
        for (int64_t head = 0; head < n.heads; head++) {
            static thread_local std::vector<float> weights;
            static thread_local std::vector<int64_t> seen;
            weights.resize(n.keys + kLanes);
            seen.resize(n.keys);
            const int64_t kv_head = head / (n.heads / n.kv_heads);
            const Number* keys = k + row * s.k_row + kv_head * s.k_head;
            const Number* values = v + row * s.v_row + kv_head * s.v_head;
            for (int64_t query = 0; query < n.queries; query++) {
                const float* asks = q + row * s.q_row + head * s.q_head + query * s.q_query;
                const bool* allowed = mask + row * s.mask_row + query * s.mask_query;
                float* to = out + ((row * n.queries + query) * n.heads + head) * n.value_size;
                int64_t count = 0;
                float most = -INFINITY;
                for (int64_t key = 0; key < n.keys; key++)
                    if (allowed[key * s.mask_key]) {
                        float score = scale * dot(asks, keys + key * s.k_key, n.key_size);
                        if (!(score <= most)) most = score;  // what is no number is kept, for others to find
                        seen[count] = key;
                        weights[count++] = score;
                    }
                float total = exponentials(weights.data(), count, most);
                for (int64_t i = 0; i < count; i++) weights[i] /= total;
                int64_t i = 0;
                for (; i + 4 * kLanes <= n.value_size; i += 4 * kLanes)
                    mix<4>(to + i, weights.data(), seen.data(), count, values + i, s.v_key);
                for (; i + kLanes <= n.value_size; i += kLanes)
                    mix<1>(to + i, weights.data(), seen.data(), count, values + i, s.v_key);
                for (; i < n.value_size; i++) {
                    to[i] = 0;
                    for (int64_t j = 0; j < count; j++)
                        to[i] = std::fma(weights[j], widen_one(values + seen[j] * s.v_key + i), to[i]);
                }
            }
        }
}

}  // namespace

extern "C" {

void attention_float32(const float* q, const float* k, const float* v, const bool* mask, float* out, float scale,
                       const int64_t* sizes, const int64_t* strides, int threads) {
    attend(q, k, v, mask, out, scale, *(const Sizes*)sizes, *(const Strides*)strides, threads);
}

void attention_bfloat16(const float* q, const uint16_t* k, const uint16_t* v, const bool* mask, float* out, float scale,
                        const int64_t* sizes, const int64_t* strides, int threads) {
    attend(q, k, v, mask, out, scale, *(const Sizes*)sizes, *(const Strides*)strides, threads);
}

}
