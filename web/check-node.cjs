// Ends with 1 where Node is too old to build the web UI; "engines" in package.json has the same version.
const [major, minor] = process.versions.node.split(".").map(Number);
process.exit(major > 20 || (major === 20 && minor >= 19) ? 0 : 1);
