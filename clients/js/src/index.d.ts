// SPDX-License-Identifier: Apache-2.0

type Fetch = typeof globalThis.fetch;
type Token = string | (() => string | Promise<string>);

// ---- answers ----

export interface ResumableFetchOptions {
    /** What sends requests. Default: the global fetch. */
    fetch?: Fetch;
    /** Attempts before an answer has begun, besides the first. Default: 5. */
    retries?: number;
    /** Attempts to resume in a row without a new event. Default: 10. */
    resumes?: number;
    /** The longest wait between two attempts. Default: 5000. */
    longestWaitMs?: number;
    /** A connection without a byte for so long is dropped and resumed; 0: never. Default: 60000. */
    quietMs?: number;
    /** An abort of the POST stops the generation. Default: true. */
    stopOnAbort?: boolean;
}

/** A fetch whose recorded answers survive their connections. */
export function resumableFetch(options?: ResumableFetchOptions): Fetch;

// ---- chats ----

type Resolvable<T> = T | Promise<T> | (() => T | Promise<T>);
type Prepared = { headers?: HeadersInit; credentials?: RequestCredentials; api?: string };
type ChatRequest = {
    id: string;
    api: string;
    body: Record<string, any> | undefined;
    headers: Record<string, string>;
    credentials: RequestCredentials | undefined;
    requestMetadata: unknown;
};
type CallOptions = {
    headers?: Record<string, string> | Headers;
    body?: object;
    metadata?: unknown;
};

/** The options of DefaultChatTransport. */
export interface TidemarkChatTransportOptions {
    /** Default: "/api/chat". */
    api?: string;
    credentials?: Resolvable<RequestCredentials>;
    headers?: Resolvable<Record<string, string> | Headers>;
    body?: Resolvable<object>;
    fetch?: Fetch;
    prepareSendMessagesRequest?: (
        request: ChatRequest & {
            messages: any[];
            trigger: "submit-message" | "regenerate-message";
            messageId: string | undefined;
        },
    ) => (Prepared & { body: object }) | PromiseLike<Prepared & { body: object }>;
    prepareReconnectToStreamRequest?: (request: ChatRequest) => Prepared | PromiseLike<Prepared>;
}

/** A ChatTransport of the AI SDK. */
export class TidemarkChatTransport {
    constructor(options?: TidemarkChatTransportOptions);
    readonly resumeStreamIsReplay: boolean;
    sendMessages(
        options: {
            trigger: "submit-message" | "regenerate-message";
            chatId: string;
            messageId: string | undefined;
            messages: any[];
            abortSignal: AbortSignal | undefined;
        } & CallOptions,
    ): Promise<ReadableStream<any>>;
    reconnectToStream(
        options: { chatId: string; abortSignal?: AbortSignal } & CallOptions,
    ): Promise<ReadableStream<any> | null>;
    /** Stops the chat's newest answer. False: none was under way. */
    stop(chatId: string, options?: Pick<CallOptions, "headers">): Promise<boolean>;
}

// ---- streams ----

export interface FollowOptions {
    /** Where to begin: an offset, "-1" (the start, default) or "now". */
    offset?: string;
    /** How to wait for more. Default: "sse". */
    live?: "sse" | "long-poll";
    signal?: AbortSignal;
    /** Goes into Authorization. A function is asked before each request. */
    token?: Token;
    headers?: HeadersInit;
    fetch?: Fetch;
    longestWaitMs?: number;
    quietMs?: number;
}

export interface Batch<Data> {
    /** An array of a JSON stream, a string of a text/* stream, else bytes. May be empty. */
    data: Data;
    /** The position behind it: begin there the next time. */
    offset: string;
    /** Nothing more was there. */
    upToDate: boolean;
    /** This was the last. */
    closed: boolean;
    /** How the stream ended: completed, cancelled, failed, orphaned or expired. */
    endReason?: string;
}

/** The batches of a stream, to its end. Data: any[], string or Uint8Array. */
export function follow<Data = any[]>(
    url: string | URL,
    options?: FollowOptions,
): AsyncGenerator<Batch<Data>, void, void>;

/** A stream cannot be followed, or not from there. */
export class StreamError extends Error {
    readonly status: number;
    readonly code?: string;
    readonly gap?: { requested: string; earliest: string; reason: string; snapshot: unknown };
}

// ---- sessions ----

/** What is saved of a session. */
export interface SessionState {
    idempotencyKey: string;
    idempotencyEventId: string;
    idempotentEncryptionKey: string;
    nextSeqno: number;
    playbackChunks: [number, string][];
    eventMac: string;
    last?: "close" | "abort";
    createdAt: number;
    lastUpdatedAt: number;
}

/** Where sessions are saved. hold() gives a session to one program alone, until release(). */
export interface SessionStore {
    load(key: string): Promise<SessionState | undefined>;
    save(state: SessionState): Promise<unknown>;
    remove(key: string): Promise<unknown>;
    list(): Promise<SessionState[]>;
    hold?(key: string): Promise<(() => void) | undefined>;
}

export interface ReliableStreamOptions {
    /** The server: "https://host". */
    url: string | URL;
    /** The session's name. Default: a random one. One that is saved is gone on with. */
    key?: string;
    /** 32 bytes that the session is encrypted under. Default: random ones. */
    secret?: Uint8Array;
    /** The name of an IndexedDB database (in browsers) or of a directory, or a store. */
    state?: string | SessionStore;
    token?: Token;
    headers?: HeadersInit;
    /** Ends the connection; the session stays. */
    signal?: AbortSignal;
    /** The pause between two connections. Default: 1000. */
    reconnectMs?: number;
    /** A connection without an event for so long is opened anew; 0: never. Default: 60000. */
    quietMs?: number;
    fetch?: Fetch;
}

export interface SessionEvent {
    /** "1", "2", ... */
    id: string;
    data: Uint8Array;
    /** data as text. */
    text: string;
    /** Its MAC was checked. False on pages without TLS, which have no Web Crypto. */
    isVerified: boolean;
}

export interface ReliableStream extends AsyncIterable<SessionEvent> {
    readonly key: string;
    /** Settles when the session is over. */
    readonly done: Promise<void>;
    /** Says something. Resolves when the server has it for good. */
    send(data: string | Uint8Array): Promise<void>;
    /** Nothing follows. Resolves when everything is answered. */
    close(): Promise<void>;
    /** Stops the backend and ends the session. */
    abort(): Promise<void>;
    /** Leaves the session as it is, for later. */
    detach(): void;
}

/** Starts a session, or goes on with a saved one. */
export function startReliableStream(options: ReliableStreamOptions): Promise<ReliableStream>;

/** Goes on with all saved sessions that are not older than lookbackMs (default: two hours). */
export function resumeReliableStreams(
    options: Omit<ReliableStreamOptions, "key" | "secret"> & { lookbackMs?: number },
): Promise<ReliableStream[]>;

/** How a session ended. code is Connect's: "canceled", "permission_denied", ... */
export class SessionError extends Error {
    readonly code?: string;
    readonly isFinal: boolean;
}
