// Prints the gzip size of everything that the first page loads, and fails above the limit.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";

const LIMIT_BYTES = 150_000;
const FOLDER = new URL("../../src/gpusteward/analyzer/api/ui/static/", import.meta.url).pathname;
const FIRST_PAGE = "src/pages/overview/overview.tsx";

const manifest = JSON.parse(readFileSync(join(FOLDER, "manifest.json"), "utf8"));

/** The files of a chunk with everything it imports at once. */
function collect(name, files = new Set()) {
  const chunk = manifest[name];
  if (!chunk || files.has(chunk.file)) return files;
  files.add(chunk.file);
  for (const style of chunk.css ?? []) files.add(style);
  for (const imported of chunk.imports ?? []) collect(imported, files);
  return files;
}

const files = collect("index.html", collect(FIRST_PAGE, new Set(["index.html", "theme.js"])));
let total = 0;
for (const file of files) {
  const bytes = gzipSync(readFileSync(join(FOLDER, file))).length;
  total += bytes;
  console.log(`${(bytes / 1000).toFixed(1).padStart(8)} kB  ${file}`);
}
console.log(`${(total / 1000).toFixed(1).padStart(8)} kB  first load, gzip (limit ${LIMIT_BYTES / 1000} kB)`);
if (total > LIMIT_BYTES) process.exit(1);
