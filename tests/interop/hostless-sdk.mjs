// The official SDK as a program would use it: nothing tells it where the API is.
import assert from "node:assert/strict";
import { get } from "node:https";
import { Sandbox, Snapshot } from "@vercel/sandbox";

const options = { token: process.env.VERCEL_AUTH_TOKEN, teamId: "team_local", projectId: "prj_local" };
const s = await Sandbox.create({ ...options, name: "unhooked", ports: [3000] });
const done = await s.runCommand("sh", ["-c", "echo out; exit 2"]);
assert.deepEqual([done.exitCode, await done.stdout()], [2, "out\n"]);
await s.writeFiles([{ path: "file", content: Buffer.alloc(1 << 20, 7) }]);
assert.equal((await s.readFileToBuffer({ path: "file" })).length, 1 << 20);
const { url } = await s.openInteractive();
assert.match(url, /^wss:\/\/vercel\.com\//);
if (process.env.SANDGATE_PUBLIC_NAMES) {
  const server = `
import socket
s = socket.create_server(("127.0.0.1", 3000))
while True:
    c = s.accept()[0]
    c.recv(65536)
    c.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 6\\r\\nConnection: close\\r\\n\\r\\ninside")
    c.close()
`;
  await s.runCommand({ cmd: "python3", args: ["-c", server], detached: true });
  // the resolver of this namespace knows no wildcards, so the name is looked up here
  const body = await new Promise((resolve, reject) => {
    const again = (left) =>
      get(s.domain(3000), { lookup: (host, o, done) => done(null, [{ address: "127.0.0.1", family: 4 }]) }, async (answer) => {
        let text = "";
        for await (const part of answer) text += part;
        if (answer.statusCode === 502 && left) setTimeout(again, 100, left - 1); // it does not listen yet
        else resolve(`${answer.statusCode} ${text}`);
      }).on("error", reject);
    again(100);
  });
  assert.equal(body, "200 inside");
}
await s.stop();
const again = await Sandbox.get({ ...options, name: "unhooked", resume: true });
assert.equal((await again.readFileToBuffer({ path: "file" })).length, 1 << 20);
const snapshot = await again.snapshot();
assert.equal((await Snapshot.get({ ...options, snapshotId: snapshot.snapshotId })).status, "created");
await again.delete({ deleteOrphanSnapshots: true });
