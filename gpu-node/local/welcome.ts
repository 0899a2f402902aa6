// What `npm start` prints when everything runs.

export interface Welcome {
  /** As a person types it. */
  url: string;
  apiKey: string;
  account: string;
  model: string;
}

export interface Style {
  bold(text: string): string;
  dim(text: string): string;
  green(text: string): string;
  red(text: string): string;
}

/** Colours when `on`, else the text as it is. */
export function createStyle(on: boolean): Style {
  const wrap = (code: number, end: number) => (text: string) =>
    on ? `\x1b[${code}m${text}\x1b[${end}m` : text;
  return { bold: wrap(1, 22), dim: wrap(2, 22), green: wrap(32, 39), red: wrap(31, 39) };
}

/** The bundled model works it out in columns, in 45 tokens. */
const QUESTION = "What is 127 + 458?";

/** Shell commands that work when pasted in the repository's folder. */
export function commands({ url, apiKey, account, model }: Welcome): string[] {
  const message = JSON.stringify([{ role: "user", content: QUESTION }]);
  return [
    [
      `curl ${url}/client/v4/accounts/${account}/ai/run/${model} \\`,
      `  -H "Authorization: Bearer ${apiKey}" \\`,
      `  -d '{"prompt": "${QUESTION}", "max_tokens": 100}'`,
    ].join("\n"),
    [
      `curl -N ${url}/v1/chat/completions \\`,
      `  -H "Authorization: Bearer ${apiKey}" \\`,
      `  -d '{"model": "${model}", "stream": true, "max_tokens": 100, "messages": ${message}}'`,
    ].join("\n"),
    [
      "node_modules/.bin/node --input-type=module <<'EOF'",
      'import OpenAI from "openai";',
      `const client = new OpenAI({ baseURL: "${url}/v1", apiKey: "${apiKey}" });`,
      `const messages = ${message};`,
      `const stream = await client.chat.completions.create({ model: "${model}", messages, max_tokens: 100, stream: true });`,
      'for await (const chunk of stream) process.stdout.write(chunk.choices[0]?.delta.content ?? "\\n");',
      "EOF",
    ].join("\n"),
  ];
}

export function welcomeText(welcome: Welcome, style: Style): string {
  const rows = [
    ["URL", welcome.url],
    ["API key", welcome.apiKey],
    ["Account", welcome.account],
    ["Model", welcome.model],
  ].map(([name, value]) => `  ${style.dim(name.padEnd(8))} ${style.bold(value)}`);
  const titles = ["Workers AI style", "OpenAI style, streaming", "The openai client"];
  const examples = commands(welcome).map((command, i) => `${style.dim(`# ${titles[i]}`)}\n${command}`);
  return ["", ...rows, "", examples.join("\n\n"), "", style.dim("Ctrl-C stops everything."), ""].join("\n");
}
