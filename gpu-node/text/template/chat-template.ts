// A model's chat template: found in its folder, parsed once, rendered per request with the user's strings protected.

import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { Template } from "@huggingface/jinja";
import { ApiError } from "../../contract/errors.ts";
import { clip } from "../../contract/schema.ts";
import { TokenizerFileError } from "../tokenizer/tokenizer.ts";

export interface TemplateInput {
  messages: Record<string, unknown>[];
  tools: unknown[] | undefined;
  /** Further variables: thinking switches and the names of BOS and EOS. */
  variables: Record<string, unknown>;
}

export interface ChatTemplate {
  /** The template looks into lists of content parts; otherwise content must be one string. */
  readonly takesParts: boolean;
  /** The template prints argument text as it is; otherwise arguments must be parsed JSON. */
  readonly takesArgumentText: boolean;
  /** @throws ApiError template_error with the template's own message */
  render(input: TemplateInput): string;
}

/**
 * chat_template.jinja, or `chat_template` of tokenizer_config.json (text, or a list of named ones of which `tool_use` is
 * taken for requests with tools and `default` otherwise). Undefined when the model has none.
 * @throws TokenizerFileError on a syntax error
 */
export function loadChatTemplate(dir: string, config: Record<string, unknown>): ChatTemplate | undefined {
  const file = join(dir, "chat_template.jinja");
  if (existsSync(file)) return createChatTemplate(readFileSync(file, "utf8"));
  const value = config.chat_template;
  if (typeof value === "string") return createChatTemplate(value);
  if (!Array.isArray(value)) return undefined;
  const named = new Map(value.map((entry) => [String(entry?.name), String(entry?.template)]));
  const plain = named.get("default");
  return plain === undefined ? undefined : createChatTemplate(plain, named.get("tool_use"));
}

export function createChatTemplate(source: string, withTools = source): ChatTemplate {
  const plain = parse(source);
  const tooled = withTools === source ? plain : parse(withTools);
  return {
    takesParts:
      /content\s+is\s+(not\s+)?(string|iterable|sequence|mapping)|\.type\s*==|\[['"]type['"]\]\s*==/.test(
        source,
      ),
    takesArgumentText: /arguments(['"]\])?\s+is\s+(not\s+)?(string|mapping)/.test(withTools),
    render({ messages, tools, variables }) {
      const template = tools === undefined ? plain : tooled;
      try {
        return template.render({ ...variables, messages, tools, add_generation_prompt: true });
      } catch (error) {
        const reason = error instanceof Error ? error.message : String(error);
        throw new ApiError("template_error", `The chat template refused the messages: ${clip(reason, 300)}`, {
          param: "messages",
          cause: error,
        });
      }
    },
  };
}

function parse(source: string): Template {
  try {
    return new Template(source);
  } catch (error) {
    throw new TokenizerFileError(`the chat template cannot be parsed: ${(error as Error).message}`);
  }
}
