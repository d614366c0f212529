#include "attention.h"

namespace {

struct Sizes {
    int64_t rows, heads, kv_heads, queries, keys, key_size, value_size;
};
struct Strides {  // in numbers; the last dimension of queries, keys and values lies side by side
    int64_t q_row, q_head, q_query, k_row, k_head, k_key, v_row, v_head, v_key, mask_row, mask_query, mask_key;
};

template <class Number>
void attend(const float* q, const Number* k, const Number* v, const bool* mask, float* out, float scale, const Sizes& n,
            const Strides& s, int threads) {
#pragma omp parallel for collapse(2) schedule(static) num_threads(threads)
    for (int64_t row = 0; row < n.rows; row++)
        for (int64_t head = 0; head < n.heads; head++) {
            const int64_t kv_head = head / (n.heads / n.kv_heads);
            for (int64_t first = 0; first < n.queries; first += kMostQueries) {
                Query queries[kMostQueries];
                const int64_t count = std::min(kMostQueries, n.queries - first);
                for (int64_t i = 0, query = first; i < count; i++, query++)
                    queries[i] = {q + row * s.q_row + head * s.q_head + query * s.q_query,
                                  mask + row * s.mask_row + query * s.mask_query,
                                  out + ((row * n.queries + query) * n.heads + head) * n.value_size};
                attend(queries, count, k + row * s.k_row + kv_head * s.k_head, v + row * s.v_row + kv_head * s.v_head,
                       n.key_size, n.value_size, s.mask_key, n.keys, scale, [&](int64_t key) { return key * s.k_key; },
                       [&](int64_t key) { return key * s.v_key; });
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
