// All layers of a decoder for the tokens of one pass, their keys and values written to and read from blocks of a cache.

#pragma once

#include "attention.h"
#include "layer.h"
#include "linear.h"

namespace {

constexpr int64_t kEntries = 16;  // of a block of the cache

struct Layer {
    Matrix q, k, v, o, gate, up, down;
    Norm norm, mlp_norm, q_norm, k_norm;
    float scale;
    int64_t head_size;
    int64_t kind;  // which of the spans it reads
};

// Keys or values of a layer are (kv_heads, entries, head_size); a pass writes token p to entry ``writes[p]``.
struct Span {
    const int64_t *writes, *blocks;  // blocks: (rows, keys / kEntries)
    const bool* mask;                // (rows, nodes, keys)
    int64_t keys, entries;  // entries: of the layers' caches
};

struct Pass {
    int64_t tokens, rows, nodes;  // nodes: most tokens of a row
    const int64_t* counts;        // tokens of each row, which lie one after the other
    const float *cos, *sin;       // (tokens, turned)
    int64_t turned;
    const Span* spans;
    void* const *keys, *const *values;  // of every layer
    int threads;
};

struct Token {
    int64_t row, node, place;  // place: among the pass's tokens
};
typedef std::vector<Token> Tokens;

// The first nodes of every row, ``behind[row]`` at its end left out.
Tokens tokens_of(const Pass& pass, const int64_t* behind = nullptr) {
    Tokens found;
    int64_t place = 0;
    for (int64_t row = 0; row < pass.rows; row++)
        for (int64_t node = 0; node < pass.counts[row]; node++, place++)
            if (!behind || node < pass.counts[row] - behind[row]) found.push_back({row, node, place});
    return found;
}

void store(float* to, const float* from, int64_t count) { std::memcpy(to, from, count * sizeof(float)); }
void store(uint16_t* to, const float* from, int64_t count) {
    for (int64_t i = 0; i < count; i++) to[i] = to_bfloat(from[i]);
}

template <class Number>
void attend(const Layer& layer, int64_t index, const Pass& pass, const Tokens& some, const float* q, const float* k,
            const float* v, float* out) {
    const int64_t size = layer.head_size, heads = layer.q.outs / size, kv_heads = layer.k.outs / size;
    const Span& span = pass.spans[layer.kind];
    Number *keys = (Number*)pass.keys[index], *values = (Number*)pass.values[index];
    const int64_t tokens = some.size();
    for (int64_t p = 0; p < tokens; p++)
        for (int64_t head = 0; head < kv_heads; head++) {
            const int64_t place = (head * span.entries + span.writes[some[p].place]) * size;
            store(keys + place, k + (p * kv_heads + head) * size, size);
            store(values + place, v + (p * kv_heads + head) * size, size);
        }
    // Queries that see the same keys, of one row and one head of these, go over them together; all threads have some.
    const int64_t shared = heads / kv_heads;
    struct Task {
        int64_t kv_head, token, first, count;  // token: the row's first; first: among the row's queries of that head
    };
    std::vector<Task> tasks;
    const int64_t most = std::clamp<int64_t>(tokens * heads / (2 * pass.threads), 1, kMostQueries);
    for (int64_t begin = 0, end; begin < tokens; begin = end) {
        for (end = begin; end < tokens && some[end].row == some[begin].row;) end++;
        for (int64_t head = 0; head < kv_heads; head++)
            for (int64_t first = 0; first < (end - begin) * shared; first += most)
                tasks.push_back({head, begin, first, std::min(most, (end - begin) * shared - first)});
    }
#pragma omp parallel for schedule(static) num_threads(pass.threads)
    for (size_t i = 0; i < tasks.size(); i++) {
        const Task& task = tasks[i];
        const int64_t row = some[task.token].row, begin = task.kv_head * span.entries;
        const int64_t* blocks = span.blocks + row * (span.keys / kEntries);
        auto place = [&](int64_t key) { return (begin + blocks[key / kEntries] * kEntries + key % kEntries) * size; };
        Query queries[kMostQueries];
        for (int64_t j = 0; j < task.count; j++) {
            const int64_t p = task.token + (task.first + j) / shared, head = task.kv_head * shared + (task.first + j) % shared;
            queries[j] = {q + (p * heads + head) * size, span.mask + (row * pass.nodes + some[p].node) * span.keys,
                          out + (p * heads + head) * size};
        }
        attend(queries, task.count, keys, values, size, size, 1, span.keys, layer.scale, place, place);
    }
}

struct Room {
    std::vector<float> numbers;
    float* operator()(int64_t count) {
        if ((int64_t)numbers.size() < count) numbers.resize(count);
        return numbers.data();
    }
};

// Every layer for ``some`` of the pass's tokens. x (tokens, size) becomes what the last layer gives; ``below``, where there is
// such, what entered that layer.
void run_layers(const Layer* layers, int64_t count, const Pass& pass, const Tokens& some, bool is_bfloat, float* x, float* below) {
    static thread_local Room normed_room, q_room, k_room, v_room, mixed_room, gate_room, up_room;
    const int64_t tokens = some.size();
    for (int64_t i = 0; i < count; i++) {
        const Layer& layer = layers[i];
        const int64_t size = layer.q.cols, inner = layer.gate.outs, head_size = layer.head_size;
        float *normed = normed_room(tokens * size), *mixed = mixed_room(tokens * layer.q.outs);
        float *q = q_room(tokens * layer.q.outs), *k = k_room(tokens * layer.k.outs), *v = v_room(tokens * layer.v.outs);
        float *gate = gate_room(tokens * inner), *up = up_room(tokens * inner);
        if (below && i == count - 1) std::memcpy(below, x, tokens * size * sizeof(float));

        normalise(x, layer.norm, normed, tokens, size);
        multiply<3>({&layer.q, &layer.k, &layer.v}, normed, {q, k, v}, tokens, pass.threads);
        if (layer.q_norm.gain) normalise(q, layer.q_norm, q, tokens * layer.q.outs / head_size, head_size);
        if (layer.k_norm.gain) normalise(k, layer.k_norm, k, tokens * layer.k.outs / head_size, head_size);
        for (int64_t t = 0; t < tokens; t++) {
            const float *cos = pass.cos + some[t].place * pass.turned, *sin = pass.sin + some[t].place * pass.turned;
            turn(q + t * layer.q.outs, cos, sin, layer.q.outs, head_size, pass.turned);
            turn(k + t * layer.k.outs, cos, sin, layer.k.outs, head_size, pass.turned);
        }
        if (is_bfloat)
            attend<uint16_t>(layer, i, pass, some, q, k, v, mixed);
        else
            attend<float>(layer, i, pass, some, q, k, v, mixed);
        multiply<1>({&layer.o}, mixed, {normed}, tokens, pass.threads);
        add(x, normed, tokens * size);

        normalise(x, layer.mlp_norm, normed, tokens, size);
        multiply<2>({&layer.gate, &layer.up}, normed, {gate, up}, tokens, pass.threads);
        gate_with(gate, up, tokens * inner);
        multiply<1>({&layer.down}, gate, {normed}, tokens, pass.threads);
        add(x, normed, tokens * size);
    }
}

}  // namespace
