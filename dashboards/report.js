"use strict";
// Draws the chart from the document that the page carries, and makes the command copyable. Text from the document goes
// to plotly, which understands a little HTML, so it is escaped here.
(() => {
  const report = JSON.parse(document.getElementById("document").textContent);
  const root = document.documentElement;
  root.classList.add("scripted");

  const GIB = 2 ** 30;
  const escape = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  const color = (name) => getComputedStyle(root).getPropertyValue("--" + name).trim();
  const gib = (bytes) => bytes / GIB;
  const rate = (value) => value.toLocaleString("en", { maximumSignificantDigits: 4 });
  const size = (bytes) => (bytes >= GIB ? Number(gib(bytes).toFixed(1)) + " GiB" : (bytes / 2 ** 20).toFixed(0) + " MiB");

  const folded = (text) => escape(text).replace(/(.{1,58})(?:\s|$)/g, "$1<br>").replace(/<br>$/, "");

  function hover(point) {
    const lines = [
      `<b>Trial ${point.number}</b>${point.is_winner ? " · winner" : point.is_baseline ? " · your script" : ""}`,
      folded(point.is_baseline ? "as it is" : point.configuration),
    ];
    if (point.samples_per_s !== null) {
      lines.push(`${rate(point.samples_per_s)} samples/s (${rate(point.low)} to ${rate(point.high)})`);
      lines.push(`${size(point.peak_bytes)} at the peak`);
      if (point.thrashed) lines.push("the allocator thrashed");
    } else {
      lines.push(folded(point.cause || point.outcome));
      if (point.needed_bytes) lines.push(`needs at least ${size(point.needed_bytes)}`);
    }
    return lines.join("<br>");
  }

  function marks(points, name, marker, extra) {
    return {
      name,
      type: "scatter",
      mode: "markers",
      x: points.map((p) => gib(p.peak_bytes)),
      y: points.map((p) => p.samples_per_s),
      text: points.map(hover),
      hovertemplate: "%{text}<extra></extra>",
      error_y: {
        type: "data",
        symmetric: false,
        array: points.map((p) => p.high - p.samples_per_s),
        arrayminus: points.map((p) => p.samples_per_s - p.low),
        thickness: 1,
        width: 0,
        color: marker.line ? marker.line.color : marker.color,
      },
      marker,
      ...extra,
    };
  }

  function label(point, text, name, place) {
    return {
      x: gib(point.peak_bytes), y: point.samples_per_s, text, showarrow: false, font: { color: color(name), size: 13 },
      ...place,
    };
  }

  // The limit may lie far beyond every trial; drawing it to scale would then crush them all into a corner.
  function edges(measured, failed, limit) {
    const peaks = measured.map((p) => gib(p.peak_bytes)).concat(failed.map((p) => gib(p.needed_bytes || report.limit_bytes || 0)));
    const largest = Math.max(...peaks, 0) || (limit ? gib(limit) : 1);
    const near = limit !== null && gib(limit) < largest * 2.5;
    const right = Math.max(largest, near ? gib(limit) : 0) * 1.06;
    const rates = measured.flatMap((p) => [p.low, p.high]);
    const low = Math.min(...rates), high = Math.max(...rates);
    const margin = (high - low || high || 1) * 0.14;
    return { near, x: [0, right], y: rates.length ? [Math.max(0, low - margin), high + margin] : [0, 1] };
  }

  function draw() {
    const chart = document.getElementById("chart");
    const ink = color("ink"), soft = color("soft"), line = color("line"), paper = color("paper"), bad = color("bad");
    const measured = report.points.filter((p) => p.samples_per_s !== null && p.peak_bytes !== null);
    const failed = report.points.filter((p) => p.outcome === "out_of_memory");
    // What the answer is held against; the limit of trials may lie above it.
    const [word, limit] = report.target_bytes === null ? ["limit", report.limit_bytes] : ["target", report.target_bytes];
    const range = edges(measured, failed, limit);

    const plain = measured.filter((p) => !p.is_winner && !p.is_baseline);
    const front = measured.filter((p) => p.on_front).sort((a, b) => a.peak_bytes - b.peak_bytes);
    const traces = [
      {
        name: "Pareto front", type: "scatter", mode: "lines", hoverinfo: "skip",
        x: front.map((p) => gib(p.peak_bytes)), y: front.map((p) => p.samples_per_s),
        line: { shape: "hv", color: color("measured"), width: 1.5, dash: "dot" },
      },
      marks(plain.filter((p) => p.fits && !p.thrashed), "Fits", { color: color("measured"), size: 9 }),
      marks(plain.filter((p) => !p.fits), `Over the ${word}`,
        { color: paper, size: 9, symbol: "square", line: { color: bad, width: 2 } }),
      marks(plain.filter((p) => p.fits && p.thrashed), "Thrashed",
        { color: paper, size: 10, symbol: "diamond", line: { color: bad, width: 2 } }),
      marks(measured.filter((p) => p.is_baseline && !p.is_winner), "Your script",
        { color: paper, size: 12, symbol: "circle", line: { color: ink, width: 2.5 } }),
      marks(measured.filter((p) => p.is_winner), "Winner",
        { color: color("winner"), size: 17, symbol: "star", line: { color: paper, width: 1 } }),
      {
        name: "Out of memory", type: "scatter", mode: "markers", yaxis: "y2", cliponaxis: false,
        x: failed.map((p) => gib(p.needed_bytes || report.limit_bytes || 0)), y: failed.map(() => 0.5),
        text: failed.map(hover), hovertemplate: "%{text}<extra></extra>",
        marker: { color: bad, size: 10, symbol: "x-thin", line: { color: bad, width: 2.5 } },
      },
    ].filter((trace) => trace.x.length > (trace.mode === "lines" ? 1 : 0));

    const shapes = [], annotations = [];
    if (limit !== null && range.near) {
      shapes.push({ type: "line", xref: "x", yref: "paper", x0: gib(limit), x1: gib(limit), y0: 0, y1: 1,
        line: { color: bad, width: 1.5, dash: "dash" } });
      annotations.push({ xref: "x", yref: "paper", x: gib(limit), y: 1, text: `${word} ${size(limit)}`, showarrow: false,
        xanchor: "auto", yanchor: "bottom", font: { color: bad, size: 13 } });
    } else if (limit !== null) {
      annotations.push({ xref: "paper", yref: "paper", x: 1, y: 1, text: `${word} ${size(limit)} →`, showarrow: false,
        xanchor: "right", yanchor: "bottom", font: { color: bad, size: 13 } });
    }
    const beside = { xanchor: "left", xshift: 9 };
    for (const point of measured) {
      if (point.is_winner && point.is_baseline) annotations.push(label(point, "your script", "winner", beside));
      else if (point.is_winner) annotations.push(label(point, "winner", "winner", { yshift: 18 }));
      else if (point.is_baseline) annotations.push(label(point, "your script", "ink", beside));
    }

    const axis = { color: soft, gridcolor: line, zeroline: false, linecolor: line, ticks: "", fixedrange: false };
    const narrow = chart.clientWidth < 520;
    const floor = failed.length ? 0.13 : 0;
    const layout = {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: soft },
      margin: { l: 62, r: 14, t: narrow ? 34 : 52, b: narrow ? 150 : 84 },
      xaxis: { ...axis, title: { text: "Peak memory (GiB)", standoff: 10 }, range: range.x, showgrid: false, anchor: failed.length ? "y2" : "y" },
      yaxis: { ...axis, title: { text: "Samples per second", standoff: 10 }, range: range.y, domain: [floor, 1], nticks: 7 },
      yaxis2: { domain: [0, floor * 0.6], range: [0, 1], showgrid: false, zeroline: false, fixedrange: true, color: bad,
        tickvals: [0.5], ticktext: ["failed"], ticks: "", visible: failed.length > 0 },
      legend: { orientation: "h", x: 0, y: narrow ? -0.26 : -0.16, yanchor: "top", font: { size: 13 },
        ...(narrow ? { entrywidth: 0.45, entrywidthmode: "fraction" } : {}) },
      hoverlabel: { align: "left", bgcolor: color("panel"), bordercolor: line,
        font: { color: ink, size: 13, family: getComputedStyle(document.body).fontFamily } },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: soft, activecolor: ink },
      shapes, annotations,
    };
    Plotly.react(chart, traces, layout, {
      responsive: true, displaylogo: false, displayModeBar: narrow ? false : "hover",
      modeBarButtons: [["zoom2d", "pan2d", "resetScale2d", "toImage"]],
    });
  }

  const chart = document.getElementById("chart");
  if (chart !== null) {
    draw();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  }

  for (const button of document.querySelectorAll("button[data-copy]")) {
    const text = document.getElementById(button.dataset.copy);
    button.addEventListener("click", async () => {
      const selection = getSelection();
      selection.selectAllChildren(text);
      try {
        await navigator.clipboard.writeText(text.textContent);
        selection.removeAllRanges();
        button.textContent = "Copied";
      } catch {
        button.textContent = "Selected"; // pages opened from a file may not write to the clipboard
      }
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
  }
})();
