"use strict";
// The charts take the colours of the page, which are those of the system until the button is used.
(function () {
  const root = document.documentElement;
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  let chosen = null;

  function paint() {
    root.dataset.theme = chosen || (system.matches ? "dark" : "light");
    const style = getComputedStyle(root);
    const ink = style.getPropertyValue("--quiet").trim();
    const line = style.getPropertyValue("--line").trim();
    const ticks = window.innerWidth < 760 ? 3 : 8;
    const documents = window.Bokeh ? Bokeh.documents : [];
    for (const each of documents) {
      for (const model of each.all_models || each._all_models.values()) {
        if ("major_label_text_color" in model.properties) model.major_label_text_color = ink;
        for (const name of ["axis_label_text_color", "label_text_color", "axis_line_color",
          "major_tick_line_color"]) {
          if (name in model.properties && model[name] !== null) model[name] = ink;
        }
        if (model.type === "DatetimeTicker") model.desired_num_ticks = ticks;
        if ("minor_tick_line_color" in model.properties) model.minor_tick_line_color = null;
        if ("grid_line_color" in model.properties && model.grid_line_color !== null) {
          model.grid_line_color = line;
          model.grid_line_alpha = 1;
        }
      }
    }
  }

  system.addEventListener("change", paint);
  document.getElementById("theme").addEventListener("click", function () {
    chosen = root.dataset.theme === "dark" ? "light" : "dark";
    paint();
  });
  paint();
  window.addEventListener("load", paint);
  let tries = 0;  // Bokeh adds its documents after the page has loaded
  const timer = setInterval(function () {
    paint();
    if (++tries > 20 || (window.Bokeh && Bokeh.documents.length)) {
      clearInterval(timer);
      root.dataset.painted = "yes";
    }
  }, 50);
}());
