#include "stack.h"

// x (tokens, size) becomes what the last layer gives; ``below`` and ``post``, where there are such, what entered that layer,
// and x behind the final norm.
extern "C" void stack(const Layer* layers, int64_t count, const Norm* final, const Pass* pass, int is_bfloat, float* x,
                      float* below, float* post) {
    run_layers(layers, count, *pass, tokens_of(*pass), is_bfloat, x, below);
    if (post) normalise(x, *final, post, pass->tokens, layers->q.cols);
}
