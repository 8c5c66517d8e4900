// What the drivers in JavaScript have in common: their settings, and a line for each feature.
"use strict";

const { createRequire } = require("node:module");
const { setTimeout: pause } = require("node:timers/promises");

const WAIT_MS = 30_000;

class Unsupported extends Error {}

const setting = (name) => process.env[`MATRIX_${name}`];

// It exists, with one partition.
const topic = (feature) => `${setting("PREFIX")}-${feature}`;

// The packages of the first argument, a directory that npm has filled.
const load = createRequire(`${process.argv[2]}/`);

function same(found, wanted) {
  if (JSON.stringify(found) !== JSON.stringify(wanted)) {
    throw new Error(`${JSON.stringify(found)} instead of ${JSON.stringify(wanted)}`);
  }
}

// What one node has done, another one learns a moment later.
async function eventually(story) {
  for (const deadline = Date.now() + WAIT_MS; ; await pause(100)) {
    try {
      return await story();
    } catch (error) {
      if (Date.now() > deadline) throw error;
    }
  }
}

async function run(features) {
  for (const [feature, story] of Object.entries(features)) {
    let result = "passed";
    let note = "";
    try {
      await story();
    } catch (error) {
      result = error instanceof Unsupported ? "unsupported" : "failed";
      note = error.message;
    }
    console.log(JSON.stringify({ feature, result, note }));
  }
  process.exit(0);
}

module.exports = { CODECS: ["none", "gzip", "snappy", "lz4", "zstd"], Unsupported, WAIT_MS, eventually, load, run, same, setting, topic };
