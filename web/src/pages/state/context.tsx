// One context: its state, versions and history.

export function ContextPage({ id }: { id: string }) {
  return (
    <section class="page">
      <h1>{id}</h1>
    </section>
  );
}
