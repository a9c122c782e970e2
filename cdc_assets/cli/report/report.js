// Draws the charts and tables of the report from the JSON in #data (see page.page_data).
// Texts go into the page by textContent, and into Plotly, which takes some tags as markup, escaped.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const narrow = matchMedia("(max-width: 40rem)");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const filter = byId("filter");
  const LINES = 8; // more can't be told apart
  const BARS = 9;
  const COLORS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8c6bb1", "#7f7f7f", "#a6761d"];
  const DASHES = ["solid", "dash", "dot", "dashdot", "longdash", "longdashdot", "solid", "dash"];
  const BELOW_ZERO = "#d6006c";

  // --- numbers and texts

  const exact = (value) => (value === null ? "" : value.toLocaleString("en-US", { maximumFractionDigits: 3 }));
  const markup = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  const round = (number) => String(number >= 100 ? Math.round(number) : Number(number.toPrecision(3)));
  const UNITS = {
    ms: [[86400000, " d"], [3600000, " h"], [60000, " min"], [1000, " s"], [1, " ms"]],
    s: [[86400, " d"], [3600, " h"], [60, " min"], [1, " s"], [0.001, " ms"]],
    bytes: [[1e12, " TB"], [1e9, " GB"], [1e6, " MB"], [1e3, " kB"], [1, " B"]],
    count: [[1e9, " G"], [1e6, " M"], [1e3, " k"], [1, ""]],
  };

  function human(value, unit) {
    const size = Math.abs(value);
    const [of, name] = (UNITS[unit] || UNITS.count).find(([limit]) => size >= limit) || [1, unit === "ms" ? " ms" : ""];
    return (value < 0 ? "−" : "") + round(size / of) + (value === 0 ? "" : name);
  }

  const withUnit = (value, unit) =>
    `${exact(value)} ${unit}` + (["ms", "s", "bytes"].includes(unit) && Math.abs(value) >= 1000 ? ` (${human(value, unit)})` : "");

  // Logarithmic on both sides of zero, where 1 is the smallest unit of interest.
  const squeeze = (value) => Math.sign(value) * Math.log10(1 + Math.abs(value));

  function niceTicks(low, high, unit) {
    const steps = { ms: [1, 10, 100, 1e3, 1e4, 6e4, 6e5, 3.6e6, 2.16e7, 8.64e7, 8.64e8, 8.64e9, 8.64e10, 8.64e11], s: [1, 10, 60, 600, 3600, 21600, 86400] };
    const positive = steps[unit] || Array.from({ length: 16 }, (_, n) => 10 ** n);
    const ticks = [...positive.map((tick) => -tick).reverse(), 0, ...positive].filter((tick) => tick >= low && tick <= high);
    const step = Math.ceil(ticks.length / (narrow.matches ? 4 : 8));
    const zero = Math.max(0, ticks.indexOf(0));
    const found = ticks.filter((_, number) => (number - zero) % step === 0);
    return found.length > 2 ? found : Array.from(new Set([low, ...found, high])).filter((tick, at, all) => at === all.length - 1 || at === 0 || (tick > 1.5 * low && high > 1.5 * tick));
  }

  // --- what is chosen

  const chosen = (panel, what) => {
    const select = byId(`${panel.id}-${what}`);
    return select ? Number(select.value) : 0;
  };
  const viewOf = (panel) => byId(`${panel.id}-view`).value;
  const isMatch = (name) => name.toLowerCase().includes(filter.value.trim().toLowerCase());

  // The rows of a panel that match the filter, largest value first: name, columns and values.
  function rowsOf(panel, figure) {
    const group = panel.groups[chosen(panel, "group")];
    const found = [];
    for (const [row, columns, ...figures] of group.cells) {
      if (!isMatch(panel.rows[row])) continue;
      const values = figure >= 0
        ? figures[figure]
        : columns.map((_, at) => figures.reduce((sum, of) => sum + (of[at] || 0), 0));
      const known = values.filter((value) => value !== null);
      if (known.length && (figure < 0 || !panel.bars || known.some((value) => value)))
        found.push({ name: panel.rows[row], columns, values, largest: known.reduce((a, b) => Math.max(a, b)) });
    }
    return found.sort((a, b) => b.largest - a.largest || (a.name < b.name ? -1 : 1));
  }

  // --- charts

  function theme() {
    const style = getComputedStyle(document.documentElement);
    return Object.fromEntries(["page", "text", "muted", "grid"].map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
  }

  function columnTicks(panel) {
    const count = panel.columns.length;
    let step = Math.ceil(count / (narrow.matches ? 3 : 8));
    const first = panel.columns[0].slice(0, 10);
    const aDay = panel.columns.filter((label) => label.startsWith(first)).length;
    if (aDay > 1 && step > aDay / 4) step = Math.ceil(step / aDay) * aDay; // at midnight
    const values = [];
    for (let at = 0; at < count; at += step) values.push(at);
    const words = values.map((at) => panel.columns[at].slice(0, 16).split(" "));
    return { tickvals: values, ticktext: words.map((parts) => (step % aDay ? parts.join("<br>") : parts[0])) };
  }

  // The end of a name tells tables apart better than its beginning.
  function shortened(name) {
    const room = narrow.matches ? 14 : 36;
    return markup(name.length <= room ? name : "…" + Array.from(name).slice(1 - room).join(""));
  }

  function layoutOf(panel, colors, height, more) {
    const axis = { gridcolor: colors.grid, zerolinecolor: colors.grid, linecolor: colors.grid, fixedrange: true, automargin: true };
    const title = { text: markup(panel.column), font: { size: 12, color: colors.muted } };
    return {
      height,
      paper_bgcolor: colors.page,
      plot_bgcolor: colors.page,
      font: { family: "system-ui, sans-serif", size: 12, color: colors.text },
      margin: { l: 8, r: 8, t: 8, b: 40 },
      dragmode: false,
      hoverlabel: { bgcolor: colors.page, bordercolor: colors.muted, font: { color: colors.text }, align: "left" },
      xaxis: { ...axis, ...columnTicks(panel), title, range: [-0.5, panel.columns.length - 0.5], showgrid: false, zeroline: false, tickangle: 0, ...more.xaxis },
      yaxis: { ...axis, ...more.yaxis },
      ...more.layout,
    };
  }

  const hover = (panel, name, column, says) => `<b>${markup(name)}</b><br>${markup(panel.columns[column])}<br>${markup(says)}`;

  function heatMap(panel, colors, rows, unit) {
    const below = rows.some((row) => row.values.some((value) => value !== null && value < 0));
    const z = [], text = [];
    let high = 0, low = Infinity;
    for (const row of rows) {
      const ofZ = Array(panel.columns.length).fill(null), ofText = Array(panel.columns.length).fill("");
      row.columns.forEach((column, at) => {
        const value = row.values[at];
        if (value === null) return;
        ofZ[column] = value < 0 ? null : squeeze(value);
        if (value >= 0) { high = Math.max(high, value); low = Math.min(low, value); }
        ofText[column] = hover(panel, row.name, column, withUnit(value, unit));
        if (value < 0) ofZ[column] = -Infinity;
      });
      z.push(ofZ);
      text.push(ofText);
    }
    low = Number.isFinite(low) ? low : 0;
    const zLow = squeeze(low), zHigh = Math.max(squeeze(high), zLow + 0.1);
    // Values below zero have a color of their own, a tenth of the scale below the others.
    const zMin = below ? zLow - (zHigh - zLow) / 9 : zLow;
    for (const row of z) row.forEach((value, at) => { if (value === -Infinity) row[at] = zMin; });
    const viridis = ["#440154", "#482878", "#3e4989", "#31688e", "#26828e", "#1f9e89", "#35b779", "#6ece58", "#b5de2b", "#fde725"];
    const shades = dark.matches ? viridis.slice(1) : viridis.slice().reverse().slice(0, -1);
    const start = below ? 0.1 : 0;
    const scale = shades.map((color, at) => [start + ((1 - start) * at) / (shades.length - 1), color]);
    if (below) scale.unshift([0, BELOW_ZERO], [0.0999, BELOW_ZERO]);
    else scale[0][0] = 0;
    const ticks = niceTicks(low, high, unit);
    const marks = { tickvals: ticks.map(squeeze), ticktext: ticks.map((tick) => human(tick, unit)) };
    if (below) { marks.tickvals.unshift(zMin); marks.ticktext.unshift("below 0"); }
    const bar = narrow.matches
      ? { orientation: "h", y: 1, yanchor: "bottom", x: 0.5, len: 1, thickness: 10 }
      : { orientation: "v", thickness: 12, lenmode: "pixels", len: Math.max(120, Math.min(320, rows.length * 22)), y: 1, yanchor: "top" };
    const height = Math.max(narrow.matches ? 190 : 170, rows.length * (narrow.matches ? 20 : 22) + (narrow.matches ? 120 : 70));
    const trace = {
      type: "heatmap", z, text, hovertemplate: "%{text}<extra></extra>", hoverongaps: false, zmin: zMin, zmax: zHigh,
      colorscale: scale, xgap: panel.columns.length > 120 ? 0 : 1, ygap: 1,
      colorbar: { ...bar, ...marks, tickmode: "array", outlinewidth: 0, tickfont: { color: colors.text, size: 11 } },
    };
    const yaxis = {
      autorange: "reversed", showgrid: false, tickmode: "array", tickvals: rows.map((_, at) => at), ticktext: rows.map((row) => shortened(row.name)),
    };
    return [[trace], layoutOf(panel, colors, height, { yaxis, layout: narrow.matches ? { margin: { l: 8, r: 8, t: 50, b: 40 } } : {} })];
  }

  function lines(panel, colors, rows, unit) {
    const all = rows.flatMap((row) => row.values.filter((value) => value !== null));
    const low = Math.min(...all), high = Math.max(...all);
    const isWide = low < 0 || high > 50 * Math.max(low, 1);
    const place = isWide ? squeeze : (value) => value;
    const traces = rows.map((row, at) => {
      const y = Array(panel.columns.length).fill(null), text = Array(panel.columns.length).fill("");
      row.columns.forEach((column, n) => {
        if (row.values[n] === null) return;
        y[column] = place(row.values[n]);
        text[column] = hover(panel, row.name, column, withUnit(row.values[n], unit));
      });
      return {
        type: "scatter", mode: "lines+markers", name: shortened(row.name), x: y.map((_, n) => n), y, text, hovertemplate: "%{text}<extra></extra>",
        line: { color: COLORS[at], dash: DASHES[at], width: 2 }, marker: { size: panel.columns.length > 100 ? 4 : 6 }, connectgaps: false,
      };
    });
    const ticks = isWide ? niceTicks(Math.min(low, 0), high, unit) : null;
    const yaxis = isWide
      ? { tickmode: "array", tickvals: ticks.map(squeeze), ticktext: ticks.map((tick) => human(tick, unit)) }
      : { rangemode: "tozero", nticks: 6, ...(unit === "ms" ? { ticksuffix: " ms" } : unit === "bytes" ? { ticksuffix: "B" } : {}) };
    const legend = { orientation: "h", y: 1.02, yanchor: "bottom", x: 0, xanchor: "left", font: { color: colors.text } };
    const height = 320 + 22 * (narrow.matches ? rows.length : Math.ceil(rows.length / 3));
    return [traces, layoutOf(panel, colors, height, { yaxis, layout: { legend, showlegend: true } })];
  }

  function bars(panel, colors, figure) {
    const sums = panel.figures.map((of, at) => ({ name: of.label, at, values: Array(panel.columns.length).fill(0), total: 0 }));
    for (const [row, columns, ...figures] of panel.groups[0].cells) {
      if (!isMatch(panel.rows[row])) continue;
      figures.forEach((values, at) => values.forEach((value, n) => { sums[at].values[columns[n]] += value; sums[at].total += value; }));
    }
    let shown = sums.filter((one) => one.total && (figure < 0 || one.at === figure));
    if (shown.length > BARS) {
      shown.sort((a, b) => b.total - a.total);
      const rest = shown.slice(BARS - 1);
      const values = panel.columns.map((_, n) => rest.reduce((sum, one) => sum + one.values[n], 0));
      shown = [...shown.slice(0, BARS - 1), { name: `${rest.length} others`, at: BARS - 1, values }];
      shown.forEach((one, at) => (one.at = at));
    }
    const unit = panel.figures[0].unit;
    const traces = shown.map((one) => ({
      type: "bar", name: markup(one.name), x: one.values.map((_, n) => n), y: one.values, marker: { color: COLORS[one.at % COLORS.length] },
      text: one.values.map((value, n) => hover(panel, one.name, n, withUnit(value, unit))), textposition: "none", hovertemplate: "%{text}<extra></extra>",
    }));
    const legend = { orientation: "h", y: 1.02, yanchor: "bottom", x: 0, xanchor: "left", traceorder: "normal", font: { color: colors.text } };
    const height = 300 + 22 * (narrow.matches ? shown.length : Math.ceil(shown.length / 4));
    const layout = { barmode: "stack", legend, showlegend: true, bargap: 0.25 };
    return [traces, layoutOf(panel, colors, height, { yaxis: { rangemode: "tozero", nticks: 6 }, layout })];
  }

  function draw(panel) {
    const chart = byId(`${panel.id}-chart`), caption = byId(`${panel.id}-caption`);
    const colors = theme(), view = viewOf(panel), figure = chosen(panel, "figure");
    const rows = rowsOf(panel, figure);
    const unit = panel.figures[Math.max(figure, 0)].unit;
    byId(`${panel.id}-limit`).disabled = view !== "heat";
    const limit = view === "lines" ? LINES : chosen(panel, "limit");
    const shown = rows.slice(0, limit);
    const of = [panel.groups[chosen(panel, "group")].label, figure < 0 ? "" : panel.figures[figure].label].filter(Boolean).join(", ");
    if (!rows.length) {
      Plotly.purge(chart);
      chart.replaceChildren();
      caption.textContent = "Nothing to draw: no value matches the filter and the figure.";
      return;
    }
    const all = rows.length === 1 ? `1 ${panel.row.toLowerCase()}` : `${exact(rows.length)} ${panel.rows_are}`;
    const what = view === "bars" ? `The sum of ${all}` : shown.length < rows.length ? `The ${shown.length} largest of ${all}` : all;
    caption.textContent = `${what}${of ? ` (${of})` : ""}${view === "bars" ? "" : ", largest first"}.${view === "heat" ? " An empty cell has no value." : ""}`;
    const [traces, layout] = view === "bars" ? bars(panel, colors, figure) : (view === "lines" ? lines : heatMap)(panel, colors, shown, unit);
    Plotly.react(chart, traces, layout, { displayModeBar: false, responsive: true, scrollZoom: false, doubleClick: false, showTips: false });
  }

  // --- tables

  const PAGE = 50, MORE = 500;

  function ofPanel(panel) {
    const group = panel.groups[chosen(panel, "group")];
    const head = [{ label: panel.column }, { label: panel.row }];
    const rows = [];
    const columns = panel.long
      ? [...head, { label: "Reason" }, { label: "Records", number: true }]
      : [...head, ...panel.figures.map(({ label, unit }) => ({ label: unit === label || unit === "records" || label === "seconds" ? label : `${label}, ${unit}`, number: true }))];
    for (const [row, at, ...figures] of group.cells)
      at.forEach((column, n) => {
        const start = [panel.columns[column], panel.rows[row]];
        if (!panel.long) rows.push([...start, ...figures.map((values) => values[n])]);
        else figures.forEach((values, f) => { if (values[n]) rows.push([...start, panel.figures[f].label, values[n]]); });
      });
    const by = panel.long ? 3 : 2 + Math.max(0, chosen(panel, "figure"));
    rows.sort((a, b) => (b[by] === null ? -Infinity : b[by]) - (a[by] === null ? -Infinity : a[by]));
    return { columns, rows, asset: 1, of: group.label };
  }

  function make(tag, properties = {}, ...children) {
    const node = Object.assign(document.createElement(tag), properties);
    node.append(...children);
    return node;
  }

  const compare = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a) < String(b) ? -1 : String(a) > String(b) ? 1 : 0);

  // A table in its place, with roles, which its cells lose where a phone shows them as blocks: filtered, sorted by a click on a heading, some rows at a time.
  class Table {
    constructor(place) {
      this.place = place;
      this.panel = data.panels.find((panel) => panel.id === place.dataset.panel);
      this.sorted = null;
      this.first = this.shown = Number((narrow.matches && place.dataset.rowsNarrow) || place.dataset.rows || PAGE);
    }

    show() {
      const { columns, rows, asset, search, of } = this.panel ? ofPanel(this.panel) : data.tables[this.place.dataset.table];
      let found = rows.filter((row, n) => (search ? search[n].some(isMatch) : isMatch(row[asset])));
      const { sorted } = this;
      if (sorted) {
        const missing = (row) => row[sorted.column] === null;
        found = found.slice().sort((a, b) => missing(a) - missing(b) || sorted.sign * compare(a[sorted.column], b[sorted.column]));
      }
      const caption = `${this.place.dataset.caption}${of ? `, ${of}` : ""}: ${exact(found.length)} rows`;
      const head = make("tr", { role: "row" }, ...columns.map((column, at) => this.heading(column, at)));
      const body = make("tbody", { role: "rowgroup" }, ...found.slice(0, this.shown).map((row) => this.row(row, columns, asset)));
      const table = make("table", { role: "table" }, make("caption", { textContent: caption }), make("thead", { role: "rowgroup" }, head), body);
      const scroll = make("div", { className: "scroll", tabIndex: 0 }, table);
      scroll.setAttribute("role", "region");
      scroll.setAttribute("aria-label", caption);
      this.place.replaceChildren(scroll);
      if (found.length > this.shown) this.place.append(this.more(found.length));
    }

    heading(column, at) {
      const sign = this.sorted && this.sorted.column === at ? this.sorted.sign : 0;
      const button = make("button", { type: "button", textContent: column.label + (sign ? (sign > 0 ? " ▲" : " ▼") : "") });
      button.addEventListener("click", () => {
        this.sorted = { column: at, sign: sign ? -sign : column.number ? -1 : 1 };
        this.show();
        this.place.querySelectorAll("thead button")[at].focus();
      });
      const cell = make("th", { scope: "col", role: "columnheader", className: column.number ? "number" : "" }, button);
      if (sign) cell.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
      return cell;
    }

    row(values, columns, asset) {
      const cells = values.map((value, at) => {
        if (at === asset) return make("th", { scope: "row", role: "rowheader" }, make("bdi", { textContent: value }));
        if (columns[at].number) return make("td", { role: "cell", className: "number", textContent: exact(value) });
        const isLong = /\n|.{40}/.test(value);
        const kind = ["ERROR", "WARN"].includes(value) ? value : /^over /.test(value) ? "over" : isLong ? "lines" : /.{20}/.test(value) ? "" : "short";
        return make("td", { role: "cell", className: kind, dir: "auto", textContent: value });
      });
      cells.forEach((cell, at) => (cell.dataset.label = columns[at].label));
      return make("tr", { role: "row" }, ...cells);
    }

    more(all) {
      const button = make("button", { type: "button", textContent: `Show ${exact(Math.min(MORE, all - this.shown))} more rows` });
      button.addEventListener("click", () => {
        const at = this.shown;
        this.shown += MORE;
        this.show();
        const next = this.place.querySelectorAll("tbody tr")[at];
        next.tabIndex = -1;
        next.focus();
      });
      return make("div", { className: "more" }, button, make("span", { textContent: `${exact(this.shown)} of ${exact(all)} are shown` }));
    }
  }

  const tables = [];
  for (const place of document.querySelectorAll("div.table")) {
    const table = new Table(place);
    const details = place.closest("details");
    const open = () => { if (!tables.includes(table)) tables.push(table); table.show(); };
    if ("open" in place.dataset) open();
    else details.addEventListener("toggle", () => { if (details.open && !tables.includes(table)) open(); });
  }

  // --- together

  const panels = data.panels.filter((panel) => !panel.empty);
  const names = new Set([...panels.flatMap((panel) => panel.rows), ...Object.values(data.tables).flatMap((table) => table.search ? table.search.flat() : table.rows.map((row) => row[table.asset]))]);

  function count() {
    const matching = Array.from(names).filter(isMatch).length;
    byId("matches").textContent = filter.value.trim() ? `${exact(matching)} of ${exact(names.size)} names match` : `${exact(names.size)} names`;
  }

  function drawAll() {
    panels.forEach(draw);
  }

  for (const panel of panels) {
    const few = panel.rows.length <= LINES && panel.columns.length > 1;
    if (!panel.bars && panel.id !== "lag" && few) byId(`${panel.id}-view`).value = "lines";
    if (panel.id === "lag") byId("lag-figure").value = "1"; // p95
    for (const what of ["group", "view", "figure", "limit"]) {
      const select = byId(`${panel.id}-${what}`);
      if (!select) continue;
      select.addEventListener("change", () => {
        draw(panel);
        tables.filter((table) => table.panel === panel).forEach((table) => table.show());
      });
    }
  }

  let waiting = 0;
  filter.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      count();
      drawAll();
      tables.forEach((table) => { table.shown = table.first; table.show(); });
    }, 150);
  });
  const drawAnew = () => {
    panels.forEach((panel) => Plotly.purge(byId(`${panel.id}-chart`)));
    drawAll();
  };
  narrow.addEventListener("change", drawAnew);
  dark.addEventListener("change", drawAnew);
  count();
  drawAll();
  document.documentElement.dataset.drawn = "true";
})();
