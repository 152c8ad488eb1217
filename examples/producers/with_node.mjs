// Send a message to an agent from Node, with nothing installed: Celery's message protocol 2, put on the Redis list
// `messages` over a plain socket.
//
// REDIS_URL=redis://... node with_node.mjs AGENT TEXT [KEY]
//
// The same KEY is taken once, however often it is sent: use your own name for what happened, such as an order's number.

import { createHash, randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { connect as connectPlain } from "node:net";
import { hostname } from "node:os";
import { connect as connectTls } from "node:tls";

const SECONDS = 10;
const NAMESPACE_OID = "6ba7b8129dad11d180b400c04fd430c8";

// REDIS_URL, or the embedded broker of a `make up` that runs in this folder.
function brokerUrl() {
  if (process.env.REDIS_URL) return process.env.REDIS_URL;
  try {
    return JSON.parse(readFileSync(".longshore/embedded.json", "utf8")).redis_url;
  } catch {
    console.error("set REDIS_URL to the broker's address, such as redis://:password@host:6379/0");
    process.exit(1);
  }
}

// A version 5 UUID: the same words, the same id, in any language.
function uuid5(words) {
  const hash = createHash("sha1").update(Buffer.from(NAMESPACE_OID, "hex")).update(words).digest();
  hash[6] = (hash[6] & 0x0f) | 0x50;
  hash[8] = (hash[8] & 0x3f) | 0x80;
  return hash.toString("hex", 0, 16).replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}

function celeryMessage(id, fields) {
  return {
    body: Buffer.from(JSON.stringify([[], fields, {}])).toString("base64"),
    "content-type": "application/json",
    "content-encoding": "utf-8",
    headers: {
      lang: "js",
      task: "messages.ingest",
      id,
      root_id: id,
      parent_id: null,
      group: null,
      // What monitors of the broker show instead of the text.
      argsrepr: "()",
      kwargsrepr: JSON.stringify({ message_id: fields.message_id }),
      origin: `${process.pid}@${hostname()}`,
      ignore_result: true,
    },
    properties: {
      correlation_id: id,
      delivery_mode: 2,
      delivery_tag: randomUUID(), // another one for every sending
      delivery_info: { exchange: "", routing_key: "messages" },
      body_encoding: "base64",
      priority: 0,
    },
  };
}

// One Redis connection: a command, then its answer.
class Redis {
  constructor(url) {
    const { protocol, hostname: name, port } = new URL(url);
    if (protocol !== "redis:" && protocol !== "rediss:") throw new Error("REDIS_URL must begin with redis:// or rediss://");
    const host = name.replace(/^\[|\]$/g, "");
    const where = { host, port: Number(port) || 6379 };
    this.socket = protocol === "rediss:" ? connectTls({ ...where, servername: host }) : connectPlain(where);
    this.socket.setTimeout(SECONDS * 1000, () => this.socket.destroy(new Error(`no answer in ${SECONDS} s`)));
    this.received = "";
    this.failed = null;
    this.socket.setEncoding("utf8");
    this.socket.on("data", (part) => this.#take(part));
    this.socket.on("error", (error) => this.#fail(error));
    this.socket.on("close", () => this.#fail(new Error("the connection was closed")));
  }

  // The commands used here are answered with one line: +word, :number or -error.
  command(...words) {
    const parts = words.map((word) => `$${Buffer.byteLength(word)}\r\n${word}\r\n`);
    return new Promise((resolve, reject) => {
      if (this.failed) return reject(this.failed);
      this.waiting = { resolve, reject };
      this.socket.write(`*${words.length}\r\n${parts.join("")}`);
    });
  }

  close() {
    this.socket.destroy();
  }

  #take(part) {
    this.received += part;
    const end = this.received.indexOf("\r\n");
    if (end < 0) return;
    const line = this.received.slice(0, end);
    this.received = this.received.slice(end + 2);
    const { resolve, reject } = this.waiting ?? {};
    this.waiting = null;
    if (line.startsWith("-")) reject?.(new Error(line.slice(1)));
    else resolve?.(line.slice(1));
  }

  #fail(error) {
    this.failed ??= error;
    this.waiting?.reject(this.failed);
    this.waiting = null;
  }
}

async function send(agent, text, key) {
  const url = new URL(brokerUrl());
  const id = uuid5(`${agent}/${key}`); // made from the key, so that whoever sends again learns the id of the row there is
  const message = celeryMessage(id, { agent_group: agent, text, message_id: key });
  const redis = new Redis(url);
  try {
    const [user, password] = [decodeURIComponent(url.username), decodeURIComponent(url.password)];
    if (password) await redis.command("AUTH", ...(user ? [user, password] : [password]));
    const database = url.pathname.slice(1);
    if (database) await redis.command("SELECT", database);
    await redis.command("LPUSH", "messages", JSON.stringify(message));
  } finally {
    redis.close();
  }
  return id;
}

const [agent, text, key = `order-${randomUUID()}`] = process.argv.slice(2);
if (!agent || !text) {
  console.error("usage: node with_node.mjs AGENT TEXT [KEY]");
  process.exit(1);
}
try {
  console.log(`queued as ${await send(agent, text, key)}, key ${key}`);
} catch (error) {
  const why = error.errors?.map((one) => one.message).join("; ") || error.message; // one for each address it tried
  console.error(`the broker did not take it (${why}): send it again with the key ${key}`);
  process.exitCode = 1;
}
