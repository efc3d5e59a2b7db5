// A stand-in for a page: as much of the document as the script of HTML reports touches.
const fs = require("fs");
class Element {
  constructor(tag) {
    Object.assign(this, { tag, children: [], dataset: {}, listeners: {}, hidden: false, className: "", textContent: "", value: "" });
  }
  append(...added) {
    for (const x of added.filter(x => typeof x !== "string")) {
      if (this.children.includes(x)) this.children.splice(this.children.indexOf(x), 1);
      this.children.push(x);
    }
  }
  before(x) { this.prev = x; }
  addEventListener(kind, call) { this.listeners[kind] = call; }
  setAttribute() {}
  removeAttribute() {}
  get rows() { return this.children; }
  get cells() { return this.children; }
}
const cell = (text, value) => {
  const made = new Element("td");
  made.textContent = text;
  if (value !== undefined) made.dataset.value = value;
  return made;
};
const row = (kind, cells) => {
  const made = new Element("tr");
  Object.assign(made, { className: kind, children: cells, textContent: cells.map(c => c.textContent).join(" ") });
  return made;
};
const table = new Element("table"), body = new Element("tbody"), head = new Element("tr");
for (const [kind, name, ms] of [["pass", "a.mge", 5], ["fail", "b.mge", 20], ["pass", "c.mge", 1]])
  body.append(row(kind, [cell(kind), cell(name), cell(String(ms), ms)]));
head.append(new Element("th"), new Element("th"), new Element("th"));
table.tBodies = [body];
table.tHead = { rows: [head] };
global.document = {
  querySelectorAll: query => query.startsWith("table") ? [table] : [],
  createElement: tag => new Element(tag),
  getElementById: () => null,
};
global.addEventListener = () => {};
global.location = { hash: "" };
eval(fs.readFileSync(process.argv[2], "utf8"));
const names = () => console.log(body.rows.filter(r => !r.hidden).map(r => r.cells[1].textContent).join());
head.cells[2].listeners.click();
names();
head.cells[2].listeners.click();
names();
const bar = table.prev, find = bar.children[0], first = bar.children[1];
find.value = "C.M";
find.listeners.input();
names();
find.value = "";
find.listeners.input();
first.children[0].checked = false;
first.children[0].listeners.change();
names();
