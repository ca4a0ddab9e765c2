// A text that matches a regular expression, as short as its counts allow. Lookarounds and backreferences are left out; who uses
// the text checks it.

export function matching(pattern: string, least = 0): string {
  const reader = new Reader(pattern, least);
  return reader.alternatives();
}

class Reader {
  private at = 0;
  private readonly pattern: string;
  /** An open repetition is repeated so often that a least length is reached. */
  private readonly least: number;

  constructor(pattern: string, least: number) {
    this.pattern = pattern;
    this.least = least;
  }

  alternatives(): string {
    const all = [this.sequence()];
    while (this.pattern[this.at] === "|") {
      this.at++;
      all.push(this.sequence());
    }
    return all.find((text) => text !== "") ?? "";
  }

  private sequence(): string {
    let text = "";
    while (this.at < this.pattern.length && !"|)".includes(this.pattern[this.at]!)) text += this.repeated(this.atom());
    return text;
  }

  private atom(): string {
    const sign = this.pattern[this.at++]!;
    if (sign === "(") {
      const kind = /^\?(?:[:=!]|<[=!]|<\w+>|[a-z]+\))/.exec(this.pattern.slice(this.at))?.[0] ?? "";
      this.at += kind.length;
      if (kind.endsWith(")")) return "";
      const inner = this.alternatives();
      this.at++;
      return /^\?<?[=!]/.test(kind) ? "" : inner;
    }
    if (sign === "[") return this.set();
    if (sign === "\\") return this.escape();
    if (sign === "^" || sign === "$") return "";
    return sign === "." ? "a" : sign;
  }

  private escape(): string {
    const sign = this.pattern[this.at++] ?? "";
    if (sign === "u" || sign === "x") {
      const code = (sign === "u" ? /^(?:[0-9a-fA-F]{4}|\{[0-9a-fA-F]+\})/ : /^[0-9a-fA-F]{2}/).exec(this.pattern.slice(this.at))?.[0] ?? "";
      this.at += code.length;
      return String.fromCodePoint(Number.parseInt(code.replace(/[{}]/g, ""), 16));
    }
    if (sign === "p" || sign === "P") {
      const name = /^\{(\w+)/.exec(this.pattern.slice(this.at))?.[1] ?? "";
      this.at = this.pattern.indexOf("}", this.at) + 1;
      return /^(Ll|L|Letter|Alphabetic)$/.test(name) ? "a" : name.startsWith("N") ? "1" : "A";
    }
    const known: Record<string, string> = { d: "1", D: "a", w: "a", W: "-", s: " ", S: "a", n: "\n", t: "\t", r: "\r", b: "", B: "", A: "", Z: "", z: "" };
    return known[sign] ?? sign;
  }

  private set(): string {
    const begin = this.at;
    if (this.pattern[this.at] === "^") this.at++;
    if (this.pattern[this.at] === "]") this.at++;
    while (this.pattern[this.at] !== "]") this.at += this.pattern[this.at] === "\\" ? 2 : this.pattern.startsWith("[:", this.at) ? this.pattern.indexOf(":]", this.at) + 2 - this.at : 1;
    this.at++;
    const source = this.pattern.slice(begin - 1, this.at);
    for (const flags of ["u", ""]) {
      try {
        const one = new RegExp(`^${source}$`, flags);
        const found = "a1A-_ ./:zZ90@#,".split("").find((sign) => one.test(sign)) ?? Array.from({ length: 0x300 }, (_, code) => String.fromCharCode(code)).find((sign) => one.test(sign));
        if (found !== undefined) return found;
      } catch {
        continue;
      }
    }
    return "a";
  }

  private repeated(atom: string): string {
    const count = /^(?:[*+?]|\{(\d+)(,?)(\d*)\})/.exec(this.pattern.slice(this.at));
    if (!count) return atom;
    this.at += count[0].length;
    if (/[?+]/.test(this.pattern[this.at] ?? "") && count[0] !== "") this.at++;
    const isOpen = "*+".includes(count[0]) || (count[2] === "," && count[3] === "");
    const low = count[0] === "*" ? 1 : count[0] === "+" || count[0] === "?" ? 1 : Number(count[1]);
    const most = count[3] ? Number(count[3]) : low;
    return atom.repeat(isOpen ? Math.max(low, this.least) : this.least > low ? Math.min(most, this.least) : low);
  }
}
