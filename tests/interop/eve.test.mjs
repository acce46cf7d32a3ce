// eve's Vercel environment: see eve/environment.mjs.
import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { copyFile, mkdir, readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { test } from "node:test";
import { newState, program, startEmulator } from "./emulator.mjs";

const here = fileURLToPath(new URL("eve/", import.meta.url));
const node = join(here, `node_modules/node-linux-${process.arch}/bin/node`);
const tar = join(process.env.SANDGATE_CACHE ?? "/var/cache/sandgate", "base.tar");

// eve's images have a /workspace of the sandbox user's; the tests' base has none.
async function withWorkspace(dir) {
  const made = join(dir, "base.tar");
  await copyFile(tar, made);
  await mkdir(join(dir, "workspace"), { mode: 0o755 });
  const added = spawnSync("tar", ["-rf", made, "--owner=:1000", "--group=:1000", "-C", dir, "./workspace"], { encoding: "utf8" });
  assert.equal(added.status, 0, added.stderr);
  return made;
}

test("eve's Vercel environment", async (t) => {
  const { version } = JSON.parse(await readFile(join(here, "node_modules/eve/package.json"), "utf8"));
  // its default image is one of its own; the name of a base says which image it stands for
  const image = `vercel-eve-base-${version.replaceAll(".", "-")}`;
  const [base, scratch] = [await newState(), await newState()];
  t.after(() => Promise.all([base, scratch].map((dir) => rm(dir, { recursive: true, force: true }))));
  const imported = spawnSync(program, ["import-base", "--state", base, "--name", image, await withWorkspace(scratch)], { encoding: "utf8", timeout: 120_000 });
  assert.equal(imported.status, 0, imported.stderr);
  const emulator = await startEmulator({ base, args: ["--base", image, "--policy=record-only"] });
  t.after(async () => assert.deepEqual(await emulator.stop(), { code: 0, signal: null }));
  const env = { ...process.env, EMULATOR_URL: emulator.url, EMULATOR_TOKEN: emulator.token };
  delete env.NODE_TEST_CONTEXT;
  const child = spawn(node, [join(here, "environment.mjs")], { env, stdio: ["ignore", "pipe", "pipe"] });
  let output = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (data) => (output += data));
  const code = await new Promise((resolve, reject) => child.once("error", reject).once("close", resolve));
  assert.equal(code, 0, output);
  assert.match(output, /^passed$/m);
});
