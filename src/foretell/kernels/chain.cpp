// A chain of guesses by one module that is run again for each: a depth reads the token before it and its own last state.

#include "stack.h"

namespace {

struct Chain {
    Layer layer;
    Norm embedding_norm, state_norm, final;
    Matrix pair, output;      // pair: of an embedding and a state
    const void* embeddings;   // of tokens, in float32 or bfloat16
    const int64_t* token_ids;  // of the output's rows; null: a row is its token
    int64_t is_bfloat, embedding_first, feeds_normed;
};

void embed(const Chain& chain, int64_t token_id, float* to, int64_t size) {
    for (int64_t i = 0; i < size; i++)
        to[i] = chain.is_bfloat ? from_bfloat(((const uint16_t*)chain.embeddings)[token_id * size + i])
                                : ((const float*)chain.embeddings)[token_id * size + i];
}

// One run of the module: ``states`` (tokens, size) become what the final norm gives, and ``fed`` what the next depth reads.
void run_module(const Chain& chain, const Pass& pass, const Tokens& some, const int64_t* token_ids, bool is_bfloat,
                std::vector<float>& states, std::vector<float>& fed) {
    const int64_t size = chain.layer.q.cols, tokens = some.size();
    std::vector<float> pairs(tokens * 2 * size), x(tokens * size), embedding(size);
    for (int64_t t = 0; t < tokens; t++) {
        float* pair = pairs.data() + t * 2 * size;
        embed(chain, token_ids[t], embedding.data(), size);
        normalise(embedding.data(), chain.embedding_norm, pair + (chain.embedding_first ? 0 : size), 1, size);
        normalise(states.data() + t * size, chain.state_norm, pair + (chain.embedding_first ? size : 0), 1, size);
    }
    multiply<1>({&chain.pair}, pairs.data(), {x.data()}, tokens, pass.threads);
    run_layers(&chain.layer, 1, pass, some, is_bfloat, x.data(), nullptr);
    normalise(x.data(), chain.final, states.data(), tokens, size);
    fed = chain.feeds_normed ? states : x;
}

}  // namespace

// ``lengths``: tokens to draft for each row. A row's nodes are what the module has not read yet, whose ``token_ids`` and
// ``given`` states there are, one row after the other, and then one for each drafted token but the last.
// ``drafted``: (rows, longest).
extern "C" void chain(const Chain* chain, const Pass* pass, int is_bfloat, const int64_t* lengths, int64_t longest,
                      const int64_t* token_ids, const float* given, int64_t* drafted) {
    const int64_t size = chain->layer.q.cols;
    std::vector<int64_t> behind(lengths, lengths + pass->rows), ids;
    for (int64_t& length : behind) length--;
    Tokens some = tokens_of(*pass, behind.data());
    std::vector<float> states(given, given + some.size() * size), fed, logits;
    run_module(*chain, *pass, some, token_ids, is_bfloat, states, fed);
    Tokens ends;  // the last node of each row that drafts on
    for (size_t t = 0; t < some.size(); t++)
        if (t + 1 == some.size() || some[t + 1].row != some[t].row) {
            std::copy_n(states.data() + t * size, size, states.data() + ends.size() * size);
            std::copy_n(fed.data() + t * size, size, fed.data() + ends.size() * size);
            ends.push_back(some[t]);
        }
    for (int64_t depth = 0;; depth++) {
        logits.resize(ends.size() * chain->output.outs);
        multiply<1>({&chain->output}, states.data(), {logits.data()}, ends.size(), pass->threads);
        some.clear();
        ids.clear();
        for (size_t t = 0; t < ends.size(); t++) {
            const float* row = logits.data() + t * chain->output.outs;
            const int64_t best = std::max_element(row, row + chain->output.outs) - row;
            const int64_t id = chain->token_ids ? chain->token_ids[best] : best;
            drafted[ends[t].row * longest + depth] = id;
            if (depth + 1 == lengths[ends[t].row]) continue;
            std::copy_n(fed.data() + t * size, size, states.data() + some.size() * size);
            some.push_back({ends[t].row, ends[t].node + 1, ends[t].place + 1});
            ids.push_back(id);
        }
        if (some.empty()) return;
        run_module(*chain, *pass, some, ids.data(), is_bfloat, states, fed);
        ends = some;
    }
}
