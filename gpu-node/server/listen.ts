// The HTTP server under the routes: limits that a slow or greedy client runs into before any code of ours.

import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { getRequestListener } from "@hono/node-server";
import { UsageError } from "../options.ts";

export interface ListenOptions {
  host: string;
  port: number;
  maxConnections: number;
  /** From connection to the end of the headers; a client that drips bytes is cut off here. Default 10 s. */
  headersTimeoutMs?: number;
  /** From connection to the end of the body. Default 60 s. */
  requestTimeoutMs?: number;
  /** How often the two are looked at. Default 1 s. */
  checkMs?: number;
}

export interface Listener {
  url: string;
  /** Takes no connection any more and resolves when the last one is gone; `force` ends those that are left. */
  close(force: boolean): Promise<void>;
}

/** Request line and headers together. */
const MAX_HEADER_BYTES = 16 * 1024;
const MAX_HEADERS = 100;
/** A connection on which nothing moves in either direction. */
const IDLE_TIMEOUT_MS = 15 * 60_000;

/** @throws UsageError when the address cannot be listened on */
export async function listen(
  fetch: (request: Request) => Response | Promise<Response>,
  options: ListenOptions,
): Promise<Listener> {
  const { host, port, maxConnections } = options;
  const server = createServer(
    {
      maxHeaderSize: MAX_HEADER_BYTES,
      headersTimeout: options.headersTimeoutMs ?? 10_000,
      requestTimeout: options.requestTimeoutMs ?? 60_000,
      keepAliveTimeout: 75_000,
      connectionsCheckingInterval: options.checkMs ?? 1000,
    },
    getRequestListener(fetch, { overrideGlobalObjects: false }),
  );
  server.maxHeadersCount = MAX_HEADERS;
  server.maxConnections = maxConnections;
  server.timeout = IDLE_TIMEOUT_MS;
  await bind(server, host, port);
  const address = server.address() as AddressInfo;
  const name = address.family === "IPv6" ? `[${address.address}]` : address.address;
  return {
    url: `http://${name}:${address.port}`,
    close: (force) =>
      new Promise((resolve) => {
        server.close(() => resolve());
        if (force) server.closeAllConnections();
        else server.closeIdleConnections();
      }),
  };
}

function bind(server: Server, host: string, port: number): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once("error", (error: NodeJS.ErrnoException) => {
      const reason =
        error.code === "EADDRINUSE"
          ? "the port is taken (choose another with --port)"
          : error.code === "EACCES"
            ? "not permitted"
            : error.code === "EADDRNOTAVAIL" || error.code === "ENOTFOUND"
              ? "this machine does not have that address"
              : error.message;
      reject(new UsageError(`cannot listen on ${host}:${port}: ${reason}`));
    });
    server.listen(port, host, () => resolve());
  });
}
