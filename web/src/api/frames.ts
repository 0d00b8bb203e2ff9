/** A parser of server-sent events. `EventSource` cannot send the header that a session needs. */

export interface Frame {
  id: string | null;
  event: string;
  /** JSON. */
  data: string;
}

function parse(block: string): Frame | null {
  let id: string | null = null;
  let event = "message";
  const data: string[] = [];
  for (const line of block.split(/\r?\n/)) {
    if (line.startsWith("id:")) id = line.slice(3).trim();
    else if (line.startsWith("event:")) event = line.slice(6).trim();
    else if (line.startsWith("data:")) data.push(line.slice(5).trimStart());
  }
  return data.length ? { id, event, data: data.join("\n") } : null;
}

/** The events of a stream, as they arrive. */
export async function* frames(body: ReadableStream<Uint8Array>): AsyncGenerator<Frame> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    rest += decoder.decode(value, { stream: !done });
    const blocks = rest.split(/\r?\n\r?\n/);
    rest = blocks.pop() ?? "";
    for (const block of blocks) {
      const frame = parse(block);
      if (frame !== null) yield frame;
    }
    if (done) return;
  }
}
