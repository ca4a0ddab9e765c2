// One MCP server.

export function ServerPage({ name }: { name: string }) {
  return (
    <section class="page">
      <h1>{name}</h1>
    </section>
  );
}
