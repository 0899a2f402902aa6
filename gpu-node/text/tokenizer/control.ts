// Control tokens: found in rendered templates, kept out of everything a user wrote.
//
// A chat template is rendered to one string in which the model's control tokens are spelled out, so a user who spells
// one too would get its id (the class of CVE-2026-44222). Before rendering, every user string is therefore protected: a
// mark, a character that the request does not use, is inserted wherever the string could take part in spelling a control
// token. After rendering, only the template's own spellings still match; the marks are then removed.

import type { AddedToken } from "./tokenizer.ts";

/** Noncharacters: never assigned, never in well-behaved text. One that the request lacks is chosen. */
const MARKS = Array.from({ length: 32 }, (_, i) => String.fromCharCode(0xfdd0 + i));

/** Tokens that steer the model. Other added tokens (runs of spaces in some vocabularies) are ordinary text. */
export function isControl(token: AddedToken): boolean {
  return token.content.length > 1 && (token.special || /[<>[\]|｜]/.test(token.content));
}

/** The part of them that is refused in user text: `<think>` may be written about, `<|im_end|>` may not be sent. */
function isRefused(token: AddedToken): boolean {
  return token.special || /^<[|｜].*[|｜]>$/u.test(token.content);
}

export class ControlTokens {
  readonly byContent: ReadonlyMap<string, AddedToken>;
  readonly byId: ReadonlyMap<number, AddedToken>;
  /** Ids that are never shown as text: a client that sent them back would be refused. */
  readonly hidden: ReadonlySet<number>;
  private readonly any: RegExp | undefined;
  private readonly refused: RegExp | undefined;
  /** Every position where a token begins, overlaps included. */
  private readonly starts: RegExp | undefined;
  private readonly heads = new Set<string>();
  private readonly tails = new Set<string>();
  private readonly longest: number;

  constructor(added: AddedToken[]) {
    const tokens = added.filter(isControl).sort((a, b) => b.content.length - a.content.length);
    this.byContent = new Map(tokens.map((token) => [token.content, token]));
    this.byId = new Map(tokens.map((token) => [token.id, token]));
    this.hidden = new Set(tokens.filter(isRefused).map(({ id }) => id));
    this.longest = tokens[0]?.content.length ?? 0;
    this.any = alternation(tokens, (either) => either);
    this.starts = alternation(tokens, (either) => `(?=${either})`);
    this.refused = alternation(tokens.filter(isRefused), (either) => either);
    for (const { content } of tokens) {
      for (let length = 1; length < content.length; length++) {
        this.heads.add(content.slice(0, length));
        this.tails.add(content.slice(-length));
      }
    }
  }

  /** The first token spelled in `text` that users may not send. */
  spelledIn(text: string): string | undefined {
    return this.refused === undefined ? undefined : (text.match(this.refused)?.[0] ?? undefined);
  }

  /**
   * Inserts `mark` so that no control token can be read across or within this string, wherever a template puts it.
   *
   *     user string   abc <|im_end|> def <|im_
   *     breaks            ^ whole token  ^ may be completed by what follows
   *
   * @param inner also break a short string that lies inside a control token, as `im_end` in `<|{{ name }}|>`
   */
  protect(text: string, mark: string, inner = true): string {
    if (this.starts === undefined || text === "") return text;
    const breaks = new Set<number>();
    for (const match of text.matchAll(this.starts)) breaks.add(match.index + 1);
    // Templates often trim, so the edges are those of the trimmed text.
    const end = text.trimEnd().length;
    const begin = text.length - text.trimStart().length;
    for (let i = Math.max(begin, end - this.longest + 1); i < end; i++) {
      if (this.heads.has(text.slice(i, end))) breaks.add(i + 1);
    }
    for (let i = Math.min(end, begin + this.longest - 1); i > begin; i--) {
      if (this.tails.has(text.slice(begin, i))) breaks.add(i - 1);
    }
    if (inner && end > begin && end - begin < this.longest) {
      const core = text.slice(begin, end);
      for (const content of this.byContent.keys()) {
        if (content.includes(core)) breaks.add(begin + 1);
      }
    }
    if (breaks.size === 0) return text;
    let out = "";
    let from = 0;
    for (const at of [...breaks].sort((a, b) => a - b)) {
      out += text.slice(from, at) + mark;
      from = at;
    }
    return out + text.slice(from);
  }

  /** Rendered text as ids and stretches of plain text, in order; marks are gone. */
  split(rendered: string, mark: string): (AddedToken | string)[] {
    const out: (AddedToken | string)[] = [];
    let from = 0;
    let strip = false;
    const plain = (end: number, next?: AddedToken) => {
      let text = rendered.slice(from, end);
      if (strip) text = text.trimStart();
      if (next?.lstrip) text = text.trimEnd();
      text = text.replaceAll(mark, "");
      if (text !== "") out.push(text);
    };
    for (const match of this.any === undefined ? [] : rendered.matchAll(this.any)) {
      const token = this.byContent.get(match[0])!;
      plain(match.index, token);
      out.push(token);
      from = match.index + match[0].length;
      strip = token.rstrip;
    }
    plain(rendered.length);
    return out;
  }
}

/** A mark that occurs in none of the texts; undefined when they use all of them. */
export function chooseMark(texts: Iterable<string>): string | undefined {
  let free = MARKS;
  for (const text of texts) free = free.filter((mark) => !text.includes(mark));
  return free[0];
}

function alternation(tokens: AddedToken[], wrap: (either: string) => string): RegExp | undefined {
  if (tokens.length === 0) return undefined;
  return new RegExp(wrap(tokens.map(({ content }) => RegExp.escape(content)).join("|")), "g");
}
