// SPDX-License-Identifier: Apache-2.0
export { TidemarkChatTransport } from "./chat.js";
export { resumableFetch } from "./fetch.js";
export { follow, StreamError } from "./follow.js";
export { resumeReliableStreams, startReliableStream } from "./session.js";
export { SessionError } from "./session-link.js";
