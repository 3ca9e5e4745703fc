// One terminal: a WebSocket to the hub, which passes it on to the container.

import { type TerminalCommand, type TerminalEnd, channels, decodeMessage, encodeInput, encodeSize, endOfClose, readEnd, terminalPath } from "../model/terminal";
import { recoverSession, sessionProtocol, webSocketAddress } from "./client";

/** What a terminal reports. onEnd comes once, last. */
export interface TerminalHandler {
  onOpen(): void;
  onOutput(bytes: Uint8Array): void;
  onEnd(end: TerminalEnd): void;
}

/** An input that the network has not taken is bounded: beyond it, the input is left out. */
const maxUnsent = 4 << 20;

export class TerminalConnection {
  private socket: WebSocket | undefined;
  private end: TerminalEnd | undefined;
  private isOver = false;
  private size: readonly [number, number] | undefined;

  constructor(private readonly command: TerminalCommand, private readonly handler: TerminalHandler) {
    this.connect(true);
  }

  private connect(mayRenew: boolean): void {
    const socket = new WebSocket(webSocketAddress(terminalPath(this.command)), ["v5.channel.k8s.io", "v4.channel.k8s.io", sessionProtocol()]);
    socket.binaryType = "arraybuffer";
    this.socket = socket;
    this.end = undefined;
    let isAnswered = false; // by the container: a hub that refuses opens the WebSocket, too
    socket.onopen = () => {
      if (this.size) this.resize(...this.size);
      this.handler.onOpen();
    };
    socket.onmessage = (e) => {
      const message = decodeMessage(e.data);
      if (!message || this.isOver) return;
      if (message.channel === channels.status) this.end = readEnd(message.bytes);
      else isAnswered = true;
      if ((message.channel === channels.output || message.channel === channels.errors) && message.bytes.length > 0) this.handler.onOutput(message.bytes);
    };
    socket.onclose = (e) => {
      if (this.isOver) return;
      const end = this.end ?? endOfClose(e.code);
      if (mayRenew && !isAnswered && end.kind === "refused" && end.code === 401) {
        void recoverSession().then((good) => !this.isOver && (good ? this.connect(false) : this.finish(end)));
        return;
      }
      this.finish(end);
    };
  }

  private finish(end: TerminalEnd): void {
    this.isOver = true;
    this.handler.onEnd(end);
  }

  write(bytes: Uint8Array): void {
    if (this.socket?.readyState !== WebSocket.OPEN || this.socket.bufferedAmount > maxUnsent) return;
    for (const message of encodeInput(bytes)) this.socket.send(message as Uint8Array<ArrayBuffer>);
  }

  resize(columns: number, rows: number): void {
    this.size = [columns, rows];
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(encodeSize(columns, rows) as Uint8Array<ArrayBuffer>);
  }

  close(): void {
    if (this.isOver) return;
    this.finish({ kind: "closed" });
    this.socket?.close(1000);
  }
}
