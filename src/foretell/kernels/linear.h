// Products of matrices as kernels/linear.py describes them, several of the same x in one go.

#pragma once

#include <memory>

#include "dense.h"
#include "rounded.h"

namespace {

constexpr int64_t kBlock = 16;  // rows of W that a thread takes at a time

struct Matrix {
    int64_t kind, outs, cols;  // kind: 0 float32, 1 bfloat16, 2 int8, 3 int4
    const void* values;
    const float *scales, *leasts, *bias;

    bool is_rounded() const { return kind >= 2; }
    int64_t blocks() const { return (outs + kBlock - 1) / kBlock; }

    void multiply(const float* x, const RoundedRows* rounded, float* y, int64_t tokens, int64_t block) const {
        const Product p{x, y, bias, cols, outs};
        const int64_t row = block * kBlock, end = std::min(outs, row + kBlock);
        if (kind == 0) rows(Dense<Float32>{{(const float*)values}}, p, row, end, tokens);
        if (kind == 1) rows(Dense<Bfloat16>{{(const uint16_t*)values}}, p, row, end, tokens);
        if (kind == 2) rows(Rounded<Int8>{{(const int8_t*)values, scales, rounded->groups}, *rounded}, p, row, end, tokens);
        if (kind == 3)
            rows(Rounded<Int4>{{(const uint8_t*)values, scales, leasts, rounded->groups}, *rounded}, p, row, end, tokens);
    }
};

// ys[i] = x W_i^T + bias_i for matrices with as many columns.
template <int N>
void multiply(const Matrix* const (&matrices)[N], const float* x, float* const (&ys)[N], int64_t tokens, int threads) {
    std::unique_ptr<RoundedRows> rounded;
    int64_t blocks = 0;
    for (const Matrix* matrix : matrices) {
        blocks += matrix->blocks();
        if (matrix->is_rounded() && !rounded) rounded.reset(new RoundedRows(x, tokens, matrix->cols));
    }
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t i = 0; i < blocks; i++) {
        int64_t which = 0, block = i;
        while (block >= matrices[which]->blocks()) block -= matrices[which++]->blocks();
        matrices[which]->multiply(x, rounded.get(), ys[which], tokens, block);
    }
}

}  // namespace
