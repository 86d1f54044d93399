#!/usr/bin/env node
/* Bundles a few thousand modules by webpack, as the build of a large page does, and prints the bundle's SHA-256.
 *
 *   node examples/node_build.js prepare DIRECTORY                                                  makes the modules
 *   millpond run --ram 160M -- node --max-old-space-size=2048 examples/node_build.js bundle DIRECTORY
 *
 * Node chooses the limit of its heap by how much memory there is, and `millpond run` answers that question with the
 * budget. A job that needs more than the budget names its heap, as here, or is run with `--tell machine`.
 * webpack is looked for as node does, also in NODE_PATH; examples/need installs it.
 */
"use strict";

const { createHash } = require("node:crypto");
const { mkdirSync, readFileSync, writeFileSync } = require("node:fs");
const { join, resolve } = require("node:path");

const MODULES = 240;
const FUNCTIONS = 8;

/** Writes the source of module `n`, which uses up to three modules behind it. */
function source(n) {
    const used = [3 * n + 1, 3 * n + 2, 3 * n + 3].filter((m) => m < MODULES);
    const lines = used.map((m) => `import { total as total${m} } from "./module${m}.js";`);
    for (let f = 0; f < FUNCTIONS; f++) {
        lines.push(`export function step${f}(first, second) {`);
        lines.push(`    const table = { name: "module ${n} step ${f}", weights: [${n}, ${f}, ${n ^ f}, ${n * f}] };`);
        lines.push(`    if (first > ${n % 17}) { return table.weights.map((weight) => weight * first + second); }`);
        lines.push(`    return table.name.split(" ").map((word, place) => word.length * place + second - first);`);
        lines.push("}");
    }
    const steps = Array.from({ length: FUNCTIONS }, (_, f) => `...step${f}(value, ${f})`);
    const others = used.map((m) => ` + total${m}(value)`).join("");
    lines.push(`export function total(value) {`);
    lines.push(`    return [${steps.join(", ")}].reduce((sum, one) => sum + one, 0)${others};`, "}", "");
    return lines.join("\n");
}

function prepare(directory) {
    mkdirSync(directory, { recursive: true });
    for (let n = 0; n < MODULES; n++) {
        writeFileSync(join(directory, `module${n}.js`), source(n));
    }
    writeFileSync(join(directory, "index.js"), 'import { total } from "./module0.js";\nconsole.log(total(7));\n');
}

function bundle(directory) {
    const webpack = require("webpack");
    const settings = {
        mode: "production",
        devtool: "source-map",
        context: directory,
        entry: "./index.js",
        output: { path: join(directory, "out"), filename: "bundle.js" },
        // The bundle is larger than webpack thinks good for a page.
        performance: { hints: false },
    };
    webpack(settings, (error, stats) => {
        if (error || stats.hasErrors()) {
            console.error(error || stats.toString("errors-only"));
            process.exitCode = 1;
            return;
        }
        const made = readFileSync(join(directory, "out", "bundle.js"));
        console.log(`${made.length} bytes, sha256 ${createHash("sha256").update(made).digest("hex")}`);
    });
}

const [, , step, directory] = process.argv;
if (!directory || !["prepare", "bundle"].includes(step)) {
    console.error("usage: node examples/node_build.js prepare|bundle DIRECTORY");
    process.exit(2);
}
(step === "prepare" ? prepare : bundle)(resolve(directory));
