(function () {
  "use strict";
  var status = document.getElementById("sorted");
  function compare(a, b, kind) {
    var x = Number(a), y = Number(b);
    if (kind === "number" && !isNaN(x) && !isNaN(y)) return x - y;
    return a.localeCompare(b, "en", { numeric: true });
  }
  function sortBy(table, headers, column) {
    var body = table.tBodies[0], header = headers[column], button = header.querySelector("button");
    var up = header.getAttribute("aria-sort") !== "ascending";
    Array.from(body.rows)
      .map(function (row) { return { row: row, value: row.cells[column].dataset.value }; })
      .sort(function (a, b) {
        // A missing figure is neither small nor large: it stays at the end either way.
        if (a.value === "" || b.value === "") return (a.value === "") - (b.value === "");
        return (up ? 1 : -1) * compare(a.value, b.value, button.dataset.kind);
      })
      .forEach(function (entry) { body.appendChild(entry.row); });
    headers.forEach(function (other) { other.setAttribute("aria-sort", "none"); });
    header.setAttribute("aria-sort", up ? "ascending" : "descending");
    status.textContent = "Sorted by " + button.textContent.trim() + (up ? ", ascending" : ", descending");
  }
  Array.from(document.querySelectorAll("table.index")).forEach(function (table) {
    var headers = Array.from(table.tHead.rows[0].cells);
    headers.forEach(function (header, column) {
      header.querySelector("button").addEventListener("click", function () { sortBy(table, headers, column); });
    });
  });
})();
