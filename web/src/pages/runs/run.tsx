// One run: its steps, model requests, calls and waits.

export function RunPage({ id }: { id: string }) {
  return (
    <section class="page">
      <h1>{id}</h1>
    </section>
  );
}
