// Runs before the first paint, so that a chosen theme does not flash.
try {
  const theme = localStorage.getItem("gpusteward.theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // Without storage the theme of the system applies.
}
