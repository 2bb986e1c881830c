// One request on stdin, one answer on stdout, with kafkajs: tests/clients/program.py says which.
const { createHash, randomUUID } = require("node:crypto");
const { readFileSync } = require("node:fs");
const { CompressionCodecs, CompressionTypes, Kafka, logLevel } = require("kafkajs");
const { decompress: unzstd } = require("fzstd");
const { decompress: unlz4 } = require("lz4js");

const PATIENCE_MS = 120_000;
const WAIT_MS = 200; // of a fetch at the end of the log
const IDLE_FETCHES = 10; // in a row; then nothing comes

const codec = (decompress) => () => ({ decompress: async (data) => Buffer.from(decompress(data)) });
CompressionCodecs[CompressionTypes.Snappy] = require("kafkajs-snappy");
CompressionCodecs[CompressionTypes.LZ4] = codec(unlz4);
CompressionCodecs[CompressionTypes.ZSTD] = codec(unzstd);

function kafka({ servers, security }) {
  const { ca, mechanism, user, password } = security;
  return new Kafka({
    brokers: servers.split(","),
    logLevel: logLevel.WARN,
    logCreator: () => ({ log }) => console.error(JSON.stringify(log)),
    ...(ca && { ssl: { ca: [readFileSync(ca)] } }),
    ...(mechanism && { sasl: { mechanism, username: user, password } }),
  });
}

async function asAdmin(request, work) {
  const admin = kafka(request).admin();
  await admin.connect();
  try {
    return await work(admin);
  } finally {
    await admin.disconnect();
  }
}

// Gives batches to `take` until it calls `done`; `idle` is called after a fetch.
async function consume(request, group, take, idle = () => {}) {
  const consumer = kafka(request).consumer({
    groupId: group, readUncommitted: !request.committed, maxWaitTimeInMs: WAIT_MS,
  });
  await consumer.connect();
  try {
    await new Promise((done, fail) => {
      consumer.on("consumer.crash", ({ payload }) => payload.restart || fail(payload.error));
      consumer.on("consumer.fetch", () => idle(done));
      // also behind batches that have nothing but markers, which eachBatch never sees
      consumer.on("consumer.end_batch_process", ({ payload }) => idle(done, payload));
      consumer
        .subscribe({ topics: [request.topic], fromBeginning: true })
        .then(() => consumer.run({ autoCommit: false, eachBatch: (given) => take(given, done) }))
        .catch(fail);
    });
  } finally {
    await consumer.disconnect();
  }
}

function int32(number) {
  const data = Buffer.alloc(4);
  data.writeInt32BE(number);
  return data;
}

function nullable(data) {
  return data === null ? int32(-1) : Buffer.concat([int32(data.length), data]);
}

function encoded({ offset, timestamp, key, value, headers }) {
  const numbers = Buffer.alloc(16);
  numbers.writeBigInt64BE(BigInt(offset));
  numbers.writeBigInt64BE(BigInt(timestamp), 8);
  // a name that is repeated has an array of values
  const pairs = Object.entries(headers).flatMap(([name, values]) =>
    [values].flat().map((each) => [Buffer.from(name), each]));
  const fields = [key, value].map(nullable);
  return Buffer.concat([numbers, ...fields, int32(pairs.length), ...pairs.flat().map(nullable)]);
}

async function read(request) {
  const positions = {}, hashes = {}, counts = {};
  for (const { partition, low } of await asAdmin(request, (admin) =>
    admin.fetchTopicOffsets(request.topic))) {
    positions[partition] = BigInt(low);
    hashes[partition] = createHash("sha256");
    counts[partition] = 0;
  }
  const ended = () =>
    Object.entries(request.ends).every(([partition, end]) => positions[partition] >= BigInt(end));
  let idle = 0;
  const look = (done, moved) => {
    if (moved) positions[moved.partition] = BigInt(moved.lastOffset) + 1n;
    idle = moved ? 0 : idle + 1;
    if (ended() || idle === IDLE_FETCHES) done();
  };
  const take = async ({ batch }) => {
    for (const message of batch.messages) hashes[batch.partition].update(encoded(message));
    counts[batch.partition] += batch.messages.length;
  };
  if (!ended()) await consume(request, `read-${randomUUID()}`, take, look);
  return {
    partitions: Object.fromEntries(Object.keys(request.ends).map((partition) =>
      [partition, [counts[partition], hashes[partition].digest("hex")]])),
  };
}

async function group(request) {
  const { topic, stop_after: stopAfter } = request;
  const partitions = {};
  let left = stopAfter;
  const take = async ({ batch: { partition, messages }, commitOffsetsIfNecessary }, done) => {
    const some = messages.slice(0, left);
    if (!some.length) return;
    const [first, last] = [some[0], some.at(-1)].map(({ offset }) => Number(offset));
    const offset = String(last + 1);
    await commitOffsetsIfNecessary({ topics: [{ topic, partitions: [{ partition, offset }] }] });
    const [count, start] = partitions[partition] ?? [0, first];
    partitions[partition] = [count + some.length, start, last];
    left -= some.length;
    if (!left) done();
  };
  await consume(request, request.group, take);
  return { partitions };
}

function lookup({ topic, asked, ...request }) {
  return asAdmin(request, async (admin) => {
    const ends = await admin.fetchTopicOffsets(topic);
    const offsets = [];
    for (const [partition, time] of asked) {
      const of = (answers) => answers.find((each) => each.partition === partition);
      const { offset } = of(await admin.fetchTopicOffsetsByTimestamp(topic, time));
      offsets.push(offset === of(ends).high ? -1 : Number(offset)); // kafkajs gives the end instead
    }
    return { offsets };
  });
}

function topics(request) {
  return asAdmin(request, async (admin) => {
    const found = (await admin.fetchTopicMetadata({ topics: await admin.listTopics() })).topics;
    return { topics: Object.fromEntries(found.map((t) => [t.name, t.partitions.length])) };
  });
}

function answer(said) {
  process.stdout.write(JSON.stringify(said) + "\n", () => process.exit(0));
}

setTimeout(() => answer({ error: `no answer in ${PATIENCE_MS} ms` }), PATIENCE_MS);
const request = JSON.parse(readFileSync(0, "utf8"));
const actions = { read, lookup, group, topics };
actions[request.action](request).then(answer, (error) => answer({ error: String(error) }));
