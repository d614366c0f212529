// Runs a GGUF file with one MTP block through libllama, driven as `draft-mtp` in llama.cpp's common/speculative.cpp.
//
//     llamacpp_mtp MODEL.gguf LOGITS.bin NEW DEPTH ID...
//
// LOGITS.bin takes float32 rows as wide as the vocabulary: the trunk's for every id; the head's for every id, as
// draft-mtp feeds it (id j with the trunk's state of j - 1, zeros for the first); the head's without that first entry.
// Standard output takes one JSON object: the sizes, and NEW greedy tokens with and without drafts of DEPTH tokens.

#include "llama-ext.h"
#include "llama.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

using Tokens = std::vector<llama_token>;
using Floats = std::vector<float>;

static void require(bool ok, const char * what) {
    if (!ok) {
        fprintf(stderr, "llamacpp_mtp: %s\n", what);
        exit(1);
    }
}

// A context and its batch. A head's entry is a token together with a state of the trunk, a trunk's a token alone.
struct Context {
    llama_context * ctx;
    llama_batch_ext * batch;
    int n_vocab, n_embd;

    Context(llama_model * model, llama_context * trunk, int n_ctx, int depth) {
        llama_context_params params = llama_context_default_params();
        params.n_ctx = params.n_batch = params.n_ubatch = n_ctx;
        params.n_threads = params.n_threads_batch = 1;
        params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
        params.type_k = params.type_v = GGML_TYPE_F32; // the default, F16, is too coarse to compare logits
        params.no_perf = true;
        params.ctx_other = trunk;
        params.ctx_type = trunk ? LLAMA_CONTEXT_TYPE_MTP : LLAMA_CONTEXT_TYPE_DEFAULT;
        params.n_rs_seq = trunk ? 0 : depth; // as many recurrent states are kept as drafts may be rejected
        ctx = llama_init_from_model(model, params);
        require(ctx, "no context");
        llama_set_embeddings_nextn(ctx, true, /*masked*/ trunk != nullptr);
        batch = llama_batch_ext_init(ctx);
        n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
        n_embd = llama_model_n_embd_out(model);
    }

    ~Context() {
        llama_batch_ext_free(batch);
        llama_free(ctx);
    }

    // Reads tokens from position `start` on; `states` holds a row for each, or nothing.
    void decode(const llama_token * tokens, size_t n, llama_pos start, const float * states) {
        llama_batch_ext_clear(batch);
        for (size_t i = 0; i < n; i++) {
            const llama_pos pos[4] = {start + (llama_pos) i, 0, 0, 0};
            const int entry = llama_batch_ext_add_token(batch, 0, tokens[i]);
            require(entry >= 0 && llama_batch_ext_set_pos(batch, entry, pos), "entry refused");
            if (states) {
                const llama_embd row = {states + i * n_embd, 1, (size_t) n_embd};
                require(llama_batch_ext_set_embd_token(batch, entry, row), "state refused");
            }
            llama_batch_ext_set_output_logits(batch, entry, true);
        }
        require(llama_process(ctx, LLAMA_PROCESS_TYPE_DECODE, batch) == 0, "decoding failed");
    }

    const float * logits(int i) { return llama_get_logits_ith(ctx, i); }

    llama_token best(int i) { return std::max_element(logits(i), logits(i) + n_vocab) - logits(i); }

    const float * state(int i) { return llama_get_embeddings_nextn_ith(ctx, i); }

    void forget(llama_pos from) {
        require(llama_memory_seq_rm(llama_get_memory(ctx), 0, from, -1), "cannot rewind");
    }
};

struct Decoder {
    Context trunk, head;
    Floats pending; // the trunk's state before the next token to read; zeros before the first one
    Floats states;  // of the tokens read last

    Decoder(llama_model * model, int n_ctx, int depth) :
        trunk(model, nullptr, n_ctx, depth), head(model, trunk.ctx, n_ctx, depth), pending(head.n_embd) {}

    // Both read the tokens, the head with the trunk's states shifted by one.
    void read(const Tokens & tokens, llama_pos start) {
        trunk.decode(tokens.data(), tokens.size(), start, nullptr);
        states = pending;
        for (size_t i = 0; i < tokens.size(); i++) {
            states.insert(states.end(), trunk.state(i), trunk.state(i) + trunk.n_embd);
        }
        head.decode(tokens.data(), tokens.size(), start, states.data());
        keep(tokens.size());
    }

    // The first n of the tokens read last are true.
    void keep(size_t n) {
        pending.assign(states.begin() + n * trunk.n_embd, states.begin() + (n + 1) * trunk.n_embd);
    }

    Tokens draft(llama_token last, llama_pos past, int depth) {
        Tokens tokens;
        Floats state = pending;
        for (int i = 0; i < depth; i++) {
            head.decode(&last, 1, past + i, state.data());
            tokens.push_back(last = head.best(0));
            state.assign(head.state(0), head.state(0) + head.n_embd);
        }
        head.forget(past);
        return tokens;
    }
};

struct Text {
    Tokens tokens;
    int passes = 0, drafted = 0, accepted = 0;

    std::string json() const {
        std::string ids;
        for (llama_token id : tokens) {
            ids += (ids.empty() ? "" : ", ") + std::to_string(id);
        }
        return "{\"tokens\": [" + ids + "], \"passes\": " + std::to_string(passes) + ", \"drafted\": " +
            std::to_string(drafted) + ", \"accepted\": " + std::to_string(accepted) + "}";
    }
};

static Text generate(llama_model * model, const Tokens & prompt, size_t n_new, int depth) {
    Decoder decoder(model, prompt.size() + n_new + depth + 1, depth);
    Text text;
    llama_pos past = prompt.size() - 1;
    llama_token last = prompt.back();
    if (past > 0) {
        decoder.read(Tokens(prompt.begin(), prompt.end() - 1), 0);
    }
    while (text.tokens.size() < n_new) {
        const int room = n_new - text.tokens.size() - 1;
        const Tokens draft = decoder.draft(last, past, std::min(depth, room));
        Tokens pass = {last};
        pass.insert(pass.end(), draft.begin(), draft.end());
        decoder.read(pass, past);
        size_t accepted = 0;
        text.tokens.push_back(last = decoder.trunk.best(0));
        while (accepted < draft.size() && last == draft[accepted]) {
            text.tokens.push_back(last = decoder.trunk.best(++accepted));
        }
        decoder.keep(accepted + 1);
        past += accepted + 1;
        decoder.trunk.forget(past);
        decoder.head.forget(past);
        text.passes++;
        text.drafted += draft.size();
        text.accepted += accepted;
    }
    return text;
}

static void write_logits(Context & context, size_t n, FILE * file) {
    for (size_t i = 0; i < n; i++) {
        const size_t written = fwrite(context.logits(i), sizeof(float), context.n_vocab, file);
        require(written == (size_t) context.n_vocab, "cannot write the logits");
    }
}

int main(int argc, char ** argv) {
    require(argc > 6, "usage: llamacpp_mtp MODEL.gguf LOGITS.bin NEW DEPTH ID ID...");
    const int n_new = atoi(argv[3]), depth = atoi(argv[4]);
    Tokens ids;
    for (int i = 5; i < argc; i++) {
        ids.push_back(atoi(argv[i]));
    }
    llama_log_set([](ggml_log_level level, const char * text, void *) {
        if (level == GGML_LOG_LEVEL_ERROR) {
            fputs(text, stderr);
        }
    }, nullptr);
    llama_backend_init();
    llama_model_params params = llama_model_default_params();
    params.load_mtp = true;
    llama_model * model = llama_model_load_from_file(argv[1], params);
    require(model, "cannot load the model");
    require(llama_model_n_layer_nextn(model) == 1, "not a model with one MTP block");
    FILE * file = fopen(argv[2], "wb");
    require(file, "cannot write the logits");
    {
        Decoder decoder(model, ids.size(), 0);
        decoder.read(ids, 0);
        write_logits(decoder.trunk, ids.size(), file);
        write_logits(decoder.head, ids.size(), file);
        llama_memory_clear(llama_get_memory(decoder.head.ctx), true);
        decoder.head.decode(ids.data() + 1, ids.size() - 1, 1, decoder.states.data() + decoder.head.n_embd);
        write_logits(decoder.head, ids.size() - 1, file);
        printf("{\"vocab\": %d, ", decoder.trunk.n_vocab);
    }
    require(fclose(file) == 0, "cannot write the logits");
    printf("\"plain\": %s, ", generate(model, ids, n_new, 0).json().c_str());
    printf("\"drafted\": %s}\n", generate(model, ids, n_new, depth).json().c_str());
    llama_model_free(model);
    llama_backend_free();
}
